# SPDX-License-Identifier: GPL-2.0-or-later
"""Frozen value types. No I/O."""
