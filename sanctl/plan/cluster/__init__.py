# SPDX-License-Identifier: GPL-2.0-or-later
"""Decisions about nodes and the cluster: preconditions, standby, drain, vote strategy."""
