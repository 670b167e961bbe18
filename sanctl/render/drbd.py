# SPDX-License-Identifier: GPL-2.0-or-later
"""Text of a device's DRBD resource file: net, disk, resync rates, handlers, quorum; 8.4 and 9.

Every number that differs from DRBD's default is set on purpose; the reason is beside it here and,
in short, in the file that is written. Where an option is in another section in one of the two
versions, or exists in one only, the tables below say so.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

from sanctl.model.drbd import PORT_BASE, uses_quorum
from sanctl.model.sync_policy import SyncPolicy


class ReplicaAddress(NamedTuple):
    """The address of one replica.

    Attributes:
        node: the node's name as `uname -n` prints it.
        node_id: the node's id in cluster.toml (1-32); DRBD 9 wants 0-31, so it gets one less.
        address: its IPv4 or IPv6 address on the sync network.
    """

    node: str
    node_id: int
    address: str


class BackingDevices(NamedTuple):
    """The block devices below the local replica: `/dev/loopN` of the data and metadata files."""

    data: str
    metadata: str


def device_secret(cluster_secret: str, uuid: str) -> str:
    """Return a device's own DRBD secret: 32 hex digits, within DRBD's limit of 64 characters.

    Derived, so that it never has to be stored or sent, and one device's secret reveals nothing
    about another's.
    """
    return hmac.new(cluster_secret.encode(), uuid.encode(), hashlib.sha256).hexdigest()[:32]


def port_of(minor: int) -> int:
    """Return the TCP port of DRBD's connections for the device with this minor."""
    return PORT_BASE + minor


def drbd_node_id(node_id: int) -> int:
    """Return DRBD 9's node id of the node with this id in cluster.toml."""
    return node_id - 1


# A Primary notices a dead peer after ping-int + ping-timeout, 2.8 s; a standby after up to ping-int
# more (drbd_receiver.c, drbd_ack_receiver: what came on the other socket since it last looked is a
# sign of life). That has to be less than Corosync's token and fencing take together (about 5 s), so
# that a takeover never waits for DRBD; a shorter ping-timeout makes a busy node look dead. The
# timeout must stay below ping-int. ko-count x timeout bounds the wait for a peer with a hanging
# disk: 14 x 0.9 s instead of 42 s.
_NET = (
    ("protocol", "C"),
    ("cram-hmac-alg", "sha256"),
    ("timeout", "9"),
    ("ping-int", "1"),
    ("ping-timeout", "18"),
    ("connect-int", "2"),
    # A new connection is watched for so long before it is used: DRBD would wait for ping-timeout,
    # with each connection of each replica. The round trip of a storage network is far shorter.
    ("socket-check-timeout", "5"),
    ("ko-count", "14"),
    # Diverged replicas are an operator's decision: none is discarded automatically.
    ("after-sb-0pri", "disconnect"),
    ("after-sb-1pri", "disconnect"),
    ("after-sb-2pri", "disconnect"),
    ("rr-conflict", "disconnect"),
    ("max-buffers", "8000"),
    ("max-epoch-size", "8000"),
    ("verify-alg", "crc32c"),
    # The same for every device at all times: nodes whose algorithms differ when they connect refuse
    # each other for good (drbd_receiver.c, receive_SyncParam). Whether checksums are used is
    # another option, which may differ and may change during a resync. The digest is long enough
    # that a block which differs is never taken for the same.
    ("csums-alg", "sha256"),
)

# DRBD detaches from a failing disk and uses the peer's. Ranges that are all zero are discarded on
# the resync's target instead of written, so that a resync leaves a device file as sparse as its
# source; 64 KiB is a multiple of the hole size of all filesystems under a loop device.
_DISK = (
    ("on-io-error", "detach"),
    ("rs-discard-granularity", "65536"),
)

# With this line DRBD drains the local disk, and does not flush it. Draining keeps the order of
# writes, without which DRBD 8.4 acknowledges epochs in any order (drbd_receiver.c).
_NO_FLUSHES = "    disk-flushes no;"

