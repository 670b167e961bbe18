# SPDX-License-Identifier: GPL-2.0-or-later
"""Measurements: the ledger of writes, timelines, audits of kernels, costs, and charts of them."""
