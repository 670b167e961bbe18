# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings of `sanctl status`: what is wrong, from the cluster's state, and what to do."""
