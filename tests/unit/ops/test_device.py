# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import count

import pytest

from sanctl.errors import (
    Busy,
    CommandError,
    NotConverged,
    Refused,
    SanctlError,
    Unreachable,
    UsageError,
)
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState, Role
from sanctl.model.names import ByteSize, DeviceName, Iqn, NodeName
from sanctl.ops import device_delete
from sanctl.ops.device_change import DeviceOutcome
from sanctl.ops.device_create import create_devices
from sanctl.ops.device_delete import delete_devices
from sanctl.ops.device_move import move_device
from sanctl.ops.device_resize import resize_device
from sanctl.ops.session import Session
from sanctl.ops.target_access import allow_initiator, deny_initiator
from sanctl.plan.cluster.cib_size import has_size_limit
from sanctl.plan.device.alteration import plan_move
from sanctl.plan.device.creation_request import DeviceArguments
from sanctl.plan.device.deletion import (
    AwaitStop,
    DeletionStep,
    RemoveConfiguration,
    RequestStop,
    next_deletion_step,
)
from sanctl.render.cib import render_patchset
from tests.fakes.pacemaker import FakeClock, FakePacemaker, FakeReporter
from tests.fakes.topology import topology

TOLD: list[set[NodeName]] = []


def anything(_: Cluster) -> None:
    return


def tell(nodes: Collection[NodeName]) -> None:
    TOLD.append(set(nodes))


VM1 = DeviceName.parse("vm1")
I1 = "iqn.2026-11.net.example:i1"
ROOM = {"ipc_buffer_bytes": 128 << 10}
_SERIAL = count(1)


class Bench:
    def __init__(self, version: str = "3.0.0", golden: str = "empty") -> None:
        self.cluster = FakePacemaker(version, golden)
        self.clock = FakeClock(self.cluster.tick)
        self.reporter = FakeReporter()
        self.ipc_buffer_bytes = 128 << 10
        self.session = Session(self.cluster, self.clock, self.reporter)

    def create(self, name: str = "vm1", size: str = "1G", **more: object) -> DeviceOutcome:
        request = DeviceArguments(name=name, size=size, replicas=str(more.pop("replicas", "2")))
        for key, value in more.items():
            request = _replaced(request, key, value)
        (outcome,) = self.create_all(request)
        return outcome

    def create_all(self, *requests: DeviceArguments) -> tuple[DeviceOutcome, ...]:
        return create_devices(
            self.session,
            topology(),
            requests,
            new_uuid=lambda: f"{next(_SERIAL):032x}",
            drbd_version="8.4.11",
            ipc_buffer_bytes=self.ipc_buffer_bytes,
            timeout_s=60,
        )


def _replaced(request: DeviceArguments, key: str, value: object) -> DeviceArguments:
    return replace(request, **{key: value})  # type: ignore[arg-type]


def delete(bench: Bench, timeout_s: float) -> tuple[NodeName, ...]:
    (away,) = delete_devices(
        bench.session, [VM1], timeout_s=timeout_s, tell=tell, check=anything
    ).values()
    return away


def codes(error: SanctlError) -> list[str]:
    return [problem.code for problem in error.problems]


@pytest.mark.parametrize("version", ["2.1.5", "3.0.0"])
def test_create_waits_until_served_and_in_sync(version: str) -> None:
    bench = Bench(version)
    outcome = bench.create(initiators=(I1,))
    assert outcome.cluster.active_node(VM1) == "n1"
    assert outcome.device.minor == 1
    assert bench.cluster.devices()["vm1"]["nodes"] == "n1 n2"
    assert any("creating vm1" in line for line in bench.reporter.lines)
    assert len(bench.cluster.patches) == 1


def test_create_spreads_active_devices_and_minors() -> None:
    bench = Bench()
    actives = [
        bench.create(f"vm{i}").cluster.active_node(DeviceName.parse(f"vm{i}")) for i in (1, 2)
    ]
    assert actives == ["n1", "n2"]
    assert [d["minor"] for d in bench.cluster.devices().values()] == ["1", "2"]


