# SPDX-License-Identifier: GPL-2.0-or-later
"""Resync and verify of replicas: order, progress, records, repair."""
