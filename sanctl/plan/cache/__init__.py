# SPDX-License-Identifier: GPL-2.0-or-later
"""Decisions about a device's cache policy: allowed mode, read cache, changing it, findings."""