def named(*names: str, size: str = "1G") -> list[DeviceArguments]:
    return [DeviceArguments(name=name, size=size, replicas="2") for name in names]


def test_twenty_devices_are_one_change_and_spread_over_the_nodes() -> None:
    bench = Bench()
    outcomes = bench.create_all(*named(*(f"vm{i}" for i in range(20)), size="100M"))
    assert len(bench.cluster.patches) == 1
    served = [outcome.cluster.active_node(outcome.device.name) for outcome in outcomes]
    assert served.count("n1") == served.count("n2") == 10
    assert sorted(outcome.device.minor for outcome in outcomes) == list(range(1, 21))
    assert len({outcome.device.uuid for outcome in outcomes}) == 20


def test_of_several_devices_all_are_created_or_none() -> None:
    bench = Bench()
    bench.create("vm2")
    with pytest.raises(Refused) as caught:
        bench.create_all(*named("vm1", "vm2", "vm3"))
    assert codes(caught.value) == ["SAN-DEV-001"]
    assert set(bench.cluster.devices()) == {"vm2"}
    with pytest.raises(UsageError) as wrong:
        bench.create_all(*named("vm1", "vm1", "Vm3"))
    assert codes(wrong.value) == ["SAN-NAME-001", "SAN-DEV-021"]
    assert set(bench.cluster.devices()) == {"vm2"}


def test_devices_are_refused_past_what_pacemakers_messages_hold() -> None:
    """A buffer sized for 100 devices (ansible/roles/sanctl_corosync/vars) holds 100."""
    bench = Bench()
    bench.ipc_buffer_bytes = (8192 + 100 * (280 + 60 * 3)) * 5 // 4
    bench.create_all(*named(*(f"vm{i}" for i in range(99)), size="1M"))
    bench.create("vm99", size="1M")
    bench.ipc_buffer_bytes = 8 << 10
    with pytest.raises(Refused) as caught:
        bench.create("vm100", size="1M")
    assert codes(caught.value) == ["SAN-CLU-006"]
    assert len(bench.cluster.devices()) == 100


@pytest.mark.parametrize(
    ("version", "is_limited"),
    [
        ("2.1.5-a3f44794f94", True),
        ("3.0.0-3+deb13u1-1", True),
        ("3.0.1-2", False),
        ("3.1.0", False),
        ("", True),
        ("3.x.1", True),
    ],
)
def test_which_pacemaker_limits_the_cib(version: str, is_limited: bool) -> None:
    assert has_size_limit(version) == is_limited


def test_several_devices_share_the_room() -> None:
    """Each would fit alone; what the first gets is not promised to the second."""
    bench = Bench()
    size = "3G"
    bench.create("probe", size=size)
    bench = Bench()
    with pytest.raises(Refused) as caught:
        bench.create_all(*named("vm1", "vm2", "vm3", "vm4", size=size))
    assert {problem.code for problem in caught.value.problems} == {"SAN-POOL-012"}
    assert all(problem.text.startswith("vm") for problem in caught.value.problems)
    assert not bench.cluster.patches


def test_a_wait_for_many_names_those_that_are_missing() -> None:
    bench = Bench()
    bench.create("vm0", size="10M")
    bench.cluster.is_frozen = True
    with pytest.raises(NotConverged) as caught:
        bench.create_all(*named(*(f"vm{i}" for i in range(1, 8)), size="10M"))
    assert (
        "0 of 7 are, not yet vm1, vm2, vm3, vm4, vm5 and 2 more; vm1: n2: Stopped"
        in caught.value.problems[0].text
    )


def test_create_prefers() -> None:
    bench = Bench()
    assert bench.create(prefer="n2").cluster.active_node(VM1) == "n2"


