"""Text of corosync's own tools to values."""

from __future__ import annotations

from typing import NamedTuple


class Membership(NamedTuple):
    """What corosync says of the partition this node is in.

    Attributes:
        is_quorate: this partition has quorum.
        members: names of the nodes in it, as corosync.conf names them.
    """

    is_quorate: bool
    members: frozenset[str]


def parse_quorumtool(text: str) -> Membership:
    """Read `corosync-quorumtool -s` (corosync-quorumtool(8)).

    Text that does not say so is not quorate and has no members.
    """
    quorate = False
    members: set[str] = set()
    in_table = False
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "Quorate":
            quorate = value.strip() == "Yes"
        words = line.split()
        if words[:1] == ["Nodeid"]:
            in_table = True
        elif in_table and words[:1] and words[0].isdigit():
            members.add(words[-2] if words[-1] == "(local)" else words[-1])
    return Membership(quorate, frozenset(members))
