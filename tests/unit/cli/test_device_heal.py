# SPDX-License-Identifier: GPL-2.0-or-later
"""What an operator sees and is asked before a copy of a device is given up."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from contextlib import nullcontext

import click
import pytest

import sanctl.cli.environment
from sanctl.cli.main import main
from sanctl.errors import ExitStatus
from sanctl.ops.session import Session
from tests.fakes.pacemaker import FakeClock, FakePacemaker, FakeReporter
from tests.unit.ops.test_device_heal import connect_unjoined, diverge
from tests.unit.ops.test_device_heal_suspect import alone

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cluster() -> FakePacemaker:
    fake = FakePacemaker(golden="one-device")
    constraints = fake.root.find("configuration/constraints")
    assert constraints is not None
    ET.SubElement(constraints, "rsc_location", {"id": "drained-serves-nothing"})
    fake.tick()
    fake.tick()
    return fake


@pytest.fixture
def run(
    cluster: FakePacemaker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    session = Session(cluster, FakeClock(cluster.tick), FakeReporter())

    class Environment:
        def session(self) -> nullcontext[Session]:
            return nullcontext(session)

        def logged(self, *_: object, **__: object) -> nullcontext[None]:
            return nullcontext()

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sanctl.cli.environment, "Environment", Environment)
        monkeypatch.setattr(sys, "argv", ["sanctl", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        return int(stop.value.code or 0), output.out, output.err

    return call


def test_without_a_choice_it_shows_the_choices(run: Run, cluster: FakePacemaker) -> None:
    status, out, _ = run("device", "heal", "vm1")
    assert (status, out.splitlines()[0]) == (
        0,
        "device vm1: its replicas have not diverged, and a node serves it: nothing to decide",
    )
    diverge(cluster)
    status, out, _ = run("device", "heal", "vm1")
    assert status == 1
    assert "00000000000000B0" in out
    assert "2027-01-15 08:00:00Z" in out
    assert "--keep n1 loses up to 0 B (0 blocks of 4 KiB) written on n2 alone" in out
    assert cluster.patches == []


def test_a_replica_that_waits_for_its_peer_to_join_is_shown(
    run: Run, cluster: FakePacemaker
) -> None:
    connect_unjoined(cluster)
    _, printed, _ = run("device", "heal", "vm1")
    assert "online, connected to one whose node has not joined Pacemaker" in printed


def test_it_names_the_loss_before_it_asks(
    run: Run, cluster: FakePacemaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    diverge(cluster)
    asked: list[str] = []

    def refuse(text: str, **_: object) -> None:
        asked.append(text)
        raise click.Abort

    monkeypatch.setattr(click, "confirm", refuse)
    status, out, err = run("device", "heal", "vm1", "--keep", "n1")
    assert (status, out) == (2, "")
    assert "Keeping the replica on n1 loses up to 0 B" in err
    assert asked == ["Device vm1: discard the replica on n2?"]
    assert cluster.patches == []


def test_it_heals_and_says_what_was_lost(run: Run, cluster: FakePacemaker) -> None:
    diverge(cluster)
    status, out, _ = run("device", "heal", "vm1", "--keep", "n1", "--yes", "--output", "json")
    data = json.loads(out)["data"]
    assert (status, data["kept"], data["lost"]["node"]) == (0, "n1", "n2")
    assert data["copies"][1]["generation"] == "00000000000000B0"
    status, out, _ = run("device", "heal", "vm1", "--keep", "n1", "--yes", "--output", "json")
    assert (status, json.loads(out)["problems"][0]["code"]) == (4, "SAN-HEAL-001")


def test_what_cannot_be_kept_is_shown_beside_what_can(run: Run, cluster: FakePacemaker) -> None:
    diverge(cluster)
    cluster.disks["n2"] = "Inconsistent"
    cluster.tick()
    status, out, _ = run("device", "heal", "vm1")
    assert status == 1
    assert "--keep n2 is refused: SAN-HEAL-002" in out


def test_drain_says_what_went_where_and_what_stays(run: Run, cluster: FakePacemaker) -> None:
    status, out, _ = run("node", "drain", "n1")
    assert (status, out) == (0, "device vm1 is served by n2\n")
    status, out, _ = run("node", "drain", "n2")
    assert (status, out) == (8, "device vm1 stops with n2: n1 is drained\n")
    status, out, _ = run("node", "drain", "n3", "--output", "json")
    kinds = ("moved", "stranded", "late", "unflushed")
    assert json.loads(out)["data"] == {"name": "n3"} | {kind: [] for kind in kinds}
    status, out, _ = run("node", "undrain", "n1")
    assert out == "node n1 may serve devices\n"
    status, out, _ = run("node", "undrain", "n1")
    assert out == "node n1 may serve devices: nothing to do\n"
    cluster.is_frozen = True
    cluster.attribute("n2", "sanctl.drained", None)
    active = cluster.active("vm1")
    if active:
        status, out, _ = run("node", "drain", active[0], "--timeout", "2")
        assert status == 7
        assert "still being moved" in out


def test_the_only_replica_is_shown_and_served_as_it_is(run: Run, cluster: FakePacemaker) -> None:
    alone(cluster, " suspect=1 suspect-of=cache")
    status, out, _ = run("device", "heal", "vm1")
    assert status == ExitStatus.DEGRADED
    assert "its only replica is not served by itself" in out
    assert "--keep n1 loses writes that no host had flushed" in out
    status, out, _ = run("device", "heal", "vm1", "--keep", "n1", "--yes", "--output", "json")
    found = json.loads(out)["data"]
    assert (status, found["lost"]["node"], found["lost"]["nodes"]) == (0, None, [])
    assert cluster.active("vm1") == ["n1"]
