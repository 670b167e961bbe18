# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps a stale or unreachable replica from being served: fence-peer, marks, self-fencing."""
