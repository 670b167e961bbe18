# SPDX-License-Identifier: GPL-2.0-or-later
"""cluster.toml, with all its problems at once."""

from sanctl.config.cluster import CLUSTER_TOML, parse, render

__all__ = ["CLUSTER_TOML", "parse", "render"]
