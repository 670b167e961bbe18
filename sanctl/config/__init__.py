# SPDX-License-Identifier: GPL-2.0-or-later
"""Reading and checking cluster.toml and the Ansible inventory; all problems at once."""

from sanctl.config.cluster import CLUSTER_TOML, parse, render

__all__ = ["CLUSTER_TOML", "parse", "render"]
