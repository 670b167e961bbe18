# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD roles: Primary, Secondary, and the first promotion of a new device."""
