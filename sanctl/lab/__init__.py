# SPDX-License-Identifier: GPL-2.0-or-later
"""The laboratory: a cluster of real kernels on one machine, to test, measure and break it."""
