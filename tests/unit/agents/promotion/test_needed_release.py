# SPDX-License-Identifier: GPL-2.0-or-later
"""A device that needs what this release does not know is kept in sync here, and not served."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from sanctl.agents import device, device_monitor, device_role, device_stop, ocf
from sanctl.agents.device_metadata import METADATA
from sanctl.agents.promotion import first_activation, needed_release
from sanctl.agents.publish import attrd_cache, replica_state
from sanctl.agents.replica import parts, sync_policy
from sanctl.agents.replica.parts import Device
from sanctl.drivers import gate, lio
from sanctl.errors import CommandError
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.packed_states import STATES_ATTRIBUTE, unpack
from sanctl.model.release_needs import KNOWN, PARAMETER
from sanctl.parse.published_state import parse_replica_state
from tests.fakes.node import FakeNode

PEER = PeerState("n2", "Connected", "Primary", "Established", "UpToDate", 0)
STANDBY = ResourceState("vol1", "Secondary", "no", "UpToDate", 1024, (PEER,), minor=3)
PRIMARY = STANDBY._replace(role="Primary", peers=(PEER._replace(role="Secondary"),))
NO_SCORE = "--update=-INFINITY"
A = "iqn.2026-11.net.example:a"


@pytest.fixture
def node(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    fake_node.ask_for_monitor(monkeypatch)
    monkeypatch.setattr(attrd_cache, "attrd_pid", lambda: "7")
    monkeypatch.setattr(lio, "access", lambda _name: ())
    monkeypatch.setenv("OCF_RESKEY_initiators", A)
    return fake_node


def needing(words: str, monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setenv("OCF_RESKEY_needs", words)
    return device._device()


def published(node: FakeNode, of: Device, state: ResourceState) -> tuple[list[str], list[str]]:
    """Publish a state; return what was written of the score, and of the replica's state."""
    before = len(node.calls)
    replica_state.publish(node, of, state)
    calls = [argv for argv, _ in node.calls[before:] if argv[0] == "attrd_updater"]
    return tuple(  # type: ignore[return-value]
        [word for argv in calls if argv[argv.index("--name") + 1] == name for word in argv[3:]]
        for name in ("master-vol1", STATES_ATTRIBUTE)
    )


def state_of(words: list[str]) -> str:
    (value,) = [word.partition("=")[2] for word in words if word.startswith("--update=")]
    return unpack(value)["vol1"]


def test_it_is_not_promoted(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.states["vol1"] = STANDBY
    monkeypatch.setenv("OCF_RESKEY_needs", "reservations future")
    monkeypatch.setattr(gate, "size_bytes", lambda _name: 8192)
    asked: list[float] = []

    def is_new(*_: object, timeout_s: float) -> bool:
        asked.append(timeout_s)
        return True

    monkeypatch.setattr(first_activation, "is_new", is_new)
    monkeypatch.setattr(first_activation, "activate", lambda *_: pytest.fail("activated"))
    with pytest.raises(CommandError, match=r"future.*update sanctl on this node") as refused:
        device.promote()
    assert [each.code for each in refused.value.problems] == ["SAN-AGENT-020"]
    assert node.states["vol1"] == STANDBY
    # Of twenty at once the first ones wait for pacemaker-based for ten seconds.
    assert asked == [first_activation.PROMOTION_TIMEOUT_S]


def test_it_has_no_score_and_says_why(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    score, state = published(node, needing("future reservations", monkeypatch), STANDBY)
    assert score == [NO_SCORE]
    assert parse_replica_state(state_of(state)).lacks == ("future",)


def test_a_score_of_before_is_withdrawn_and_comes_back(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    score, _ = published(node, needing("", monkeypatch), STANDBY)
    assert "--update=9000" in score
    score, _ = published(node, needing("future", monkeypatch), STANDBY)
    assert score == [NO_SCORE]
    score, state = published(node, needing("reservations", monkeypatch), STANDBY)
    assert "--update=9000" in score
    assert parse_replica_state(state_of(state)).lacks == ()


def test_the_resync_service_which_knows_no_parameters_gives_it_no_score(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = needing("future", monkeypatch)
    sync_policy.record(found)
    published(node, found, STANDBY._replace(disk="Inconsistent"))
    recorded = sync_policy.recorded_device("vol1")
    assert recorded is not None
    assert not recorded.lacks
    score, state = published(node, recorded, STANDBY)
    assert score == []  # as it was
    assert parse_replica_state(state_of(state)).lacks == ("future",)


def test_what_serves_goes_on_and_keeps_its_access_list(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = needing("future", monkeypatch)
    score, state = published(node, found, PRIMARY)
    assert "--update=10000" in score
    assert parse_replica_state(state_of(state)).lacks == ("future",)
    assert needed_release.while_up(found).leaves_list


def test_a_start_goes_on_and_lets_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCF_RESOURCE_INSTANCE", "vol1:0")
    for key, value in (("uuid", "a" * 32), ("size", "1"), ("pool", "main"), ("nodes", "n1 n2")):
        monkeypatch.setenv(f"OCF_RESKEY_{key}", value)
    monkeypatch.setenv("OCF_RESKEY_minor", "3")
    monkeypatch.setenv("OCF_RESKEY_initiators", A)
    assert needed_release.at_start(needing("future", monkeypatch)).all_initiators == ()
    for known in ("", *KNOWN):
        found = needing(known, monkeypatch)
        assert needed_release.at_start(found) == needed_release.while_up(found) == found
        assert found.all_initiators == (A,)
        needed_release.refuse_promotion(found)


def test_actions_have_the_device_in_that_way(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    del node
    monkeypatch.setenv("OCF_RESKEY_needs", "future")
    seen: list[Device] = []

    def observe(_runner: object, found: Device) -> None:
        seen.append(found)
        raise InterruptedError

    monkeypatch.setattr(parts, "observe", observe)
    with pytest.raises(InterruptedError):
        device.start()
    monkeypatch.setattr(device_monitor, "monitor", lambda _, found: seen.append(found))
    device.monitor()
    started, watched = seen
    assert (started.all_initiators, started.leaves_list) == ((), False)
    assert (watched.all_initiators, watched.leaves_list) == ((A,), True)


def test_demote_and_stop_do_not_ask(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    needing("future", monkeypatch)
    taken: list[str] = []
    monkeypatch.setattr(device_stop, "take_down", lambda _, found: taken.append(found.name))
    assert device.stop() == ocf.SUCCESS
    monkeypatch.setattr(gate, "exists_any", lambda _name: True)
    monkeypatch.setattr(device_role, "demote", lambda _, found, _steps: taken.append(found.name))
    assert device.demote() == ocf.SUCCESS
    assert taken == ["vol1", "vol1"]


def test_a_change_of_them_restarts_no_device() -> None:
    found = {each.get("name"): each for each in ET.fromstring(METADATA).iter("parameter")}
    assert found[PARAMETER].get("reloadable") == "1"
