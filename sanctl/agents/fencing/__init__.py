# SPDX-License-Identifier: GPL-2.0-or-later
"""Outdated marks in the CIB that forbid promotions, and reboots of this node (self-fencing)."""
