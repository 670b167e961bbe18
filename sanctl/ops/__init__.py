# SPDX-License-Identifier: GPL-2.0-or-later
"""What each command does to the cluster, one module each; decisions are in sanctl/plan."""
