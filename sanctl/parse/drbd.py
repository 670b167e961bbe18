# SPDX-License-Identifier: GPL-2.0-or-later
"""Output of `drbdsetup events2`, /proc/drbd, DRBD's debugfs and its kernel log lines, as values.

`drbdsetup events2 --now --statistics RESOURCE` prints the same keys for DRBD 8.4 and 9
(drbdsetup-8.4(8), drbdsetup-9.0(8)); `status --json` exists for 9 only. Keys that a version adds
are ignored, keys that a version lacks are unknown.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeVar

from sanctl.model.drbd import OldRequest, PeerState, ResourceState

_K = TypeVar("_K")


def _fields(words: list[str]) -> dict[str, str]:
    """Split `key:value` words; a value may hold colons, a key may not."""
    return dict(word.partition(":")[::2] for word in words if ":" in word)


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def parse_events2(text: str) -> dict[str, ResourceState]:
    """Return the resources in the output of `drbdsetup events2 --now --statistics`, by name.

    Later lines about the same object replace earlier ones, `destroy` removes the object, so that
    the output of a running `events2` gives the state at its end. Other lines are ignored.
    """
    resources: dict[str, dict[str, str]] = {}
    devices: dict[str, dict[str, str]] = {}
    peers: dict[tuple[str, str], dict[str, str]] = {}
    for line in text.splitlines():
        words = line.split()
        if words and words[0][:1].isdigit():
            words = words[1:]  # --timestamps
        if len(words) < 3 or words[0] not in {"exists", "create", "change", "destroy"}:
            continue
        event, kind = words[0], words[1]
        fields = _fields(words[2:])
        name = fields.get("name", "")
        if kind == "resource":
            _apply(resources, name, event, fields)
        elif kind == "device":
            _apply(devices, name, event, fields)
        elif kind in {"connection", "peer-device"}:
            # 8.4 knows a connection by conn-name; both lines of one peer carry it.
            key = (name, fields.get("conn-name") or fields.get("peer-node-id", ""))
            if event == "destroy" and kind == "peer-device":
                continue  # its connection's own line follows
            _apply(peers, key, event, fields)
    return {
        name: _resource(name, fields, devices.get(name, {}), peers)
        for name, fields in sorted(resources.items())
    }


def _apply(table: dict[_K, dict[str, str]], key: _K, event: str, fields: dict[str, str]) -> None:
    if event == "destroy":
        table.pop(key, None)
    else:
        table.setdefault(key, {}).update(fields)


def _resource(
    name: str,
    fields: dict[str, str],
    device: dict[str, str],
    peers: dict[tuple[str, str], dict[str, str]],
) -> ResourceState:
    return ResourceState(
        name=name,
        role=fields.get("role", "Unknown"),
        suspended=fields.get("suspended", "no"),
        disk=device.get("disk", "Diskless"),
        size_kib=_whole(device.get("size")),
        peers=tuple(
            PeerState(
                name=peer,
                connection=state.get("connection", "Unknown"),
                role=state.get("role", "Unknown"),
                replication=state.get("replication", "Off"),
                disk=state.get("peer-disk", "DUnknown"),
                out_of_sync_kib=_whole(state.get("out-of-sync")),
                resync_suspended=state.get("resync-suspended", "no"),
                received_kib=_whole(state.get("received")),
                node_id=_whole(state.get("peer-node-id")),
            )
            for (resource, peer), state in sorted(peers.items())
            if resource == name
        ),
        minor=_whole(device.get("minor")),
        has_quorum={"yes": True, "no": False}.get(device.get("quorum", "")),
        write_ordering=fields.get("write-ordering", ""),
    )


class SyncProgress(NamedTuple):
    """The progress of a resync or a verify, as the kernel counts it.

    Attributes:
        left_kib: KiB still to be sent or compared.
        total_kib: KiB to be sent or compared when it began.
    """

    left_kib: int
    total_kib: int


_MINOR = re.compile(r"^\s*(\d+): cs:")
_STATE_LINE = re.compile(r"\d+: (cs:\S+(?: ro:\S+ ds:\S+)?)")
_CONNECTION = re.compile(r"^\s*(\d+): cs:(\S+)", re.MULTILINE)
_ADVANCE = re.compile(r"\((\d+)/(\d+)\)([KM])")


def parse_state_line(text: str, minor: int) -> str:
    """Return connection, roles and disks of a device in /proc/drbd of DRBD 8.4; else empty."""
    found = _match_line(_STATE_LINE, text, minor)
    return found[1] if found else ""


def _match_line(pattern: re.Pattern[str], text: str, minor: int) -> re.Match[str] | None:
    """Match a pattern where the line of a device in /proc/drbd begins with its minor.

    The minor is no part of the pattern: each action is a process of its own, and would have to
    compile it.
    """
    head = f"{minor}: cs:"
    at = text.find(head)
    while at >= 0:
        if not text[text.rfind("\n", 0, at) + 1 : at].strip(" "):
            return pattern.match(text, at)
        at = text.find(head, at + 1)
    return None


def parse_connections(text: str) -> dict[int, str]:
    """Return the state of each device's connection in /proc/drbd of DRBD 8.4, by minor."""
    return {int(minor): state for minor, state in _CONNECTION.findall(text)}


