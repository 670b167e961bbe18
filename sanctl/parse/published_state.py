# SPDX-License-Identifier: GPL-2.0-or-later
"""What agents publish as node attributes of a replica and of a pool: `disk=UpToDate role=Primary`.

Written by sanctl/agents of this release or of one beside it, so a field that is missing or that
cannot be read is unknown, and one that is new is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

from sanctl.model.admission import HELD_KEY, LET_IN_KEY, parse_held, parse_run
from sanctl.model.answered_monitors import KEY as ANSWERED_KEY
from sanctl.model.answered_monitors import parse_answered
from sanctl.model.clock_offset import parse_offsets
from sanctl.model.device import PeerLink, PoolUsage, ReplicaState
from sanctl.model.device_restore import OLDER_KEY, UNNOTED_KEY, parse_packed
from sanctl.model.disk_drops import KEY as DROPS_KEY
from sanctl.model.disk_drops import parse_drops
from sanctl.model.hung_io import KEY as HUNG_KEY
from sanctl.model.hung_io import parse_hung
from sanctl.model.lost_link import parse_links
from sanctl.model.packed_states import unpack
from sanctl.model.pool_cache import parse_cache_state
from sanctl.model.release_needs import LACKS_KEY, parse_lacks
from sanctl.model.resync_record import ResyncRecord

_WITHHELD = {"1": True, "0": False}


def parse_pairs(text: str) -> dict[str, str]:
    """Split `a=1 b=2` as the agents publish it; a word without '=' is left out."""
    return {
        key: value
        for word in text.split()
        for key, sign, value in (word.partition("="),)
        if key and sign
    }


def parse_replica_state(text: str) -> ReplicaState:
    """Read the state of one replica; a field that is missing or malformed is unknown."""
    pairs = parse_pairs(text)
    links = _links(pairs)
    worst = _worst(links)
    held = parse_held(pairs.get(HELD_KEY, ""))
    return ReplicaState(
        disk=_known(pairs.get("disk")),
        connection=worst.connection if worst else _known(pairs.get("connection")),
        replication=worst.replication if worst else _known(pairs.get("replication")),
        peer_disk=worst.disk if worst else _known(pairs.get("peer-disk")),
        out_of_sync_kib=_number(pairs.get("out-of-sync")),
        role=_known(pairs.get("role")),
        size_bytes=_number(pairs.get("size")),
        file_bytes=_number(pairs.get("file")),
        access=_known(pairs.get("acl")),
        suspended=_known(pairs.get("suspended")),
        policy=_policy(pairs.get("policy")),
        resync=ResyncRecord.parse(pairs.get("resync", "")),
        disconnected_since_s=_number(pairs.get("apart")),
        generations=_known(pairs.get("gi")),
        bitmaps=_bitmaps(pairs.get("bitmaps", "")),
        peers=links,
        cache=_known(pairs.get("cache")),
        cache_reason=_known(pairs.get("cache-why")),
        dirty_bytes=_number(pairs.get("dirty")),
        dirty_limit_bytes=_number(pairs.get("limit")),
        dirty_node_limit_bytes=_number(pairs.get("node-limit")),
        flush_s=_number(pairs.get("flush-s")),
        read_bytes=_number(pairs.get("read")),
        read_reason=_known(pairs.get("read-why")),
        read_held_bytes=_number(pairs.get("read-held")),
        read_hit_percent=_number(pairs.get("read-hit")),
        was_last_primary=pairs.get("last") == "1",
        is_suspect=pairs.get("suspect") == "1",
        is_settling=pairs.get("unflushed") == "1",
        is_unflushed_resync="resync" in _causes(pairs),
        is_unflushed_cache="cache" in _causes(pairs),
        is_let_in=bool(pairs.get(LET_IN_KEY)),
        held_run=held[0] if held else None,
        held_why=held[1] if held else None,
        is_withheld=_WITHHELD.get(pairs.get("withheld", "")),
        change_waits_for=_known(pairs.get("change-waits")) or "",
        waits_for_standby=_known(pairs.get("standby-first")) or "",
        waits_to_connect_since_s=_number(pairs.get("connects-later")),
        answered=parse_answered(pairs.get(ANSWERED_KEY, "")),
        hung=parse_hung(pairs.get(HUNG_KEY, "")),
        drops=parse_drops(pairs.get(DROPS_KEY, "")),
        lacks=parse_lacks(pairs.get(LACKS_KEY, "")),
        is_cib_older=OLDER_KEY in pairs,
        is_hold_unnoted=UNNOTED_KEY in pairs,
        noted_hold=parse_packed(pairs.get(OLDER_KEY, "")),
        secrets_digest=pairs.get("secrets", ""),
        hosts_without_secret=tuple(filter(None, pairs.get("no-secret", "").split(","))),
    )


def parse_replicas(packed: Mapping[str, str]) -> dict[tuple[str, str], ReplicaState]:
    """Return the states of all replicas by device and node, from each node's packed value."""
    return {
        (name, node): parse_replica_state(state)
        for node, text in packed.items()
        for name, state in unpack(text).items()
    }


