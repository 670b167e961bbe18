# SPDX-License-Identifier: GPL-2.0-or-later
"""A cluster of real kernels on one machine."""