_KIB = 1 << 10
_MIB = 1 << 20
# Where the link's speed is not known (bonds of some drivers, virtual machines): right for 1-10
# Gbit/s; on a slower link the controller finds the rate by itself.
_UNKNOWN_CEILING_KIB = 700 << 10
_UNKNOWN_FILL_BYTES = _MIB
# A host's write may have to queue behind the data that a resync keeps in flight. Five milliseconds
# of the link's speed are enough to fill the link at every round trip of a storage network.
_FILL_S = 0.005
_FILL_BOUNDS = (512 * _KIB, 8 * _MIB)


def resync_controller(sync: SyncPolicy, link_bytes_s: int | None) -> tuple[tuple[str, str], ...]:
    """Return the options of DRBD's resync controller for a policy and a network.

    The controller keeps `c-fill-target` in flight and stays below `c-max-rate`; while hosts read
    and write, a source that serves them gives the resync no more than `c-min-rate`. DRBD's own
    defaults (100 MiB/s, 250 KiB/s) suit neither a fast network nor a busy device.

    The speed of the sync network is None where it is not known.
    """
    if link_bytes_s is None:
        ceiling_kib, fill = _UNKNOWN_CEILING_KIB, _UNKNOWN_FILL_BYTES
    else:
        # A tenth is left for headers, and for the hosts' own writes.
        ceiling_kib = link_bytes_s * 9 // 10 // _KIB
        low, high = _FILL_BOUNDS
        fill = min(high, max(low, int(link_bytes_s * _FILL_S)))
    ceiling_kib = max(sync.rate_min_kib_s, sync.rate_max_kib_s or ceiling_kib)
    return (
        # In tenths of a second.
        ("c-plan-ahead", "20"),
        ("c-fill-target", f"{fill // 512}s"),
        ("c-min-rate", f"{sync.rate_min_kib_s}k"),
        ("c-max-rate", f"{min(ceiling_kib, 4 << 20)}k"),
    )


# A Primary whose disk has failed serves from its peer. If the peer is lost too, I/O waits until one
# of the disks is back: an error would make hosts' filesystems read-only, and no data has been lost.
# Where the cluster is to serve the device elsewhere meanwhile, the stop hangs on that I/O and ends
# in fencing.
_OPTIONS = (("on-no-data-accessible", "suspend-io"),)

# DRBD 9 only. Only the cluster promotes: a program that opens a standby's device must not. And a
# write without a majority waits for the majority, as above, instead of failing.
_OPTIONS_9 = (("auto-promote", "no"), ("on-no-quorum", "suspend-io"))

#: While acknowledged writes may be in RAM alone (sanctl/agents/cache/minimum_redundancy.py).
REQUIRE_TWO = ("quorum-minimum-redundancy", "2")

_GIB = 1 << 30


def activity_log_extents(size_bytes: int) -> int:
    """Return how many 4 MiB extents may be written to without a metadata update.

    After a crash all of them are compared again (drbd.conf(5), al-extents), so their number bounds
    the resync of a returning node: 1 GiB, or DRBD's default of 4.8 GiB. With fewer extents more
    writes need a metadata write first, above all on a large device.

    Not DRBD's least, 67. A transaction of the log exchanges up to 64 extents, and is to find what
    was written to those on stable storage: DRBD relies on the flush that goes before it
    (drbd_actlog.c). Here that is a flush of the metadata's own file, which commits nothing of the
    data file while the metadata's is clean; what the transaction itself changes does that, a moment
    after the log has lost the extent. A power cut in between would leave blocks that read as zeros
    (reserved ones, docs/adr/0047), and that neither the log nor a bitmap names. Of 257 extents one
    that was just written to leaves only after further transactions, the first of which has
    committed it.
    """
    if size_bytes <= 512 * _GIB:
        return 257
    return 1237


