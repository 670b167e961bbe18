# SPDX-License-Identifier: GPL-2.0-or-later
"""What Pacemaker and DRBD call on a node."""
