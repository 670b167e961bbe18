# SPDX-License-Identifier: GPL-2.0-or-later
"""Persistent reservations: kept on every replica, in force on the node that serves."""
