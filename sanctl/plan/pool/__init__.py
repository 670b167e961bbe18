# SPDX-License-Identifier: GPL-2.0-or-later
"""Decisions about a pool's flash cache: assembly at boot, mode changes, preparation."""
