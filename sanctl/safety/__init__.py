# SPDX-License-Identifier: GPL-2.0-or-later
"""The safety model: every interleaving of crashes, cuts and actions, explored in full."""
