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
    assert found.ring == 0x16
    assert found.flags == {"Quorate", "Qdevice", "DeviceVote"}
    assert found.has_device_vote
    assert not found.is_two_node


@pytest.mark.parametrize("own", ["A,NV,NMW", "NA,NV,NMW", "NR"])
def test_a_registered_device_that_does_not_vote_for_this_node(own: str) -> None:
    """As while corosync-qnetd is dead: the daemon stays registered and connects again and again."""
    text = QDEVICE_STATUS.replace("A,V,NMW n1 (local)", f"{own} n1 (local)")
    text = text.replace("         0          1            Qdevice\n",
                        "         0          0            Qdevice (votes 1)\n")  # fmt: skip
    found = parse_quorumtool(text)
    assert found.flags == {"Quorate", "Qdevice"}
    assert not found.has_device_vote
    assert not found.quorums_intersect, "its vote may come back at any moment"
    assert found.members == {"n1", "n2"}


def test_without_a_device_there_is_no_such_column() -> None:
    text = "Quorate: Yes\nFlags: Quorate\nNodeid Votes Name\n1 1 V (local)\n"
    assert not parse_quorumtool(text).has_device_vote


def test_two_node_is_a_flag() -> None:
    text = QDEVICE_STATUS.replace("Quorate Qdevice", "2Node Quorate WaitForAll")
    assert parse_quorumtool(text).is_two_node


def test_empty_output_is_unknown() -> None:
    found = parse_quorumtool("Cannot initialize QUORUM service")
    assert not found.is_quorate
    assert (found.members, found.flags, found.expected) == (frozenset(), frozenset(), None)
    assert found.ring is None
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
def test_the_quorum_section_reads_back_and_the_rest_stays(tally: VoteMode) -> None:
    before, after = "# quorum {\ntotem {\n    quorum {\n    }\n}\n", "logging {\n}\n"
    text = before + quorum_section(tally) + after
    assert parse_conf_vote_mode(text) == tally
    start, end = section_span(text, "quorum")
    assert (text[:start], text[end:]) == (before, after)


@pytest.mark.parametrize(
    "text", ["", "quorum {\n", "quorum {\n}\n", "quorum {\n}\nquorum {\n}\n", "totem {\n}\n"]
)
def test_other_quorum_sections_are_unknown(text: str) -> None:
    assert parse_conf_vote_mode(text) is None
