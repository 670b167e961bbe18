# SPDX-License-Identifier: GPL-2.0-or-later
"""A monitor demotes a replica that the cluster takes for a standby while it promotes another."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sanctl.agents.promotion import forgotten_role
from sanctl.agents.replica.parts import Device
from sanctl.drivers import gate
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer

NO_ANSWER = CommandError(Problem("SAN-CMD-002", "no answer within 8 s: cibadmin"))
NOTHING = CommandError(Problem("SAN-CMD-003", "cibadmin: exit status 105"))
#: DRBD 8.4 does not know its peer's name.
PEER = PeerState("peer", "Connected", "Secondary", "Established", "UpToDate", 0)
LOST = PeerState("peer", "Connecting", "Unknown", "Off", "Outdated", 0)
DEVICE = Device(
    name="vol1", uuid="u1", size_bytes=1 << 20, pool="main", nodes=("n1", "n2"), minor=3,
    initiators=(),
)  # fmt: skip


def _operation(node: str, operation: str, status: str) -> str:
    return (
        f'<lrm_rsc_op id="vol1_last_0" operation="{operation}" op-status="{status}"'
        f' on_node="{node}"/>'
    )


def _records(*others: str) -> str:
    return f"<xpath-query>{_operation('n1', 'start', '0')}{''.join(others)}</xpath-query>"


PROMOTING = _records(_operation("n2", "promote", "-1"))


@pytest.fixture
def serving(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    """A node that serves vol1, whose monitor is one of the role Unpromoted."""
    _is_serving(fake_node, PEER)
    monkeypatch.setattr(gate, "gate_table", lambda _name: "drbd3")
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_role", "Unpromoted")
    return fake_node


def _is_serving(node: FakeNode, peer: PeerState, role: str = "Primary") -> None:
    node.states["vol1"] = ResourceState("vol1", role, "no", "UpToDate", 1024, (peer,), minor=3)


def _demotions(node: FakeNode, *answers: Answer) -> int:
    """Run the monitor's part and return how often it demoted; the CIB's last answer stays."""
    left = list(answers)

    def answer(argv: Sequence[str]) -> Answer:
        assert argv[0] == "cibadmin", argv
        return left.pop(0) if len(left) > 1 else left[0]

    node.answer = answer
    demoted: list[str] = []
    forgotten_role.demote_for_promotion(node, DEVICE, lambda: demoted.append("demoted"))
    return len(demoted)


def test_it_is_demoted_for_the_promotion_that_waits(serving: FakeNode) -> None:
    assert _demotions(serving, PROMOTING) == 1
    assert serving.clock.passed_s == 0
    assert any("promotes the one on n2" in line for line in serving.journal)


def test_the_other_nodes_record_may_come_a_moment_later(serving: FakeNode) -> None:
    assert _demotions(serving, _records(), _records(), PROMOTING) == 1
    assert 0 < serving.clock.passed_s < 2


@pytest.mark.parametrize(
    "found",
    [
        _records(),
        _records(_operation("n2", "promote", "0")),
        _records(_operation("n2", "promote", "4")),
        _records(_operation("n2", "start", "-1")),
        _operation("n1", "start", "0"),
    ],
)
def test_it_is_reported_as_it_is_where_nothing_is_promoted(serving: FakeNode, found: str) -> None:
    """As in maintenance: Pacemaker runs monitors, and promotes nothing."""
    assert _demotions(serving, found) == 0
    assert 24.0 < serving.clock.passed_s < 29.0
    assert len(serving.calls) < 20


def test_a_promotion_that_cannot_wait_for_it_changes_nothing(serving: FakeNode) -> None:
    """A node out of contact, such as one that died in its promotion, has left its record."""
    _is_serving(serving, LOST)
    assert _demotions(serving, PROMOTING) == 0


def test_without_an_answer_of_the_cluster_the_role_is_reported(serving: FakeNode) -> None:
    assert _demotions(serving, NO_ANSWER) == 0
    assert 24.0 < serving.clock.passed_s < 29.0
    assert len(serving.calls) < 20


def test_the_cluster_is_asked_again(serving: FakeNode) -> None:
    assert _demotions(serving, NO_ANSWER, PROMOTING) == 1


def test_one_that_has_become_secondary_is_left(serving: FakeNode) -> None:
    _is_serving(serving, PEER, "Secondary")
    assert _demotions(serving, PROMOTING) == 0
    assert serving.clock.passed_s == 0


def test_with_drbd_9_it_is_the_promoting_node_that_is_in_contact(serving: FakeNode) -> None:
    peers = (PEER._replace(name="n2"), LOST._replace(name="n3"))
    for node, demotions in (("n3", 0), ("n2", 1)):
        serving.states["vol1"] = ResourceState(
            "vol1", "Primary", "no", "UpToDate", 1024, peers, minor=3, has_quorum=True
        )
        assert _demotions(serving, _records(_operation(node, "promote", "-1"))) == demotions


@pytest.mark.parametrize("role", ["Promoted", "Started", ""])
def test_only_a_monitor_of_the_role_asks(
    serving: FakeNode, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """A probe, and what an operator starts by `crm_resource --force-check`, have no role."""
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_role", role)
    assert _demotions(serving, PROMOTING) == 0
    assert not serving.calls


def test_a_standby_does_not_ask(serving: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    for table in ("error", "absent"):
        monkeypatch.setattr(gate, "gate_table", lambda _name, table=table: table)
        assert _demotions(serving, PROMOTING) == 0
    assert not serving.calls


def test_a_gate_that_cannot_be_read_is_the_monitors_to_report(
    serving: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_name: str) -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(gate, "gate_table", fail)
    assert _demotions(serving, PROMOTING) == 0


def test_a_demotion_that_fails_fails_the_monitor(serving: FakeNode) -> None:
    serving.answer = lambda _argv: PROMOTING

    def fail() -> None:
        raise NOTHING

    with pytest.raises(CommandError):
        forgotten_role.demote_for_promotion(serving, DEVICE, fail)
