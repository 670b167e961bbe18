# SPDX-License-Identifier: GPL-2.0-or-later
"""A device's DRBD resource file, for DRBD 8.4 and 9.

Every number that differs from DRBD's default is set on purpose; the reason stands beside it here
and, in short, in the file that is written. Where the two generations want an option in another
section, or has an option of its own, the tables below say so.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

from sanctl.model.drbd import has_majority
from sanctl.model.sync_policy import SyncPolicy

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


def number_of(node_id: int) -> int:
    """Return the number by which DRBD 9 knows the node with this id of cluster.toml."""
    return node_id - 1


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
    # The same for every device at all times: nodes whose algorithms differ when they meet refuse
    # each other for good (drbd_receiver.c, receive_SyncParam). Whether it is used is another
    # option, which may differ and may change during a resync. Of the size that a block which
    # differs is never taken for the same.
    ("csums-alg", "sha256"),
)

# A failing disk is dropped and the peer's used. Ranges that are all zero are discarded on the
# resync's target instead of written, so that a resync leaves a device file as sparse as its
# source; 64 KiB is a multiple of what every filesystem under a loop device can punch.
_DISK = (
    ("on-io-error", "detach"),
    ("rs-discard-granularity", "65536"),
)

# By this line the local disk is drained, and not flushed. Draining keeps
# the order, without which DRBD 8.4 acknowledges epochs in any (drbd_receiver.c).
_NO_FLUSHES = "    disk-flushes no;"

_KIB = 1 << 10
_MIB = 1 << 20
# Where the link does not tell its speed (bonds of some drivers, virtual machines): right for
# 1-10 Gbit/s, and the controller finds less by itself.
_UNKNOWN_CEILING_KIB = 700 << 10
_UNKNOWN_FILL_BYTES = _MIB
# What a resync keeps in flight is what a host's write may have to queue behind. Five
# milliseconds of the link's speed fill it at every round trip of a storage network.
_FILL_S = 0.005
_FILL_BOUNDS = (512 * _KIB, 8 * _MIB)


def controller(sync: SyncPolicy, link_bytes_s: int | None) -> tuple[tuple[str, str], ...]:
    """Return the options of DRBD's resync controller for a policy and a network.

    The controller keeps `c-fill-target` in flight and stays below `c-max-rate`; while hosts read
    and write, a source that serves them gives the resync no more than `c-min-rate`. DRBD's own
    defaults (100 MiB/s, 250 KiB/s) suit neither a fast network nor a busy device.

    Args:
        sync: the device's policy.
        link_bytes_s: what the sync network carries, None where it does not tell.
    """
    if link_bytes_s is None:
        ceiling_kib, fill = _UNKNOWN_CEILING_KIB, _UNKNOWN_FILL_BYTES
    else:
        # A tenth is left to headers, and to the hosts' own writes.
        ceiling_kib = link_bytes_s * 9 // 10 // _KIB
        low, high = _FILL_BOUNDS
        fill = min(high, max(low, int(link_bytes_s * _FILL_S)))
    ceiling_kib = max(sync.rate_min_kib, sync.rate_max_kib or ceiling_kib)
    return (
        # In tenths of a second.
        ("c-plan-ahead", "20"),
        ("c-fill-target", f"{fill // 512}s"),
        ("c-min-rate", f"{sync.rate_min_kib}k"),
        ("c-max-rate", f"{min(ceiling_kib, 4 << 20)}k"),
    )


# A Primary whose disk has failed serves from its peer. If that goes too, I/O waits until one of
# them is back: an error would make hosts' filesystems read-only, and no data has been lost. Where
# the cluster wants to serve the device elsewhere meanwhile, the stop that hangs on it ends in
# fencing.
_OPTIONS = (("on-no-data-accessible", "suspend-io"),)

# DRBD 9 only. Nobody but the cluster promotes: a probe that opens a standby's device must not. And
# what is written without a majority waits for it, as above, instead of failing.
_OPTIONS_9 = (("auto-promote", "no"), ("on-no-quorum", "suspend-io"))

#: While what was acknowledged may be in RAM (sanctl/agents/cache/minimum_redundancy.py).
HOLDS_TWO = ("quorum-minimum-redundancy", "2")

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


def _fencing(copies: int) -> str:
    """Return when DRBD asks the fence-peer handler about a peer that it has lost.

    Of two copies the other could be all that somebody else needs, so I/O waits for the answer. Of
    three and more a majority goes on at once and asks meanwhile; without one DRBD's quorum holds
    I/O, until the handler has an answer about each peer that is gone (docs/adr/0029). The only
    replica has nobody to ask about.
    """
    if copies == 1:
        return "dont-care"
    return "resource-only" if has_majority(copies) else "resource-and-stonith"


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
    sync: SyncPolicy,
    link_bytes_s: int | None,
    al_extents: int | None = None,
    connection: tuple[str, ...] = (),
    flushes: bool = True,
    holds_two: bool = False,
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
        handlers: folder of the fence-peer, before-resync-source and unfence-peer programs.
        generation: 8 for DRBD 8.4, 9 for DRBD 9.
        sync: how the device is synced.
        link_bytes_s: what the sync network carries, None where it does not tell.
        al_extents: the size of the activity log of a replica that runs, which DRBD does not change
            while it is used; None: the one that goes with the size.
        connection: the two nodes of the only connection there is to be, with DRBD 9; empty: each
            node with each other one.
        flushes: whether the local disk is flushed between writes that depend on each other; it
            has to be, unless each write of it is on stable storage when it ends.
        holds_two: whether three and more copies freeze I/O while fewer than two of them are
            connected and UpToDate.
    """
    fencing = ("fencing", _fencing(len(replicas)))
    net = (*_NET, fencing) if generation >= 9 else _NET
    disk = _DISK if generation >= 9 else (*_DISK, fencing)
    options: tuple[tuple[str, str], ...] = _OPTIONS
    if generation >= 9:
        options += (*_OPTIONS_9, ("quorum", "majority" if has_majority(len(replicas)) else "off"))
        if holds_two and has_majority(len(replicas)):
            options += (HOLDS_TWO,)
    ordered = sorted(replicas, key=lambda replica: replica.node_id)
    lines = [
        "# Written by sanctl when the device starts; changes are lost. `sanctl device show`.",
        f"resource {name} {{",
        "  net {",
        *(f"    {key} {value};" for key, value in net),
        # After a crash of the Primary most of what the activity log marks is the same.
        f"    csums-after-crash-only {'no' if sync.csums else 'yes'};",
        f'    shared-secret "{secret}";',
        "  }",
        "  disk {",
        *(f"    {key} {value};" for key, value in (*disk, *controller(sync, link_bytes_s))),
        f"    al-extents {al_extents or activity_log_extents(size_bytes)};",
        *(() if flushes else (_NO_FLUSHES,)),
        "  }",
        "  options {",
        *(f"    {key} {value};" for key, value in options),
        "  }",
        "  handlers {",
        f'    fence-peer "{handlers}/fence-peer";',
        # Before, on the source: a target that is not marked when its resync ends could be
        # promoted although its Primary has not heard of the end and goes on without it.
        f'    before-resync-source "{handlers}/before-resync-source";',
        f'    unfence-peer "{handlers}/unfence-peer";',
        f'    before-resync-target "{handlers}/resync-target";',
        f'    after-resync-target "{handlers}/resync-target";',
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
            lines.append(f"    node-id {number_of(replica.node_id)};")
        lines.append(f"    address {family} {host}:{port_of(minor)};")
        lines.append("  }")
    if generation >= 9 and len(ordered) > 1:
        lines += [
            "  connection-mesh {",
            f"    hosts {' '.join(connection or (replica.node for replica in ordered))};",
            "  }",
        ]
    lines.append("}")
    return "\n".join(lines) + "\n"
