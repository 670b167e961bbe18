# SPDX-License-Identifier: GPL-2.0-or-later
"""Frozen values: devices, replicas, the cluster, policies and their text forms. No I/O."""
