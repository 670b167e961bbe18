# SPDX-License-Identifier: GPL-2.0-or-later
"""Resync and verify: scheduling, progress, repair."""
