# SPDX-License-Identifier: GPL-2.0-or-later
"""The node rather than one device: its Corosync vote mode, cleanup of Pacemaker failures."""
