# SPDX-License-Identifier: GPL-2.0-or-later
"""Restore points: the copies that all replicas of a device take at one moment; their files."""
