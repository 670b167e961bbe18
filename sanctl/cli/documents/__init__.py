# SPDX-License-Identifier: GPL-2.0-or-later
"""What the JSON output of the commands holds."""
