# SPDX-License-Identifier: GPL-2.0-or-later
"""Output of corosync-quorumtool, -cfgtool and -cmapctl, and corosync.conf's quorum section."""

from __future__ import annotations

import re
from typing import NamedTuple

from sanctl.model.vote_mode import MAJORITY_OF_NODES, VoteMode, Votes

#: Of `Membership.flags`. corosync-quorumtool says it by `V` in the node's own row.
DEVICE_VOTE = "DeviceVote"
_RING = re.compile(r"[0-9a-f]+\.([0-9a-f]+)")
_LINK = re.compile(r"\s*LINK ID (\d+)")
_LINKED_PEER = re.compile(r"\s*nodeid:\s*(\d+):\s*(\S+)")
_CMAP_KEY = re.compile(r"^(\S+) \(\w+\) = (.*)$", re.MULTILINE)
_CMAP_NODE = re.compile(r"^nodelist\.node\.\d+\.name \(str\) = (\S+)$", re.MULTILINE)
_NODE_SECTION = re.compile(r"^[ \t]*node[ \t]*\{[^{}]*\}[ \t]*\n", re.MULTILINE)
_NODE_NAME = re.compile(r"^[ \t]*name:[ \t]*(\S+)[ \t]*$", re.MULTILINE)


class Membership(NamedTuple):
    """The partition that this node is in.

    Attributes:
        is_quorate: the partition has quorum.
        members: names of its nodes, as in corosync.conf.
        flags: `2Node`, `Quorate`, `WaitForAll`, `Qdevice`: a quorum device's daemon is registered,
            also while it does not reach the device; `DeviceVote`: this node has the device's vote.
        expected: expected votes, those of all nodes and the quorum device.
        total: votes that are present.
        quorum: votes that are needed for quorum.
        ring: the sequence number of the membership (`ring_seq` of quorum.h); None: not told. Each
            node keeps it on disk, and the next membership of any of these nodes has a higher one,
            as a rule by 4 (totemsrp.c, memb_state_commit_token_create).
    """

    is_quorate: bool
    members: frozenset[str]
    flags: frozenset[str] = frozenset()
    expected: int | None = None
    total: int | None = None
    quorum: int | None = None
    ring: int | None = None

    @property
    def is_two_node(self) -> bool:
        """Whether each of two nodes has quorum by itself."""
        return "2Node" in self.flags

    @property
    def has_device_vote(self) -> bool:
        """Whether the quorum device votes for this node now."""
        return DEVICE_VOTE in self.flags

    @property
    def quorums_intersect(self) -> bool:
        """Whether any two quorums have a node in common, whose CIB holds what the first noted.

        With two_node each node is a quorum by itself; and a quorum device votes, but has no CIB.
        A registered device counts, even one that gives no vote now: it may the next moment.
        """
        return not self.flags & {"2Node", "Qdevice"}


class Link(NamedTuple):
    """A corosync link from this node to another: its number, the peer's id, and its state."""

    number: int
    peer: int
    is_connected: bool


def parse_quorumtool(text: str) -> Membership:
    """Read `corosync-quorumtool -s` (corosync-quorumtool(8)).

    Text without these lines is not quorate and has no members.
    """
    quorate = False
    members: set[str] = set()
    values: dict[str, str] = {}
    columns: list[str] = []
    flags: set[str] = set()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        values.setdefault(key.strip(), value.strip())
        if key.strip() == "Quorate":
            quorate = value.strip() == "Yes"
        words = line.split()
        if words[:1] == ["Nodeid"]:
            columns = words
        elif columns and words[:1] and words[0].isdigit() and words[0] != "0":
            members.add(words[-2] if words[-1] == "(local)" else words[-1])
            # `A,V,NMW` or `A,NV,NMW`; `NR` without a daemon.
            if words[-1] == "(local)" and "V" in words[2].split(",") and "Qdevice" in columns:
                flags.add(DEVICE_VOTE)
    return Membership(
        quorate,
        frozenset(members),
        frozenset(flags.union(values.get("Flags", "").split())),
        _number(values.get("Expected votes", "")),
        _number(values.get("Total votes", "")),
        _number(values.get("Quorum", "")),
        _ring(values.get("Ring ID", "")),
    )


