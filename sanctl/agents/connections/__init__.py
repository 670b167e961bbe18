# SPDX-License-Identifier: GPL-2.0-or-later
"""Which peers a replica's DRBD connects to."""
