# SPDX-License-Identifier: GPL-2.0-or-later
"""Decisions on the failover path: promotion, fencing, reboot of a stuck node."""