def _ring(text: str) -> int | None:
    """Return the sequence number out of `1.2f`: after the node's id, in hexadecimal digits."""
    found = _RING.fullmatch(text)
    return int(found[1], 16) if found else None


def parse_cfgtool(text: str) -> tuple[Link, ...]:
    """Read the links of `corosync-cfgtool -s` (corosync-cfgtool(8)), the node's own left out."""
    links: list[Link] = []
    number = -1
    for line in text.splitlines():
        link, peer = _LINK.match(line), _LINKED_PEER.match(line)
        if link:
            number = int(link[1])
        elif peer and peer[2] != "localhost":
            links.append(Link(number, int(peer[1]), peer[2] == "connected"))
    return tuple(links)


def parse_cmap_vote_mode(text: str) -> VoteMode | None:
    """Read how corosync counts out of `corosync-cmapctl quorum.` (cmap_keys(7))."""
    keys = dict(_CMAP_KEY.findall(text))
    if keys.get("quorum.provider") != "corosync_votequorum":
        return None
    return _tally(keys)


def parse_conf_vote_mode(text: str) -> VoteMode | None:
    """Read the vote mode of a corosync.conf; None if it is not one that sanctl writes."""
    try:
        start, end = section_span(text, "quorum")
    except ValueError:
        return None
    keys: dict[str, str] = {}
    path: list[str] = []
    for line in text[start:end].splitlines():
        content = line.strip()
        if content.startswith("#") or not content:
            continue
        if content.endswith("{"):
            path.append(content[:-1].strip())
        elif content == "}":
            path.pop()
        else:
            key, _, value = content.partition(":")
            keys[".".join([*path, key.strip()])] = value.strip()
    if keys.get("quorum.provider") != "corosync_votequorum":
        return None
    return _tally(keys)


def _tally(keys: dict[str, str]) -> VoteMode | None:
    is_two_node = keys.get("quorum.two_node", "0") != "0"
    if "quorum.device.model" not in keys:
        return VoteMode(votes=Votes.TWO_NODE) if is_two_node else MAJORITY_OF_NODES
    host = keys.get("quorum.device.net.host", "")
    if is_two_node or not host:
        return None
    return VoteMode(votes=Votes.QDEVICE, host=host)


def section_span(text: str, name: str) -> tuple[int, int]:
    """Return the start and end offset of a top-level section of a corosync.conf.

    Raises:
        ValueError: there is no such section, more than one, or the section does not end.
    """
    found: list[tuple[int, int]] = []
    depth, position, begin = 0, 0, -1
    for line in text.splitlines(keepends=True):
        content = line.strip()
        if not content.startswith("#"):
            if content.endswith("{"):
                if depth == 0 and content[:-1].strip() == name:
                    begin = position
                depth += 1
            elif content == "}":
                depth -= 1
                if depth == 0 and begin >= 0:
                    found.append((begin, position + len(line)))
                    begin = -1
        position += len(line)
    if len(found) != 1:
        raise ValueError(f"{len(found)} sections {name}")
    return found[0]


def member_span(text: str, name: str) -> tuple[int, int] | None:
    """Return the start and end offset of a node's section in a corosync.conf; None without one.

    Raises:
        ValueError: there is no list of nodes, or the node is in it twice.
    """
    begin, end = section_span(text, "nodelist")
    found = [
        (begin + node.start(), begin + node.end())
        for node in _NODE_SECTION.finditer(text[begin:end])
        if name in _NODE_NAME.findall(node[0])
    ]
    if len(found) > 1:
        raise ValueError(f"{len(found)} nodes {name}")
    return found[0] if found else None


def parse_conf_members(text: str) -> frozenset[str]:
    """Read the names of all nodes in a corosync.conf; none if its list is not one of sanctl's."""
    try:
        begin, end = section_span(text, "nodelist")
    except ValueError:
        return frozenset()
    return frozenset(_NODE_NAME.findall(text[begin:end]))


def parse_cmap_members(text: str) -> frozenset[str]:
    """Read the names of all nodes out of `corosync-cmapctl nodelist.` (cmap_keys(7))."""
    return frozenset(_CMAP_NODE.findall(text))


def _number(text: str) -> int | None:
    word = text.split()[:1]
    return int(word[0]) if word and word[0].isdigit() else None
