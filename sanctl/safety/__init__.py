# SPDX-License-Identifier: GPL-2.0-or-later
"""The safety model: explores every interleaving of crashes, network cuts and actions."""
