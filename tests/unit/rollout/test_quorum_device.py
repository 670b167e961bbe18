# SPDX-License-Identifier: GPL-2.0-or-later
"""No daemon of the quorum device is restarted while a node may live by its vote."""

from __future__ import annotations

import pytest

from sanctl.rollout.quorum_device import cut_off, may_restart_client


def listed(name: str, nodes: tuple[int, ...], configured: str) -> str:
    """As `corosync-qnetd-tool -lv` of corosync-qnetd 3.0 prints it."""
    parts = [f'Cluster "{name}":\n    Algorithm:\t\tFifty-Fifty split\n']
    parts += [
        f"    Node ID {node}:\n        Client address:\t\t::ffff:10.77.3.{node}:41444\n"
        f"        HB interval:\t\t8000ms\n        Configured node list:\t{configured}\n"
        f"        Membership node list:\t{node}\n        Vote:\t\t\tACK (ACK)\n"
        for node in nodes
    ]
    return "".join(parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (listed("lab", (1, 2), "1, 2"), []),
        (listed("lab", (2,), "1, 2"), ["1 of 2 nodes of lab are connected"]),
        (listed("lab", (1, 2), "1, 2") + listed("other", (3, 4, 5), "3, 4, 5"), []),
        # Another cluster on the same host loses the vote as well.
        (
            listed("lab", (1, 2), "1, 2") + listed("other", (4, 5), "3, 4, 5"),
            ["2 of 3 nodes of other are connected"],
        ),
    ],
)
def test_a_cluster_with_a_part_of_its_nodes_may_need_the_vote(
    text: str, expected: list[str]
) -> None:
    assert cut_off(text, "lab", 2) == expected


JOINED = "runtime.members.{}.status (str) = joined\n"


@pytest.mark.parametrize(
    ("status", "members", "expected"),
    [
        ("State:\t\t\tConnected\n", (1, 2), True),
        ("State:\t\t\tConnected\n", (1,), False),
        # It gives no vote that could be lost.
        ("State:\t\t\tConnect failed\n", (1,), True),
        ("", (1,), True),
    ],
)
def test_the_client_restarts_where_its_vote_is_not_needed(
    status: str, members: tuple[int, ...], expected: bool
) -> None:
    text = "".join(JOINED.format(node) for node in members)
    text += "runtime.members.9.status (str) = left\n"
    assert may_restart_client(status, text, 2) is expected