def test_two_creators_at_once_do_not_collide() -> None:
    """The second plan is refused by the CIB, made anew, and takes the next minor."""
    bench, other = Bench(), Bench()
    other.session = Session(bench.cluster, other.clock, other.reporter)
    other.clock.on_sleep = bench.cluster.tick

    def intrude() -> None:
        bench.cluster.on_patch.clear()
        other.create("vm2")

    bench.cluster.on_patch.append(intrude)
    bench.create("vm1")
    minors = {name: p["minor"] for name, p in bench.cluster.devices().items()}
    assert minors == {"vm2": "1", "vm1": "2"}


def test_two_creators_of_one_name() -> None:
    bench, other = Bench(), Bench()
    other.session = Session(bench.cluster, other.clock, other.reporter)
    other.clock.on_sleep = bench.cluster.tick

    def intrude() -> None:
        bench.cluster.on_patch.clear()
        other.create("vm1")

    bench.cluster.on_patch.append(intrude)
    with pytest.raises(Refused) as caught:
        bench.create("vm1")
    assert codes(caught.value) == ["SAN-DEV-001"]


def test_a_cib_that_never_rests_is_busy_not_endless() -> None:
    bench = Bench()
    bench.cluster.on_patch.append(bench.cluster.touch)
    with pytest.raises(Busy):
        bench.create()
    assert bench.cluster.devices() == {}


def test_create_reports_a_failed_agent_at_once() -> None:
    bench = Bench()
    bench.cluster.failing_starts.add("n2")
    begin = bench.clock.now
    with pytest.raises(CommandError) as caught:
        bench.create()
    assert bench.clock.now - begin < 5
    assert "no space left in the pool" in caught.value.problems[0].text
    assert set(codes(caught.value)) == {"SAN-DEV-020"}


def test_create_deadline_says_what_was_seen() -> None:
    bench = Bench()
    bench.cluster.is_frozen = True
    with pytest.raises(NotConverged) as caught:
        bench.create()
    assert "last seen: n1: Stopped, ?" in caught.value.problems[0].text
    assert "vm1" in bench.cluster.devices()


def test_create_lists_malformed_and_refused_together_and_changes_nothing() -> None:
    bench = Bench()
    with pytest.raises(UsageError) as caught:
        bench.create("Bad!", "ten", nodes=("n1", "n3"), prefer="n2", initiators=("iqn",))
    assert sorted(codes(caught.value)) == [
        "SAN-DEV-008",
        "SAN-NAME-001",
        "SAN-NAME-005",
        "SAN-NAME-006",
        "SAN-NODE-002",
    ]
    assert bench.cluster.patches == []


def test_malformed_is_reported_without_a_cluster() -> None:
    bench = Bench()
    bench.cluster.is_down = True
    with pytest.raises(UsageError):
        bench.create(size="ten")
    with pytest.raises(Unreachable):
        bench.create()


def test_no_quorum_refuses() -> None:
    bench = Bench()
    bench.cluster.has_quorum = False
    with pytest.raises(Refused) as caught:
        bench.create()
    assert codes(caught.value) == ["SAN-CLU-001"]


def test_move_and_back_removes_its_constraint() -> None:
    bench = Bench()
    bench.create(prefer="n1")
    outcome = move_device(bench.session, VM1, NodeName.parse("n2"), timeout_s=30)
    assert outcome.changed and bench.cluster.active("vm1") == ["n2"]
    assert bench.cluster.root.find(".//rsc_location[@id='sanctl-vm1-move']") is None
    again = move_device(bench.session, VM1, NodeName.parse("n2"), timeout_s=30)
    assert not again.changed
    bench.cluster.tick()
    assert bench.cluster.active("vm1") == ["n2"]


