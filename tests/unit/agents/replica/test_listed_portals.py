# SPDX-License-Identifier: GPL-2.0-or-later
"""When a replica lists other nodes' portals: at its start, and after whatever they depend on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from sanctl.agents import cluster_toml
from sanctl.agents.replica import listed_portals
from sanctl.agents.replica.parts import Device
from sanctl.drivers import lio_listing
from sanctl.errors import CommandError, Problem
from tests.fakes.node import FakeNode

DEVICE = Device("vm1", "a" * 32, 1 << 20, "main", ("n1", "n2"), 3, ("iqn.a",))


class Kernel:
    """What the kernel was given, one entry for each call; refuses while `error` is set."""

    def __init__(self) -> None:
        self.given: list[tuple[Mapping[int, Collection[str]], Collection[str]]] = []
        self.error: Exception | None = None

    def set_listed(
        self, _name: str, portals: Mapping[int, Collection[str]], initiators: Collection[str]
    ) -> None:
        if self.error is not None:
            raise self.error
        self.given.append((portals, initiators))


@pytest.fixture
def kernel(fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    (tmp_path / "cluster.toml").write_text("")
    monkeypatch.setattr(cluster_toml, "PATH", str(tmp_path / "cluster.toml"))
    made = Kernel()
    monkeypatch.setattr(lio_listing, "set_listed", made.set_listed)
    return made


def test_a_monitor_lists_once(kernel: Kernel) -> None:
    assert listed_portals.update(DEVICE)
    assert not listed_portals.update(DEVICE)
    assert kernel.given == [({2: ("10.77.1.2:3260",)}, ("iqn.a",))]


def test_a_start_lists_whatever_a_note_says(kernel: Kernel) -> None:
    listed_portals.update(DEVICE)
    listed_portals.list_anew(DEVICE)
    assert len(kernel.given) == 2


@pytest.mark.parametrize(
    "changed",
    [DEVICE._replace(nodes=("n1",)), DEVICE._replace(initiators=()), DEVICE],
    ids=["replica nodes", "access list", "cluster.toml"],
)
def test_a_change_is_applied(kernel: Kernel, tmp_path: Path, changed: Device) -> None:
    listed_portals.update(DEVICE)
    if changed is DEVICE:
        (tmp_path / "cluster.toml").write_text("# another address\n")
    assert listed_portals.update(changed)
    assert not listed_portals.update(changed)
    assert kernel.given[-1] == (
        {2: ("10.77.1.2:3260",)} if len(changed.nodes) > 1 else {},
        changed.initiators,
    )


@pytest.mark.parametrize("error", [CommandError(Problem("SAN-LIO-001", "no")), OSError(98, "busy")])
def test_what_the_kernel_refused_is_tried_again_and_fails_no_start(
    kernel: Kernel, fake_node: FakeNode, error: Exception
) -> None:
    kernel.error = error
    listed_portals.list_anew(DEVICE)
    assert any("not listed to hosts yet" in line for line in fake_node.journal)
    kernel.error = None
    assert listed_portals.update(DEVICE)


def test_a_replica_that_is_about_to_go_changes_nothing(kernel: Kernel) -> None:
    assert not listed_portals.update(DEVICE._replace(nodes=("n2",)))
    assert kernel.given == []
