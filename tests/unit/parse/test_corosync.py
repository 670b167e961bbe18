# SPDX-License-Identifier: GPL-2.0-or-later
"""What corosync's tools print (3.1.9, captured from two nodes and a quorum device)."""

from __future__ import annotations

import pytest

from sanctl.model.vote_mode import MAJORITY_OF_NODES, VoteMode, Votes
from sanctl.parse.corosync import (
    Link,
    parse_cfgtool,
    parse_cmap_vote_mode,
    parse_conf_vote_mode,
    parse_quorumtool,
    section_span,
)
from sanctl.render.corosync import quorum_section

TWO = VoteMode(votes=Votes.TWO_NODE)
DEVICE = VoteMode(votes=Votes.QDEVICE, host="10.77.3.100")

QDEVICE_STATUS = """\
Quorum information
------------------
Date:             Sat Nov 21 05:27:01 2026
Quorum provider:  corosync_votequorum
Nodes:            2
Node ID:          1
Ring ID:          1.16
Quorate:          Yes

Votequorum information
----------------------
Expected votes:   3
Highest expected: 3
Total votes:      3
Quorum:           2  
Flags:            Quorate Qdevice 

Membership information
----------------------
    Nodeid      Votes    Qdevice Name
         1          1    A,V,NMW n1 (local)
         2          1    A,V,NMW n2
         0          1            Qdevice
"""  # noqa: W291 - as corosync prints it

CFGTOOL = """\
Local node ID 1, transport knet
LINK ID 0 udp
\taddr\t= 10.77.3.1
\tstatus:
\t\tnodeid:          1:\tlocalhost
\t\tnodeid:          2:\tconnected
LINK ID 1 udp
\taddr\t= 10.77.2.1
\tstatus:
\t\tnodeid:          1:\tlocalhost
\t\tnodeid:          2:\tdisconnected
"""

CMAP_DEVICE = """\
quorum.device.model (str) = net
quorum.device.net.algorithm (str) = ffsplit
quorum.device.net.host (str) = 10.77.3.100
quorum.device.net.tls (str) = required
quorum.device.votes (u32) = 1
quorum.provider (str) = corosync_votequorum
"""
CMAP_TWO = """\
quorum.provider (str) = corosync_votequorum
quorum.two_node (u8) = 1
quorum.wait_for_all (u8) = 1
"""


def test_votes_with_a_device() -> None:
    found = parse_quorumtool(QDEVICE_STATUS)
    assert found.is_quorate
    assert found.members == {"n1", "n2"}
    assert (found.expected, found.total, found.quorum) == (3, 3, 2)
    assert found.flags == {"Quorate", "Qdevice"}
    assert not found.is_two_node


def test_two_node_is_told_by_a_flag() -> None:
    text = QDEVICE_STATUS.replace("Quorate Qdevice", "2Node Quorate WaitForAll")
    assert parse_quorumtool(text).is_two_node


def test_nothing_said_is_nothing_known() -> None:
    found = parse_quorumtool("Cannot initialize QUORUM service")
    assert not found.is_quorate
    assert (found.members, found.flags, found.expected) == (frozenset(), frozenset(), None)
    assert parse_cfgtool("Could not initialize") == ()
    assert parse_cmap_vote_mode("") is None


def test_links() -> None:
    assert parse_cfgtool(CFGTOOL) == (Link(0, 2, True), Link(1, 2, False))


def test_how_the_running_corosync_counts() -> None:
    assert parse_cmap_vote_mode(CMAP_DEVICE) == DEVICE
    assert parse_cmap_vote_mode(CMAP_TWO) == TWO
    assert (
        parse_cmap_vote_mode("quorum.provider (str) = corosync_votequorum\n") == MAJORITY_OF_NODES
    )
    # Half of either is neither.
    assert parse_cmap_vote_mode(CMAP_DEVICE + CMAP_TWO) is None
    assert parse_cmap_vote_mode(CMAP_DEVICE.replace("net.host", "net.other")) is None


@pytest.mark.parametrize("tally", [MAJORITY_OF_NODES, TWO, DEVICE])
def test_what_is_written_reads_back_and_leaves_the_rest(tally: VoteMode) -> None:
    before, after = "# quorum {\ntotem {\n    quorum {\n    }\n}\n", "logging {\n}\n"
    text = before + quorum_section(tally) + after
    assert parse_conf_vote_mode(text) == tally
    start, end = section_span(text, "quorum")
    assert (text[:start], text[end:]) == (before, after)


@pytest.mark.parametrize(
    "text", ["", "quorum {\n", "quorum {\n}\n", "quorum {\n}\nquorum {\n}\n", "totem {\n}\n"]
)
def test_what_is_no_section_of_ours(text: str) -> None:
    assert parse_conf_vote_mode(text) is None
