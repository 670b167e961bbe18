# SPDX-License-Identifier: GPL-2.0-or-later
"""An order to discard is obeyed for exactly the generation it names, and for nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents.recovery import heal
from sanctl.agents.replica import lost_writes, parts, reinitialize
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdsetup
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system import journal, state_files
from tests.fakes.runner import Answer, FakeRunner

UUID = "a" * 32
DEVICE = Device("vm1", UUID, 1 << 20, "main", ("n1", "n2"), 3, ())
HELD = "00000000000000B0"
GI = f"{HELD}:00000000000000C0:00000000000000D0:00000000000000E0:1:1:0:0:0:0:0\n"


def state(connection: str, *, role: str = "Secondary", disk: str = "UpToDate") -> ResourceState:
    peer = PeerState("peer", connection, "Unknown", "Off", "DUnknown", 4)
    return ResourceState("vm1", role, "no", disk, 1024, (peer,))


class Node(FakeRunner):
    """A node whose CIB holds orders."""

    def __init__(self, orders: dict[str, tuple[str, str]], gi: str = GI) -> None:
        super().__init__(self._answer)
        self.orders = orders
        self.gi = gi

    def _answer(self, argv: Sequence[str]) -> Answer:
        if argv[0] == "cibadmin":
            if not self.orders:
                return (105, "", "no such object")
            nodes = "".join(
                f'<node uname="{node}"><instance_attributes><nvpair name="sanctl-{kind}-vm1" '
                f'value="{value}"/></instance_attributes></node>'
                for node, (kind, value) in self.orders.items()
            )
            return f"<xpath-query>{nodes}</xpath-query>"
        if argv[1] == "get-gi":
            return self.gi
        return ""

    @property
    def acts(self) -> list[str]:
        """What it did beyond looking."""
        looks = ("cibadmin", "get-gi", "events2")
        return [
            " ".join(argv[:3])
            for argv, _ in self.calls
            if argv[0] not in looks[:1] and argv[1] not in looks[1:]
        ]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(heal, "_CONTACT_S", 0.0)
    monkeypatch.setattr(os, "uname", lambda: type("Uname", (), {"nodename": "n2"}))
    monkeypatch.setattr(journal, "write", lambda *_, **__: None)
    monkeypatch.setattr(drbdsetup, "observe", lambda *_: state("Connecting"))
    monkeypatch.setattr(drbdsetup, "generation", lambda: 8)


def order(what: str = f"{UUID} {HELD} bitmap", node: str = "n2") -> dict[str, tuple[str, str]]:
    return {node: ("discard", what)}


def test_nothing_is_asked_while_the_replicas_are_in_contact() -> None:
    node = Node(order())
    heal.carry_out_order(node, DEVICE, state("Connected"))
    assert node.calls == []


def test_the_named_generation_is_discarded_and_the_leave_to_do_so_ends() -> None:
    node = Node(order())
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    assert node.acts == [
        "drbdadm disconnect vm1",
        "drbdadm connect --discard-my-data",
        "drbdadm disconnect vm1",
    ]


def test_contact_ends_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heal, "_CONTACT_S", 5.0)
    monkeypatch.setattr(drbdsetup, "observe", lambda *_: state("Connected"))
    node = Node(order())
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    assert node.acts[-1].startswith("crm_attribute")
    assert "drbdadm disconnect vm1" not in node.acts[1:]
    before = len(node.calls)
    heal.carry_out_order(node, DEVICE, state("Connected"))
    assert len(node.calls) == before


def test_a_resync_that_the_end_of_an_attempt_cut_off_goes_on_without_leave() -> None:
    node = Node(order())
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    # Contact came between the last look and the end of the attempt: the resync had begun.
    cut_off = Node(order(), GI.replace(HELD, "00000000000000B2"))
    heal.carry_out_order(cut_off, DEVICE, state("StandAlone", disk="Inconsistent"))
    assert cut_off.acts[:2] == ["drbdadm disconnect vm1", "drbdadm adjust vm1"]
    assert cut_off.acts[2].startswith("crm_attribute")
    assert len(cut_off.acts) == 3


def test_what_was_begun_for_another_order_makes_no_stale_one_good() -> None:
    heal.carry_out_order(Node(order()), DEVICE, state("StandAlone"))
    stale = Node(order(f"{UUID} 00000000000000AA bitmap"))
    heal.carry_out_order(stale, DEVICE, state("StandAlone"))
    assert [act.split()[0] for act in stale.acts] == ["crm_attribute"]


@pytest.mark.parametrize(
    ("what", "gi", "role"),
    [
        pytest.param(f"{UUID} 00000000000000AA bitmap", GI, "Secondary", id="stale"),
        pytest.param(f"{'b' * 32} {HELD} bitmap", GI, "Secondary", id="another device"),
        pytest.param(f"{UUID} {HELD}", GI, "Secondary", id="half an order"),
        pytest.param(f"{UUID} {HELD} bitmap", "", "Secondary", id="generation not known"),
        pytest.param(f"{UUID} {HELD} bitmap", GI, "Primary", id="still serving"),
    ],
)
def test_anything_else_discards_nothing(what: str, gi: str, role: str) -> None:
    node = Node(order(what), gi)
    heal.carry_out_order(node, DEVICE, state("StandAlone", role=role))
    assert not [act for act in node.acts if act.startswith(("drbdadm", "drbdsetup"))]


def test_a_stale_order_is_taken_back() -> None:
    node = Node(order(f"{UUID} 00000000000000AA bitmap"))
    heal.carry_out_order(node, DEVICE, state("Connecting"))
    assert [act.split()[0] for act in node.acts] == ["crm_attribute"]


def test_what_lost_writes_is_never_compared_by_bitmap(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    monkeypatch.setattr(lost_writes, "is_suspect", lambda *_: True)
    monkeypatch.setattr(reinitialize, "reset", lambda _, device: begun.append(device.name))
    node = Node(order())
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    assert begun == ["vm1"] and node.acts == []
    other = Node(order(node="n1"))
    heal.carry_out_order(other, DEVICE, state("StandAlone"))
    assert other.acts == []


def test_the_other_side_connects_again_and_discards_nothing() -> None:
    node = Node(order(node="n1"))
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    assert node.acts == ["drbdadm adjust vm1"]
    forgotten = Node(order(node="n1"))
    heal.carry_out_order(forgotten, DEVICE, state("Connecting")._replace(peers=()))
    assert forgotten.acts == ["drbdadm adjust vm1"]
    waiting = Node(order(node="n1"))
    heal.carry_out_order(waiting, DEVICE, state("Connecting"))
    assert waiting.acts == []


def test_only_what_is_known_to_be_behind_is_revived(tmp_path: Path) -> None:
    wish = {"n2": ("revive", f"{UUID} {HELD}")}
    node = Node(wish)
    heal.carry_out_order(node, DEVICE, state("Connecting", disk="Outdated"))
    assert any("primary" in act for act in node.acts)
    assert node.acts[-1].startswith("crm_attribute")
    trust = tmp_path / "devices/vm1/operator-trust"
    assert trust.exists()
    trust.unlink()
    for disk, role, gi in (
        ("Inconsistent", "Secondary", GI),
        ("UpToDate", "Secondary", GI),
        ("Outdated", "Primary", GI),
        ("Outdated", "Secondary", GI.replace("B0", "B8")),
    ):
        other = Node(wish, gi)
        heal.carry_out_order(other, DEVICE, state("Connecting", disk=disk, role=role))
        assert [act.split()[0] for act in other.acts] == ["crm_attribute"], (disk, role)
        assert not trust.exists(), (disk, role)


def test_the_replica_is_trusted_before_drbd_asks_its_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    trust = tmp_path / "devices/vm1/operator-trust"
    monkeypatch.setattr(drbdsetup, "force_up_to_date", lambda *_: seen.append(trust.exists()))
    wish = {"n2": ("revive", f"{UUID} {HELD}")}
    heal.carry_out_order(Node(wish), DEVICE, state("Connecting", disk="Consistent"))
    assert seen == [True]

    def refused(*_: object) -> None:
        raise CommandError(Problem("SAN-CMD-003", "killed"))

    monkeypatch.setattr(drbdsetup, "force_up_to_date", refused)
    node = Node(wish)
    with pytest.raises(CommandError):
        heal.carry_out_order(node, DEVICE, state("Connecting", disk="Consistent"))
    assert not trust.exists() and not any("crm_attribute" in act for act in node.acts)


def test_since_when_it_is_apart_outlives_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = f"{tmp_path}/vm1.{UUID}.data"
    monkeypatch.setattr(parts, "attached_files", lambda _: [data])
    node = Node({})
    first = heal.no_contact_fields(node, DEVICE, state("Connecting"))
    (tmp_path / f"vm1.{UUID}.apart").write_text("1800000000\n")
    assert " apart=" in first
    assert heal.no_contact_fields(node, DEVICE, state("StandAlone")) == (
        f" apart=1800000000 gi={GI[:67]}"
    )
    assert heal.no_contact_fields(node, DEVICE, state("Connected")) == ""
    assert not (tmp_path / f"vm1.{UUID}.apart").exists()