def _causes(pairs: Mapping[str, str]) -> list[str]:
    """Return why a replica is suspect; none for one that is not."""
    is_suspect = pairs.get("suspect") == "1"
    return pairs.get("suspect-of", "cache").split(",") if is_suspect else []


def _bitmaps(text: str) -> tuple[tuple[str, str], ...]:
    found = (word.partition(":") for word in text.split(",") if word)
    return tuple((peer, generation) for peer, _, generation in found)


def _links(pairs: dict[str, str]) -> tuple[PeerLink, ...]:
    """Return the peers that an agent names; the other fields list values in the same order."""
    names = pairs.get("peers", "").split(",") if pairs.get("peers") else []
    columns = [
        (pairs.get(key, "").split(",") + [""] * len(names))[: len(names)]
        for key in ("connection", "replication", "peer-disk")
    ]
    return tuple(
        PeerLink(
            node=name,
            connection=_known(connection),
            replication=_known(replication),
            disk=_known(disk),
        )
        for name, connection, replication, disk in zip(names, *columns, strict=True)
    )


def _worst(links: tuple[PeerLink, ...]) -> PeerLink | None:
    """Return the peer in the worst state: one that is disconnected, else one not UpToDate."""
    return min(links, key=lambda link: (link.is_connected, link.is_in_sync), default=None)


def parse_pool_usage(text: str) -> PoolUsage:
    """Read the node attribute `sanctl-pool-POOL`."""
    if text.startswith("error="):
        return PoolUsage(error=text.removeprefix("error=").strip() or "unknown")
    pairs = parse_pairs(text)
    total, free = _number(pairs.get("total")), _number(pairs.get("free"))
    if total is None or free is None:
        return PoolUsage(error=f"cannot read {text!r}")
    return PoolUsage(
        total_bytes=total,
        free_bytes=free,
        allocated_bytes=_number(pairs.get("allocated")),
        daily_growth_bytes=_number(pairs.get("daily")),
        makes_clones=pairs.get("clones") == "1",
        holds_run=parse_run(pairs.get("holds")),
        keeps_reservations=pairs.get("reservations") == "1",
        follows_guests=pairs.get("follow") == "1",
        release=_known(pairs.get("release")),
        sbd=_known(pairs.get("sbd")),
        cache=parse_cache_state(pairs),
        # No node has none of either: 0 is as unknown as a word.
        memory_bytes=_number(pairs.get("memory")) or None,
        bitmaps=_number(pairs.get("bitmaps")) or None,
        largest_file_bytes=_number(pairs.get("largest-file")) or None,
        is_cib_unwritten=pairs.get("cib") == "unwritten",
        own_disk_free_bytes=_number(pairs.get("own-disk")),
        topology_digest=pairs.get("toml", ""),
        secret_digest=pairs.get("drbd-secret", ""),
        run_free_bytes=_number(pairs.get("run-free")),
        is_reservations_service_down=pairs.get("pr-service") == "down",
        lost_links=parse_links(pairs.get("links-down", "")),
        clock_offsets=tuple(parse_offsets(pairs.get("clock-off", "")).items()),
    )


def _policy(text: str | None) -> str | None:
    return None if text is None else "" if text == "default" else text.replace("+", " ")


def _known(text: str | None) -> str | None:
    return None if text is None or text in {"", "?", "Unknown", "DUnknown"} else text


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None
