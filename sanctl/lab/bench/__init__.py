# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands `sanctl bench`: I/O, replica changes, processor time, measured in a laboratory."""
