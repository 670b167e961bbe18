# SPDX-License-Identifier: GPL-2.0-or-later
"""Model to text of the tools. Pure."""