def parse_sync_progress(text: str) -> dict[int, SyncProgress]:
    """Return the progress of resyncs and verifies, by minor, from /proc/drbd of DRBD 8.4.

    `events2` has neither the total of a resync nor the progress of a verify.
    """
    found: dict[int, SyncProgress] = {}
    minor = None
    for line in text.splitlines():
        if (head := _MINOR.match(line)) is not None:
            minor = int(head[1])
        elif minor is not None and (counts := _ADVANCE.search(line)) is not None:
            unit = 1024 if counts[3] == "M" else 1
            found[minor] = SyncProgress(int(counts[1]) * unit, int(counts[2]) * unit)
    return found


class PendingRequests(NamedTuple):
    """How many requests of one device are not completed.

    Attributes:
        hosts: requests of hosts to the device.
        disk: requests to the local disk.
        net: requests to a peer.
    """

    hosts: int
    disk: int
    net: int


_PROC_LINE = re.compile(r"\d+: (cs:.*?) *\n.*\bap:\d+ ep:\d+ wo:(\S+) oos:(\d+)$", re.MULTILINE)
#: Without a connection there is a blank in the place of the protocol.
_PROC_STATE = re.compile(
    r"\d+: cs:(\S+) ro:(\w+)/(\w+) ds:(\w+)/(\w+) . ([rs])\S* *\n.*\boos:(\d+)$",
    re.MULTILINE,
)
_STANDBY_ALONE = re.compile(r"^ *\d+: cs:\w+ ro:Secondary/Unknown ds:UpToDate/\w+ ", re.MULTILINE)
_PRIMARY_DISKLESS = re.compile(
    r"^ *\d+: cs:Connected ro:Primary/\w+ ds:(?:Diskless|Failed|Attaching)/UpToDate ",
    re.MULTILINE,
)
_BITMAP_OWNER = re.compile(r"\[(\d+)\]0x")
_WORD = re.compile(r"[\w-]{2,}")
_COUNTS = re.compile(r"\blo:(\d+) pe:(\d+) ua:\d+ ap:(\d+)")


def parse_pending_requests(text: str) -> dict[int, PendingRequests]:
    """Return the requests that are not completed, by minor, from /proc/drbd of DRBD 8.4.

    The counters are those of drbd_proc.c. A handshake holds the disk as a request does
    (drbd_receiver.c, receive_sizes); it is not counted here.
    """
    found: dict[int, PendingRequests] = {}
    minor, extra = None, 0
    for line in text.splitlines():
        if (head := _MINOR.match(line)) is not None:
            minor, extra = int(head[1]), int("cs:WFReportParams" in line)
        elif minor is not None and (counts := _COUNTS.search(line)) is not None:
            disk, net, hosts = (int(count) for count in counts.groups())
            found[minor] = PendingRequests(hosts, max(0, disk - extra), net)
    return found


class ProcLine(NamedTuple):
    """What /proc/drbd of DRBD 8.4 says of one device that is connected and does not resync.

    Attributes:
        state: connection, roles, disks, protocol and the flags of its I/O, as they stand there.
        write_ordering: how writes that depend on each other are kept in order.
        out_of_sync_kib: KiB that differ by this node's bitmap.
    """

    state: str
    write_ordering: str
    out_of_sync_kib: int


def parse_proc_line(text: str, minor: int) -> ProcLine | None:
    """Return what /proc/drbd says of a device; None where it says nothing, or more than that.

    resource-agents/client reads the same two lines (drbd_proc.c, drbd_seq_show).
    """
    found = _match_line(_PROC_LINE, text, minor)
    return None if found is None else ProcLine(found[1], found[2], int(found[3]))


