# SPDX-License-Identifier: GPL-2.0-or-later
"""What replicas publish to the cluster as node attributes, and reading it."""
