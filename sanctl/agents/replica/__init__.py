# SPDX-License-Identifier: GPL-2.0-or-later
"""One replica on this node: its files, loop devices, DRBD resource file, policy and markers."""
