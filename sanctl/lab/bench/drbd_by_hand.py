# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD resource files of what benches measure beside sanctl: its buffers and timers, no more. Pure.

What they are compared by must not differ: the protocol, the buffers, and when a peer counts as
lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from sanctl.lab.machines.spec import Network, NodeSpec


def resource_file(
    name: str,
    nodes: Sequence[NodeSpec],
    *,
    minor: int,
    disk: str,
    port: int,
    disk_options: str = "",
    handlers: str = "",
) -> str:
    """Return the file of a resource whose metadata is on its disk, behind the data.

    Args:
        name: the resource.
        nodes: those with a replica.
        minor: the DRBD minor on each of them.
        disk: the block device below DRBD on each of them.
        port: the TCP port of its connection.
        disk_options: lines of its section `disk` besides what an error of the disk does.
        handlers: its section of that name; empty: none.
    """
    hosts = "".join(
        f"  on {node.name} {{\n"
        f"    device minor {minor};\n    disk {disk};\n    meta-disk internal;\n"
        f"    address {node.address(Network.SYNC)}:{port};\n  }}\n"
        for node in nodes
    )
    return f"""\
resource {name} {{
  net {{
    protocol C;
    timeout 9;
    ko-count 14;
    ping-int 1;
    ping-timeout 18;
    connect-int 2;
    max-buffers 8000;
    max-epoch-size 8000;
  }}
  disk {{
    on-io-error detach;
{disk_options}  }}
{handlers}{hosts}}}
"""