def _fencing(replica_count: int) -> str:
    """Return DRBD's `fencing` option: how the fence-peer handler is called about a lost peer.

    With two replicas the peer alone could be promoted elsewhere, so I/O waits for the handler. With
    three and more a majority goes on at once while the handler runs; without a majority DRBD's
    quorum holds I/O, until the handler has an answer about each peer that is gone (docs/adr/0029).
    A single replica has no peer to ask about.
    """
    if replica_count == 1:
        return "dont-care"
    return "resource-only" if uses_quorum(replica_count) else "resource-and-stonith"


def render_resource(
    *,
    name: str,
    minor: int,
    size_bytes: int,
    secret: str,
    replicas: tuple[ReplicaAddress, ...],
    backing: BackingDevices,
    handlers: str,
    generation: int,
    sync: SyncPolicy,
    link_bytes_s: int | None,
    al_extents: int | None = None,
    connection: tuple[str, ...] = (),
    has_disk_flushes: bool = True,
    requires_two: bool = False,
) -> str:
    """Return the text of a device's resource file, NAME.res (drbd.conf(5)).

    Args:
        name: the device's name, which is the resource's.
        minor: DRBD minor; also gives the port.
        size_bytes: the device's size.
        secret: the shared secret of the device; the file must be 0600.
        replicas: the replicas, in any order; rendered by node id.
        backing: the loop devices of this node. The same paths are written for every node: a node
            reads only its own section.
        handlers: folder of the fence-peer, before-resync-source and unfence-peer programs.
        generation: 8 for DRBD 8.4, 9 for DRBD 9.
        sync: how the device is synced.
        link_bytes_s: the speed of the sync network, None where it is not known.
        al_extents: the size of the activity log of a replica that runs, which DRBD does not change
            while it is used; None: the default for the device's size.
        connection: the two nodes of the only wanted connection, with DRBD 9; empty: each node with
            each other one.
        has_disk_flushes: whether DRBD flushes the local disk between writes that depend on each
            other; it has to, unless each write is on stable storage when it ends.
        requires_two: whether three and more replicas freeze I/O while fewer than two of them are
            connected and UpToDate.
    """
    fencing = ("fencing", _fencing(len(replicas)))
    net = (*_NET, fencing) if generation >= 9 else _NET
    disk = _DISK if generation >= 9 else (*_DISK, fencing)
    options: tuple[tuple[str, str], ...] = _OPTIONS
    if generation >= 9:
        options += (*_OPTIONS_9, ("quorum", "majority" if uses_quorum(len(replicas)) else "off"))
        if requires_two and uses_quorum(len(replicas)):
            options += (REQUIRE_TWO,)
    ordered = sorted(replicas, key=lambda replica: replica.node_id)
    lines = [
        "# Written by sanctl when the device starts; changes are lost. `sanctl device show`.",
        f"resource {name} {{",
        "  net {",
        *(f"    {key} {value};" for key, value in net),
        # After a crash of the Primary most blocks that the activity log marks are the same.
        f"    csums-after-crash-only {'no' if sync.csums else 'yes'};",
        f'    shared-secret "{secret}";',
        "  }",
        "  disk {",
        *(f"    {key} {value};" for key, value in (*disk, *resync_controller(sync, link_bytes_s))),
        f"    al-extents {al_extents or activity_log_extents(size_bytes)};",
        *(() if has_disk_flushes else (_NO_FLUSHES,)),
        "  }",
        "  options {",
        *(f"    {key} {value};" for key, value in options),
        "  }",
        "  handlers {",
        f'    fence-peer "{handlers}/fence-peer";',
        # Before, on the source: a target that is not marked when its resync ends could be promoted
        # although its Primary has not noticed the end and goes on without the target.
        f'    before-resync-source "{handlers}/before-resync-source";',
        f'    unfence-peer "{handlers}/unfence-peer";',
        f'    before-resync-target "{handlers}/resync-target before";',
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
            lines.append(f"    node-id {drbd_node_id(replica.node_id)};")
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
