# SPDX-License-Identifier: GPL-2.0-or-later
"""What the rollout must not change under a cluster that runs, and what it has to load again."""

from __future__ import annotations

from typing import Any

import pytest

from sanctl.model.vote_mode import MAJORITY_OF_NODES, VoteMode, Votes
from sanctl.rollout import running_cluster as running

NODES: list[dict[str, Any]] = [
    {"name": f"n{id}", "id": id, "heartbeat": f"10.77.3.{id}", "sync": f"10.77.2.{id}"}
    for id in (1, 2, 3)
]


def conf(nodes: list[dict[str, Any]], cluster: str = "lab", token_ms: int = 1500) -> str:
    """As corosync.conf.j2 has it."""
    blocks = "".join(
        f"    node {{\n        name: {node['name']}\n        nodeid: {node['id']}\n"
        f"        ring0_addr: {node['heartbeat']}\n        ring1_addr: {node['sync']}\n    }}\n"
        for node in nodes
    )
    return (
        f"totem {{\n    cluster_name: {cluster}\n    token: {token_ms}\n    token_coefficient: 0\n"
        f"    consensus: 1800\n}}\n\n"
        f"nodelist {{\n{blocks}}}\n"
    )


def cmap(nodes: list[dict[str, Any]], cluster: str = "lab", token_ms: int = 1500) -> str:
    """As corosync-cmapctl of Corosync 3.1 prints it."""
    lines = [
        f"nodelist.node.{place}.{key} ({kind}) = {value}"
        for place, node in enumerate(nodes)
        for key, kind, value in (
            ("name", "str", node["name"]),
            ("nodeid", "u32", node["id"]),
            ("ring0_addr", "str", node["heartbeat"]),
            ("ring1_addr", "str", node["sync"]),
        )
    ]
    lines += [
        "runtime.config.totem.token (u32) = 1500",
        f"totem.cluster_name (str) = {cluster}",
        "totem.consensus (u32) = 1800",
        f"totem.token (u32) = {token_ms}",
    ]
    return "\n".join(lines) + "\n"


TIMES = {"token": 1500, "token_coefficient": 0, "consensus": 1800}
MOVED = [*NODES[:1], {**NODES[1], "sync": "10.77.2.9"}, NODES[2]]
RENUMBERED = [*NODES[:2], {**NODES[2], "id": 4}]


@pytest.mark.parametrize(
    ("conf_text", "cmap_text", "expected"),
    [
        (conf(NODES), cmap(NODES), []),
        # A first install, and a node whose Corosync does not run.
        ("", "", []),
        (conf(NODES), "", []),
        (conf(NODES, "another"), cmap(NODES, "another"), []),
        (conf(NODES[:2]), cmap(NODES[:2]), ["n3 is new"]),
        # An earlier run wrote the file here, and not on the others.
        (conf(NODES), cmap(NODES[:2]), ["n3 is new"]),
        (conf(NODES[:2]), "", ["n3 is new"]),
        (conf([*NODES, {**NODES[0], "name": "n4"}]), "", ["n4 is left out"]),
        (conf(MOVED), "", ["n2 has another id or address"]),
        # Other times, in the file, in what has been loaded, or in both.
        (conf(NODES, token_ms=5000), "", ["token is 5000 and becomes 1500"]),
        (conf(NODES), cmap(NODES, token_ms=5000), ["token is 5000 and becomes 1500"]),
        (
            conf(NODES, token_ms=5000),
            cmap(NODES, token_ms=3000),
            ["token is 3000 and becomes 1500", "token is 5000 and becomes 1500"],
        ),
        (conf(NODES, "another", token_ms=5000), cmap(NODES, "another", token_ms=5000), []),
        (
            conf(NODES).replace("    token_coefficient: 0\n", ""),
            cmap(NODES),
            ["token_coefficient is not set and becomes 0"],
        ),
        (
            conf(NODES),
            cmap(NODES) + "totem.token_coefficient (u32) = 650\n",
            ["token_coefficient is 650 and becomes 0"],
        ),
    ],
)
def test_another_list_of_nodes_is_named(
    conf_text: str, cmap_text: str, expected: list[str]
) -> None:
    assert running.list_changes(conf_text, cmap_text, "lab", NODES, times=TIMES) == expected


@pytest.mark.parametrize(
    ("cmap_text", "expected"),
    [
        (cmap(NODES), []),
        (cmap(NODES[:2]), []),
        ("", []),
        (cmap(MOVED, "another"), []),
        (
            cmap(MOVED),
            [
                "n2 runs with id 2, 10.77.3.2 and 10.77.2.9 and has id 2, 10.77.3.2 and 10.77.2.2"
                " in the inventory"
            ],
        ),
        (
            cmap(RENUMBERED),
            [
                "n3 runs with id 4, 10.77.3.3 and 10.77.2.3 and has id 3, 10.77.3.3 and 10.77.2.3"
                " in the inventory"
            ],
        ),
    ],
)
def test_a_running_member_keeps_its_id_and_addresses(cmap_text: str, expected: list[str]) -> None:
    assert running.readdressed(cmap_text, "lab", NODES) == expected