def test_move_that_does_not_happen_removes_its_constraint() -> None:
    bench = Bench()
    bench.create()
    bench.cluster.is_frozen = True
    with pytest.raises(NotConverged):
        move_device(bench.session, VM1, NodeName.parse("n2"), timeout_s=5)
    assert bench.cluster.root.find(".//rsc_location[@id='sanctl-vm1-move']") is None
    assert bench.cluster.active("vm1") == ["n1"]


def test_a_move_that_fails_leaves_that_of_another_command() -> None:
    """The later command's would end with the earlier one's: the device stayed where it was."""
    bench = Bench()
    bench.create()
    bench.cluster.is_frozen = True
    other: list[str] = []

    def move_again() -> None:
        if other:
            return
        other.append("moves")
        found = bench.session.observe()
        changes = plan_move(found, VM1, NodeName.parse("n2"), now_s=2e9)
        bench.cluster.patch(render_patchset(bench.cluster.root, changes))

    bench.clock.on_sleep = move_again
    with pytest.raises(NotConverged):
        move_device(bench.session, VM1, NodeName.parse("n2"), timeout_s=5)
    left = bench.session.observe().cib.move(VM1)
    assert left is not None and left.until.startswith("2033")


def test_leftover_of_a_killed_move_is_cleaned_by_the_next() -> None:
    bench = Bench()
    bench.create()
    bench.cluster.is_frozen = True

    def die() -> None:
        raise _Killed

    bench.clock.on_sleep = die
    bench.cluster.on_patch.append(lambda: None)
    with pytest.raises(_Killed):
        # A kill leaves no time for the clean-up: stand in for it by refusing the second patch.
        bench.cluster.on_patch[0] = _after(1, die)
        move_device(bench.session, VM1, NodeName.parse("n2"), timeout_s=5)
    bench.cluster.on_patch.clear()
    assert bench.cluster.root.find(".//rsc_location[@id='sanctl-vm1-move']") is not None
    bench.cluster.is_frozen = False
    bench.clock.on_sleep = bench.cluster.tick
    bench.cluster.tick()
    move_device(bench.session, VM1, NodeName.parse("n1"), timeout_s=5)
    assert bench.cluster.active("vm1") == ["n1"]
    assert bench.cluster.root.find(".//rsc_location[@id='sanctl-vm1-move']") is None


class _Killed(BaseException):
    pass


def _after(calls: int, action: Callable[[], None]) -> Callable[[], None]:
    left = [calls]

    def hook() -> None:
        if left[0] <= 0:
            action()
        left[0] -= 1

    return hook


@pytest.mark.parametrize("mar", ["offline", "behind", "elsewhere"])
def test_move_refuses_what_would_lose_writes(mar: str) -> None:
    bench = Bench()
    bench.create()
    target = "n2"
    if mar == "offline":
        bench.cluster.crash("n2")
    elif mar == "behind":
        bench.cluster.attribute("n2", "sanctl-vm1", "disk=Inconsistent connection=Connected")
    else:
        target = "n3"
    with pytest.raises(Refused):
        move_device(bench.session, VM1, NodeName.parse(target), timeout_s=5)
    assert len(bench.cluster.patches) == 1


def test_resize_grows_and_waits_for_both() -> None:
    bench = Bench()
    bench.create()
    outcome = resize_device(bench.session, VM1, ByteSize.parse("2G"), timeout_s=30)
    assert outcome.changed and outcome.device.size == ByteSize.parse("2G")
    again = resize_device(bench.session, VM1, ByteSize.parse("2G"), timeout_s=30)
    assert not again.changed


@pytest.mark.parametrize(
    ("size", "code"), [("512M", "SAN-DEV-012"), ("1T", "SAN-POOL-012")], ids=["shrink", "no-room"]
)
def test_resize_refusals(size: str, code: str) -> None:
    bench = Bench()
    bench.create()
    with pytest.raises(Refused) as caught:
        resize_device(bench.session, VM1, ByteSize.parse(size), timeout_s=30)
    assert set(codes(caught.value)) == {code}


