# SPDX-License-Identifier: GPL-2.0-or-later
"""Decisions about a device's replicas: their number, their nodes, which may be dropped, heal."""
