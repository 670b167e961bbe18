# SPDX-License-Identifier: GPL-2.0-or-later
"""Decisions about DRBD: limits, generations, connections, resync, verify."""
