# SPDX-License-Identifier: GPL-2.0-or-later
"""Decisions about one device: create, place, resize, move, upgrade, delete."""
