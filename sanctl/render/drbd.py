"""A device's DRBD resource file, for DRBD 8.4 and 9.

Every number that differs from DRBD's default is set on purpose; the reason stands beside it here
and, in short, in the file that is written. Where the two generations want an option in another
section, the table below says so: that is all that moving to 9 changes.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

PORT_BASE = 7800


class ReplicaAddress(NamedTuple):
    """Where one replica is reached.

    Attributes:
        node: the node's name as `uname -n` prints it.
        node_id: the node's id in cluster.toml (1-32); DRBD 9 wants 0-31, so it is sent less one.
        address: its IPv4 or IPv6 address on the sync network.
    """

    node: str
    node_id: int
    address: str


class Backing(NamedTuple):
    """The block devices below the local replica: `/dev/loopN` of the data and metadata files."""

    data: str
    metadata: str


def device_secret(cluster_secret: str, uuid: str) -> str:
    """Return a device's own DRBD secret: 32 hex digits, within DRBD's limit of 64 characters.

    Derived, so that it never has to be stored or sent, and one device's secret tells nothing
    about another's.
    """
    return hmac.new(cluster_secret.encode(), uuid.encode(), hashlib.sha256).hexdigest()[:32]


def port_of(minor: int) -> int:
    """Return the TCP port on which the replicas of the device with this minor talk."""
    return PORT_BASE + minor


# How soon a dead peer is noticed while the connection is idle: ping-int + ping-timeout, 3.5 s.
# It has to be less than what Corosync's token and fencing take together (about 5 s), so that DRBD
# never is what the takeover waits for; shorter only makes a busy node look dead. `timeout` must
# stay below ping-int. ko-count x timeout bounds how long a peer with a hanging disk is waited
# for: 7 x 1.8 s instead of 42 s.
_NET = (
    ("protocol", "C"),
    ("cram-hmac-alg", "sha256"),
    ("timeout", "18"),
    ("ping-int", "2"),
    ("ping-timeout", "15"),
    ("connect-int", "2"),
    ("ko-count", "7"),
    # Diverged replicas are an operator's decision, never thrown away automatically.
    ("after-sb-0pri", "disconnect"),
    ("after-sb-1pri", "disconnect"),
    ("after-sb-2pri", "disconnect"),
    ("rr-conflict", "disconnect"),
    ("max-buffers", "8000"),
    ("max-epoch-size", "8000"),
    ("verify-alg", "crc32c"),
)

# A failing disk is dropped and the peer's used. Resync: DRBD's dynamic controller, with bounds
# for a network of 1-10 Gbit/s instead of the default 100 MiB/s, and a floor to which it yields to
# hosts: redundancy has to come back under load too (with 4M a busy gigabyte took minutes). Ranges
# that are all zero are discarded on the target instead of written, so that a resync leaves a
# device file as sparse as its source; 64 KiB is a multiple of what every filesystem under a loop
# device can punch.
_DISK = (
    ("on-io-error", "detach"),
    ("c-plan-ahead", "20"),
    ("c-fill-target", "1M"),
    ("c-min-rate", "32M"),
    ("c-max-rate", "700M"),
    ("rs-discard-granularity", "65536"),
)

# A Primary whose disk has failed serves from its peer. If that goes too, I/O waits until one of
# them is back: an error would make hosts' filesystems read-only, and no data has been lost. Where
# the cluster wants to serve the device elsewhere meanwhile, the stop that hangs on it ends in
# fencing.
_OPTIONS = (("on-no-data-accessible", "suspend-io"),)

_GIB = 1 << 30


def activity_log_extents(size_bytes: int) -> int:
    """Return how many 4 MiB extents may be written to without a metadata update.

    After a crash all of them are sent again (drbd.conf(5), al-extents), so this is what bounds
    the resync of a returning node: 268 MiB, 1 GiB or DRBD's default of 4.8 GiB. Fewer cost a
    metadata write whenever a write leaves the set, which a larger device does more often.
    """
    if size_bytes <= 32 * _GIB:
        return 67
    if size_bytes <= 512 * _GIB:
        return 257
    return 1237


def render_resource(
    *,
    name: str,
    minor: int,
    size_bytes: int,
    secret: str,
    replicas: tuple[ReplicaAddress, ...],
    backing: Backing,
    handlers: str,
    generation: int,
) -> str:
    """Return the text of `/run/sanctl/drbd.d/NAME.res` (drbd.conf(5)).

    Args:
        name: the device's name, which is the resource's.
        minor: DRBD minor; also gives the port.
        size_bytes: the device's size.
        secret: the shared secret of the device; the file must be 0600.
        replicas: the replicas, in any order; rendered by node id.
        backing: the loop devices of this node. The same paths stand under every node: only its own
            section concerns a node.
        handlers: folder of the fence-peer and unfence-peer programs.
        generation: 8 for DRBD 8.4, 9 for DRBD 9.
    """
    # The only replica has no peer that could serve other data: there is nobody to ask about.
    fencing = ("fencing", "resource-and-stonith" if len(replicas) > 1 else "dont-care")
    net = (*_NET, fencing) if generation >= 9 else _NET
    disk = _DISK if generation >= 9 else (*_DISK, fencing)
    ordered = sorted(replicas, key=lambda replica: replica.node_id)
    lines = [
        "# Written by sanctl when the device starts; changes are lost. `sanctl device show`.",
        f"resource {name} {{",
        "  net {",
        *(f"    {key} {value};" for key, value in net),
        f'    shared-secret "{secret}";',
        "  }",
        "  disk {",
        *(f"    {key} {value};" for key, value in disk),
        f"    al-extents {activity_log_extents(size_bytes)};",
        "  }",
        "  options {",
        *(f"    {key} {value};" for key, value in _OPTIONS),
        "  }",
        "  handlers {",
        f'    fence-peer "{handlers}/fence-peer";',
        f'    unfence-peer "{handlers}/unfence-peer";',
        "  }",
        "  volume 0 {",
        f"    device minor {minor};",
        f"    disk {backing.data};",
        # Outside the data: the device keeps its exact size at every replication level.
        f"    {'meta-disk' if generation >= 9 else 'flexible-meta-disk'} {backing.metadata};",
        "  }",
    ]
    for replica in ordered:
        family = "ipv6" if ":" in replica.address else "ipv4"
        host = f"[{replica.address}]" if family == "ipv6" else replica.address
        lines.append(f"  on {replica.node} {{")
        if generation >= 9:
            lines.append(f"    node-id {replica.node_id - 1};")
        lines.append(f"    address {family} {host}:{port_of(minor)};")
        lines.append("  }")
    if generation >= 9 and len(ordered) > 1:
        lines += [
            "  connection-mesh {",
            f"    hosts {' '.join(replica.node for replica in ordered)};",
            "  }",
        ]
    lines.append("}")
    return "\n".join(lines) + "\n"
