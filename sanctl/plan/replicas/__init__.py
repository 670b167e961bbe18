# SPDX-License-Identifier: GPL-2.0-or-later
"""Decisions about a device's replicas: how many, where, which may go, how to heal."""