def test_resize_needs_every_replica() -> None:
    bench = Bench()
    bench.create()
    bench.cluster.crash("n2")
    bench.cluster.tick()
    with pytest.raises(Refused) as caught:
        resize_device(bench.session, VM1, ByteSize.parse("2G"), timeout_s=30)
    assert "SAN-DEV-013" in codes(caught.value)


def test_allow_and_deny_are_idempotent() -> None:
    bench = Bench()
    bench.create()
    iqn = Iqn.parse(I1)
    assert allow_initiator(bench.session, VM1, iqn, **ROOM, timeout_s=30).changed
    assert not allow_initiator(bench.session, VM1, iqn, **ROOM, timeout_s=30).changed
    assert bench.cluster.devices()["vm1"]["initiators"] == I1
    assert deny_initiator(bench.session, VM1, iqn, **ROOM, timeout_s=30).changed
    assert not deny_initiator(bench.session, VM1, iqn, **ROOM, timeout_s=30).changed
    assert bench.cluster.devices()["vm1"]["initiators"] == ""


def test_access_that_is_not_in_force_is_not_reported_as_done() -> None:
    bench = Bench()
    bench.create()
    bench.cluster.is_frozen = True
    with pytest.raises(NotConverged) as caught:
        deny_initiator(bench.session, VM1, Iqn.parse(I1), **ROOM, timeout_s=5) and allow_initiator(
            bench.session, VM1, Iqn.parse(I1), **ROOM, timeout_s=5
        )
    assert "not yet applied on n1, n2" in caught.value.problems[0].text


def test_delete_removes_everything() -> None:
    bench = Bench()
    bench.create()
    assert delete(bench, timeout_s=60) == ()
    assert bench.cluster.devices() == {}
    assert "vm1" not in bench.cluster.query().replace("vm1_", "")
    with pytest.raises(Refused) as caught:
        delete(bench, timeout_s=60)
    assert codes(caught.value) == ["SAN-DEV-002"]


def test_many_are_stopped_by_one_change_and_removed_by_one() -> None:
    bench = Bench()
    bench.create_all(*named("vm1", "vm2", "vm3", size="100M"))
    names = [DeviceName.parse(name) for name in ("vm1", "vm2", "vm3")]
    del bench.cluster.patches[:], TOLD[:]
    assert delete_devices(
        bench.session, names, timeout_s=60, tell=tell, check=anything
    ) == dict.fromkeys(names, ())
    assert [{NodeName.parse("n1"), NodeName.parse("n2")}] == TOLD, "once, of all tombstones"
    assert bench.cluster.devices() == {}
    assert "stopping 3 devices on all nodes" in bench.reporter.lines
    stop, removal = bench.cluster.patches
    assert all(f"sanctl-vm{i}-meta-deletion" in stop for i in (1, 2, 3))
    assert all(f"sanctl-delete-vm{i}" in removal for i in (1, 2, 3))


def test_of_several_devices_none_is_stopped_where_one_cannot_be_deleted() -> None:
    bench = Bench()
    bench.create_all(*named("vm1", "vm2", size="100M"))
    del bench.cluster.patches[:]
    names = [DeviceName.parse(name) for name in ("vm1", "vm7", "vm2", "vm8")]
    with pytest.raises(Refused) as caught:
        delete_devices(bench.session, names, timeout_s=60, tell=tell, check=anything)
    assert codes(caught.value) == ["SAN-DEV-002", "SAN-DEV-002"]
    assert bench.cluster.patches == []
    assert set(bench.cluster.devices()) == {"vm1", "vm2"}