@pytest.mark.parametrize(
    ("conf_text", "cmap_text", "expected"),
    [
        (conf(NODES), cmap(NODES), []),
        (conf(NODES), "", []),
        (conf(NODES), cmap(NODES[:1], "another"), []),
        # The run before ended between the file and the reload.
        (conf(NODES), cmap(NODES[:2]), ["n3 is new"]),
        (conf(MOVED), cmap(NODES), ["n2 has another id or address"]),
        (conf(NODES, token_ms=3000), cmap(NODES), ["totem.token is 1500 and not 3000"]),
    ],
)
def test_what_is_not_loaded_is_found_again(
    conf_text: str, cmap_text: str, expected: list[str]
) -> None:
    assert running.not_loaded(conf_text, cmap_text, "lab") == expected


def pools(**devices: str) -> str:
    pairs = "".join(
        f'<nvpair id="{name}-params-pool" name="pool" value="{pool}"/>'
        for name, pool in devices.items()
    )
    return f"<xpath-query>{pairs}</xpath-query>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (pools(vm1="main", vm2="main"), []),
        # One match is printed without anything around it.
        ('<nvpair id="vm1-params-pool" name="pool" value="main"/>', []),
        ('<nvpair id="vm1-params-pool" name="pool" value="old"/>', ["pool old, with vm1"]),
        (
            pools(**{f"vm{number}": "old" for number in range(7)}, log="slow", vm9="main"),
            ["pool old, with vm0, vm1, vm2, vm3, vm4 and 2 more", "pool slow, with log"],
        ),
        ("<nvpair", ["what Pacemaker says of its devices cannot be read"]),
    ],
)
def test_a_pool_with_devices_is_missed(text: str, expected: list[str]) -> None:
    assert running.lost_pools(text, ["main", "fast"]) == expected


DEVICE = VoteMode(votes=Votes.QDEVICE, host="10.77.3.100")
TWO = VoteMode(votes=Votes.TWO_NODE)


def six(count: int) -> list[dict[str, Any]]:
    """The first nodes of six."""
    return [
        {"name": f"n{id}", "id": id, "heartbeat": f"10.77.3.{id}", "sync": f"10.77.2.{id}"}
        for id in range(1, count + 1)
    ]


def status(joined: int, *, device: str = "", quorate: str = "Yes") -> str:
    """As corosync-quorumtool -s on n1 prints it; `device` is n1's own row's."""
    rows = "".join(
        f"    {id}    1    {device} n{id}{' (local)' if id == 1 else ''}\n"
        for id in range(1, joined + 1)
    )
    columns = "Qdevice Name" if device else "Name"
    return f"Quorate:          {quorate}\n\n    Nodeid      Votes    {columns}\n{rows}"


@pytest.mark.parametrize(
    ("joined", "present", "wanted", "mode", "device", "more"),
    [
        # A first witness, a third node, as many as there are and one less.
        (2, 2, 3, MAJORITY_OF_NODES, "", None),
        (3, 3, 4, MAJORITY_OF_NODES, "", None),
        (3, 3, 5, MAJORITY_OF_NODES, "", None),
        (2, 2, 4, DEVICE, "A,V,NMW", None),
        (4, 4, 6, DEVICE, "A,V,NMW", None),
        (2, 2, 4, MAJORITY_OF_NODES, "", "at most 1 in one run"),
        (3, 3, 6, MAJORITY_OF_NODES, "", "at most 2 in one run"),
        # One of three is away.
        (2, 3, 4, MAJORITY_OF_NODES, "", "Bring back the members that are away, before"),
        # The device is registered, and votes for nobody.
        (2, 2, 4, DEVICE, "A,NV,NMW", "the quorum device's vote"),
        (3, 4, 6, DEVICE, "A,NV,NMW", "the quorum device's vote"),
        # The list does not grow, whoever is away.
        (1, 2, 2, DEVICE, "A,V,NMW", None),
        (2, 3, 3, MAJORITY_OF_NODES, "", None),
    ],
)
def test_no_more_nodes_are_added_than_the_votes_bear(
    *, joined: int, present: int, wanted: int, mode: VoteMode, device: str, more: str | None
) -> None:
    """From the reload on they are expected; the devices stop where quorum is lost."""
    text = status(joined, device=device)
    found = running.short_of_votes(text, cmap(six(present)), "lab", six(wanted), mode)
    if more is None:
        assert not found
    else:
        assert more in found
        assert f"a list of {wanted} nodes needs" in found


def test_a_device_that_is_waited_for_before_the_list_counts() -> None:
    """From two_node: the role takes the two to the quorum device first."""
    asked = (status(2), cmap(six(2)), "lab", six(4), DEVICE)
    assert running.short_of_votes(*asked)
    assert not running.short_of_votes(*asked, will_vote=True)


@pytest.mark.parametrize(
    ("status_text", "cmap_text"),
    [
        # A first installation; a cluster that is down; one that has no quorum anyway; another's.
        ("", ""),
        (status(1, quorate="No"), cmap(six(3))),
        (status(1), cmap(six(1), "debian")),
    ],
)
def test_where_nothing_is_served_nothing_is_refused(status_text: str, cmap_text: str) -> None:
    asked = (status_text, cmap_text, "lab", six(6), MAJORITY_OF_NODES)
    assert not running.short_of_votes(*asked)


def test_votes_that_are_not_known_are_not_enough() -> None:
    found = running.short_of_votes("", cmap(six(3)), "lab", six(4), MAJORITY_OF_NODES)
    assert "does not say" in found