class ProcState(NamedTuple):
    """What /proc/drbd of DRBD 8.4 says of one device, also while it resyncs.

    Attributes:
        connection: `Connected`, `WFConnection`, `SyncSource`, …
        role: this node's role.
        peer_role: the peer's.
        disk: the state of this node's disk.
        peer_disk: the state of the peer's.
        is_suspended: DRBD holds back the device's I/O.
        out_of_sync_kib: KiB that differ by this node's bitmap.
    """

    connection: str
    role: str
    peer_role: str
    disk: str
    peer_disk: str
    is_suspended: bool
    out_of_sync_kib: int


def parse_proc_state(text: str, minor: int) -> ProcState | None:
    """Return what /proc/drbd says of a device; None where it says nothing (drbd_seq_show)."""
    found = _match_line(_PROC_STATE, text, minor)
    if found is None:
        return None
    connection, role, peer_role, disk, peer_disk, io, differs = found.groups()
    return ProcState(connection, role, peer_role, disk, peer_disk, io == "s", int(differs))


def parse_standbys_without_peer(text: str) -> int:
    """Return how many devices of /proc/drbd could be promoted here, and have lost their peer."""
    return len(_STANDBY_ALONE.findall(text))


def parse_primaries_without_disk(text: str) -> int:
    """Return how many devices of /proc/drbd have lost their disk, and are Primary by the peer's."""
    return len(_PRIMARY_DISKLESS.findall(text))


_DIFFERS = re.compile(r"drbd(\d+)(?: (\S+))?: Out of sync: start=(\d+), size=(\d+) \(sectors\)")


def parse_blank_replicas(text: str) -> int:
    """Return how many replicas in /proc/drbd are empty, as the peers that they see are."""
    return text.count("cs:Connected ro:Secondary/Secondary ds:Inconsistent/Inconsistent ")


def parse_out_of_sync_range(line: str) -> tuple[int, str, int, int] | None:
    """Return minor, peer, first byte and length in bytes of a range that a verify found to differ.

    DRBD 8.4 leaves out the peer's name. The line is one of the kernel's log (drbd_int.h,
    ov_out_of_sync_print).
    """
    found = _DIFFERS.search(line)
    if found is None:
        return None
    return int(found[1]), found[2] or "", int(found[3]) * 512, int(found[4]) * 512


_COMPARED = re.compile(
    r"drbd(\d+)(?: (\S+))?: Online verify done (?:but (\d+) (\d+)k blocks skipped )?"
)


def parse_verify_done(line: str) -> tuple[int, str, int] | None:
    """Return minor and peer of a verify that has ended, and how many KiB it did not compare.

    DRBD 8.4 leaves out the peer's name. DRBD 9 skips blocks that are being written.

    The line is one of the kernel's log (drbd_resync_finished). DRBD writes it before the replicas
    show Established again; a verify that was interrupted has no such line.
    """
    found = _COMPARED.search(line)
    if found is None:
        return None
    return int(found[1]), found[2] or "", int(found[3] or 0) * int(found[4] or 0)


def parse_bitmap_owners(text: str) -> frozenset[int]:
    """Read whom DRBD 9 keeps bitmaps for, by node id, in debugfs' `volumes/0/data_gen_id`.

    Its second line has the generation of each as `[ID]0x...` (drbd_debugfs.c,
    device_data_gen_id_show).
    """
    return frozenset(map(int, _BITMAP_OWNER.findall(text)))


def parse_oldest_requests(text: str) -> tuple[OldRequest, ...]:
    """Read `volumes/0/oldest_requests` of DRBD's debugfs; lines of another form are ignored.

    A line has its age in milliseconds in the column that the header calls `start`, and at its end
    the state in parts, each after `local:` (twice: flags, then the disk) or `net:`
    (drbd_debugfs.c, seq_print_request_state, of 8.4 and 9).
    """
    found = []
    at = None
    for line in text.splitlines():
        columns = [column.strip() for column in line.split("\t")]
        if "start" in columns:
            at = columns.index("start")
            continue
        if at is None or len(columns) <= at or not columns[at].isdecimal():
            continue
        parts = dict.fromkeys(("local", "net"), "")
        for column in columns:
            key, colon, value = column.partition(":")
            if colon and key in parts:
                parts[key] = value
        # The flags expected of the peers come after another colon.
        local, net = parts["local"], parts["net"].partition(":")[0]
        words = {key: frozenset(_WORD.findall(value)) for key, value in
                 (("local", local), ("net", net))}  # fmt: skip
        found.append(
            OldRequest(
                age_s=int(columns[at]) / 1000,
                is_suspended="suspended" in words["local"],
                local=words["local"] - {"suspended", "in-AL", "postponed"},
                net=words["net"],
            )
        )
    return tuple(found)