@pytest.mark.parametrize("state", ["pending", "unknown", "unclean", "offline"])
def test_a_node_of_which_nothing_is_known_yet_is_waited_for(state: str) -> None:
    """Its Pacemaker was started anew: what ran there runs on, and is shown a moment later."""
    bench = Bench()
    bench.create()
    stopped = next_deletion_step(bench.session.observe(), VM1)
    assert isinstance(stopped, RequestStop)
    bench.cluster.patch(render_patchset(bench.cluster.root, stopped.changes))
    for _ in range(4):
        bench.cluster.tick()
    seen = bench.session.observe()
    assert isinstance(next_deletion_step(seen, VM1), RemoveConfiguration)
    nodes = tuple(
        replace(node, state=NodeState(state)) if node.name == "n2" else node
        for node in seen.mon.nodes
    )
    found = next_deletion_step(replace(seen, mon=replace(seen.mon, nodes=nodes)), VM1)
    if state == "offline":
        assert isinstance(found, RemoveConfiguration)
    else:
        assert found == AwaitStop(running=("n2",))


def test_those_that_have_stopped_are_removed_where_one_does_not_in_time() -> None:
    bench = Bench()
    bench.create_all(*named("vm1", "vm2", size="100M"))
    names = [DeviceName.parse(name) for name in ("vm1", "vm2")]
    step = next_deletion_step

    def stuck(cluster: Cluster, name: DeviceName) -> DeletionStep:
        found = step(cluster, name)
        return AwaitStop(running=("n1",)) if isinstance(found, RemoveConfiguration) else found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            device_delete,
            "next_deletion_step",
            lambda cluster, name: (stuck if name == VM1 else step)(cluster, name),
        )
        with pytest.raises(NotConverged) as caught:
            delete_devices(bench.session, names, timeout_s=30, tell=tell, check=anything)
    text = str(caught.value)
    assert "0 of 2 are deleted; vm1: the device still runs on n1" in text
    assert "run 'sanctl device delete vm1 vm2' again" in text
    assert set(bench.cluster.devices()) == {"vm1"}
    assert delete_devices(bench.session, names[:1], timeout_s=30, tell=tell, check=anything) == {
        VM1: ()
    }


def test_delete_names_the_node_that_is_away() -> None:
    bench = Bench()
    bench.create()
    bench.cluster.crash("n2")
    assert delete(bench, timeout_s=60) == (NodeName.parse("n2"),)
    assert bench.cluster.permanent("n2", "sanctl-delete-vm1") is not None
    with pytest.raises(Refused) as caught:
        bench.create()
    assert "SAN-DEV-010" in codes(caught.value)
    bench.cluster.states["n2"] = "online"
    bench.cluster.tick()
    assert bench.cluster.permanent("n2", "sanctl-delete-vm1") is None


def test_delete_waits_for_fencing_of_an_unclean_node() -> None:
    bench = Bench()
    bench.create()
    bench.cluster.states["n1"] = "unclean"
    with pytest.raises(NotConverged) as caught:
        delete(bench, timeout_s=10)
    assert "still runs on n1" in caught.value.problems[0].text
    bench.cluster.crash("n1")
    assert delete(bench, timeout_s=10) == (NodeName.parse("n1"),)


def _interrupted_deletions() -> int:
    """How many calls to the cluster a whole deletion makes."""
    bench = Bench()
    bench.create()
    calls = [0]

    def note() -> None:
        calls[0] += 1

    bench.cluster.on_patch.append(note)

    def sleep() -> None:
        note()
        bench.cluster.tick()

    bench.clock.on_sleep = sleep
    delete(bench, timeout_s=60)
    return calls[0]


