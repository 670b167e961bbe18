# SPDX-License-Identifier: GPL-2.0-or-later
"""Decisions about a pool and its flash cache."""
