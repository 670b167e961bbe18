# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that Pacemaker, DRBD and systemd start on a node: OCF agents, handlers, services."""
