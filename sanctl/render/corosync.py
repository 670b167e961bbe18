# SPDX-License-Identifier: GPL-2.0-or-later
"""The `quorum` section of corosync.conf for each vote mode (corosync.conf(5))."""

from __future__ import annotations

from typing import assert_never

from sanctl.model.vote_mode import VoteMode, Votes

# The heartbeat interval of corosync-qdevice to corosync, and at 0.8 of it to qnetd; qnetd takes a
# node for dead after 1.5 of that. With the default of 10 s a failover would wait 12 s until qnetd
# withdraws the dead node's vote. In milliseconds; 1250 is the least that is accepted.
_QDEVICE_TIMEOUT_MS = 2000
# How long a new membership waits for the device's vote before it goes on without that vote.
_QDEVICE_SYNC_TIMEOUT_MS = 8000


def quorum_section(tally: VoteMode) -> str:
    """Return the section `quorum` of a corosync.conf."""
    lines = ["quorum {"]
    match tally.votes:
        case Votes.NODES:
            lines += ["    # A majority of the nodes listed above, the witness included."]
        case Votes.TWO_NODE:
            lines += [
                "    # Each of the two is enough by itself; fencing decides between them. After a",
                "    # start they first have to see each other.",
                "    two_node: 1",
                "    wait_for_all: 1",
            ]
        case Votes.QDEVICE:
            lines += ["    # A majority of the nodes' votes and the device's."]
        case _:
            assert_never(tally.votes)
    lines += ["    provider: corosync_votequorum"]
    if tally.votes is Votes.QDEVICE:
        lines += [
            "    device {",
            "        model: net",
            "        votes: 1",
            f"        timeout: {_QDEVICE_TIMEOUT_MS}",
            f"        sync_timeout: {_QDEVICE_SYNC_TIMEOUT_MS}",
            "        net {",
            f"            host: {tally.host}",
            "            # One vote for the one part with half of the nodes, or for the one that",
            "            # qnetd sees more of. The other algorithm (lms) would leave a single node",
            "            # of many to go on alone.",
            "            algorithm: ffsplit",
            "            tls: required",
            "        }",
            "    }",
        ]
    return "\n".join([*lines, "}"]) + "\n"
