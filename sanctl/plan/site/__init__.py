# SPDX-License-Identifier: GPL-2.0-or-later
"""Decisions about second sites: who sends, what of a restore point is sent, what goes when."""
