# SPDX-License-Identifier: GPL-2.0-or-later
"""When Pacemaker last did something to a resource's instance on a node, from the CIB's history."""

from __future__ import annotations

import xml.etree.ElementTree as ET


def change_times(root: ET.Element) -> dict[tuple[str, str], int]:
    """Return when each resource was last started, promoted, demoted or reloaded on a node.

    In seconds since 1970, by resource and node. The probe that has found it running counts, too.
    Of all these the history has the last one alone.
    """
    found: dict[tuple[str, str], int] = {}
    for state in root.iterfind("status/node_state"):
        node = state.get("uname", "")
        for resource in state.iterfind("lrm/lrm_resources/lrm_resource"):
            key = resource.get("id", "").partition(":")[0], node
            for operation in resource.iterfind("lrm_rsc_op"):
                when = operation.get("last-rc-change", "")
                # A monitor that recurs has its interval.
                if operation.get("interval") == "0" and when.isascii() and when.isdecimal():
                    found[key] = max(found.get(key, 0), int(when))
    return found
