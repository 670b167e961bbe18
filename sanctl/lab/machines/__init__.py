# SPDX-License-Identifier: GPL-2.0-or-later
"""Nodes of real kernels on one machine: image, network, power, faults, rollout."""
