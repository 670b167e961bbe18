# SPDX-License-Identifier: GPL-2.0-or-later
"""What each command does to the cluster, by the command's words; decisions are in sanctl/plan."""
