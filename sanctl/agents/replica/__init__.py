# SPDX-License-Identifier: GPL-2.0-or-later
"""One replica of a device on this node: its files, its DRBD resource and what is known of it."""