@pytest.mark.parametrize("prefix", range(_interrupted_deletions()))
@pytest.mark.parametrize("meanwhile", ["nothing", "rest", "crash"])
def test_delete_is_finished_from_every_interrupted_prefix(prefix: int, meanwhile: str) -> None:
    bench = Bench()
    bench.create()
    tick = bench.cluster.tick

    def die() -> None:
        raise _Killed

    kill = _after(prefix, die)
    bench.cluster.on_patch.append(kill)

    def sleep() -> None:
        kill()
        tick()

    bench.clock.on_sleep = sleep
    with pytest.raises(_Killed):
        delete(bench, timeout_s=60)
    bench.cluster.on_patch.clear()
    bench.clock.on_sleep = tick
    away: tuple[NodeName, ...] = ()
    if meanwhile == "rest":
        for _ in range(5):
            tick()
    elif meanwhile == "crash":
        bench.cluster.crash("n2")
        away = (NodeName.parse("n2"),)
    try:
        assert delete(bench, timeout_s=60) in {away, ()}
    except Refused as error:
        # Nothing was left to do: the agents had finished what the interrupted run began.
        assert codes(error) == ["SAN-DEV-002"]
    assert bench.cluster.devices() == {}
    assert ("vm1", "n1") not in bench.cluster.roles
    assert bench.cluster.permanent("n1", "sanctl-delete-vm1") is None


def test_delete_refuses_what_pacemaker_would_not_stop() -> None:
    bench = Bench()
    bench.create()
    meta = bench.cluster.root.find(".//clone[@id='sanctl-vm1']/meta_attributes")
    assert meta is not None
    ET.SubElement(meta, "nvpair", id="x", name="is-managed", value="false")
    with pytest.raises(Refused) as caught:
        delete(bench, timeout_s=60)
    assert codes(caught.value) == ["SAN-DEV-018"]


def test_old_failures_do_not_end_a_wait() -> None:
    bench = Bench()
    bench.create()
    bench.cluster.failures.append(
        {"op_key": "vm1_monitor_10000", "node": "n2", "exitstatus": "error", "call": "3"}
    )
    assert move_device(bench.session, VM1, NodeName.parse("n2"), timeout_s=5).changed


def test_delete_forgets_failures_with_the_device() -> None:
    """A fail-count outlives its resource: the next device of that name would not start there."""
    bench = Bench()
    bench.create()
    delete(bench, timeout_s=60)
    assert bench.cluster.cleaned_up == []
    bench.create()
    bench.cluster.failures.append(
        {"op_key": "vm1_monitor_10000", "node": "n2", "exitstatus": "error", "call": "3"}
    )
    delete(bench, timeout_s=60)
    assert bench.cluster.cleaned_up == ["vm1"]


@pytest.mark.parametrize(("action", "is_final"), [("monitor_10000", False), ("stop_0", True)])
def test_a_failure_while_a_device_is_deleted(action: str, is_final: bool) -> None:
    """Only one to stop stands in the way: a device that fails otherwise is stopped all the same."""
    bench = Bench()
    bench.create()
    bench.cluster.is_frozen = True

    def fail() -> None:
        failed = {"op_key": f"vm1_{action}", "node": "n2", "exitstatus": "error", "call": "9"}
        bench.cluster.failures.append(failed)
        bench.cluster.is_frozen = is_final
        bench.clock.on_sleep = bench.cluster.tick

    bench.clock.on_sleep = fail
    if is_final:
        with pytest.raises(CommandError):
            delete(bench, timeout_s=60)
        assert "vm1" in bench.cluster.devices()
    else:
        delete(bench, timeout_s=60)
        assert bench.cluster.devices() == {} and bench.cluster.cleaned_up == ["vm1"]


def test_a_short_silence_of_pacemaker_does_not_end_a_wait() -> None:
    bench = Bench()
    bench.create()
    steps = [0]

    def hiccup() -> None:
        steps[0] += 1
        bench.cluster.is_down = 2 <= steps[0] <= 6
        if steps[0] > 6:
            bench.cluster.tick()

    bench.clock.on_sleep = hiccup
    assert move_device(bench.session, VM1, NodeName.parse("n2"), timeout_s=60).changed


def test_promoted_role_is_read() -> None:
    bench = Bench()
    bench.create()
    assert bench.session.observe().mon.role(VM1, "n1") is Role.PROMOTED
