# SPDX-License-Identifier: GPL-2.0-or-later
"""Fields of the JSON output; by_command.py says which command prints which document."""
