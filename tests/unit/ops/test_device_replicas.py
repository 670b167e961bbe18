# SPDX-License-Identifier: GPL-2.0-or-later
"""Changing copies, against a cluster in memory: step by step, interrupted, and refused."""

from __future__ import annotations

import pytest

from sanctl.errors import ExitStatus, NotConverged, PartialApply, Refused
from sanctl.model.crm_mon import Role
from sanctl.model.names import NodeName
from sanctl.ops.device_replicas import ReplicasOutcome, change_replicas
from sanctl.ops.node_replace import replace_node
from sanctl.plan.replicas.replica_choice import parse_replica_request
from sanctl.plan.replicas.replica_count import StepContext
from tests.fakes.topology import topology, wide_topology
from tests.unit.ops.test_device import VM1, Bench, codes

_RISK = frozenset({"SAN-RISK-004"})


def change(
    bench: Bench,
    count: int,
    *,
    add: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    accepted: frozenset[str] = frozenset(),
    wide: bool = False,
    drbd: str = "8.4.11",
) -> ReplicasOutcome:
    return change_replicas(
        bench.session,
        VM1,
        parse_replica_request(str(count), add, drop),
        StepContext(
            topology=wide_topology() if wide else topology(), drbd_version=drbd, accepted=accepted
        ),
        timeout_s=60,
        again="again",
    )


def made(*nodes: str, wide: bool = False) -> Bench:
    bench = Bench()
    if wide:
        bench.cluster.make_storage("n3")
    bench.create(replicas=str(len(nodes)), nodes=nodes, prefer=nodes[0])
    bench.cluster.patches.clear()
    return bench


def nodes_of(bench: Bench) -> str:
    return bench.cluster.devices()["vm1"]["nodes"]


def clone_max(bench: Bench) -> str | None:
    pair = bench.cluster.root.find(".//clone[@id='sanctl-vm1']//nvpair[@name='clone-max']")
    assert pair is not None
    return pair.get("value")


def rule(bench: Bench) -> list[str | None]:
    return [
        each.get("value")
        for each in bench.cluster.root.findall(
            ".//rsc_location[@id='sanctl-vm1-replicas']/rule/expression"
        )
    ]


def test_one_to_two_and_back_is_one_change_of_the_cib_each() -> None:
    bench = made("n1")
    outcome = change(bench, 2)
    assert (nodes_of(bench), rule(bench), clone_max(bench)) == ("n1 n2", ["n1", "n2"], "2")
    assert outcome.steps == ("adding a replica of vm1 on n2",)
    assert len(bench.cluster.patches) == 1
    outcome = change(bench, 1)
    # Lowered, it would make Pacemaker stop the copy that stays.
    assert (nodes_of(bench), rule(bench), clone_max(bench)) == ("n1", ["n1"], "2")
    assert bench.cluster.active("vm1") == ["n1"]
    assert len(bench.cluster.patches) == 2
    assert not change(bench, 1).steps


def test_the_serving_replica_is_moved_before_it_is_dropped() -> None:
    bench = made("n1", "n2")
    outcome = change(bench, 1, drop=("n1",))
    assert outcome.steps == ("moving vm1 to n2 first", "dropping the replica of vm1 on n1")
    assert (nodes_of(bench), bench.cluster.active("vm1")) == ("n2", ["n2"])
    assert bench.cluster.root.find(".//rsc_location[@id='sanctl-vm1-move']") is None
    # It would pull the device to a node that has no copy.
    assert bench.cluster.root.find(".//rsc_location[@id='sanctl-vm1-prefer']") is None


def test_the_node_of_a_dropped_replica_gets_no_new_one_while_it_has_the_old_data() -> None:
    bench = made("n1", "n2")
    bench.cluster.crash("n2")
    outcome = change(bench, 1)
    assert outcome.away == (NodeName.parse("n2"),)
    assert bench.cluster.permanent("n2", "sanctl-delete-vm1") is not None
    bench.cluster.states["n2"] = "online"
    with pytest.raises(Refused) as caught:
        change(bench, 2)
    (kept,) = [each for each in caught.value.problems if each.code == "SAN-REP-004"]
    assert kept.hint == "the node's pool agent removes it when it runs: try again then"
    bench.cluster.make_storage("n2")
    bench.cluster.tick()
    assert bench.cluster.permanent("n2", "sanctl-delete-vm1") is None
    assert change(bench, 2).steps


def test_marks_of_a_dropped_replica_go_with_it() -> None:
    bench = made("n1", "n2")
    bench.cluster.crash("n2")
    uuid = bench.cluster.devices()["vm1"]["uuid"]
    bench.cluster.set_permanent("n2", "sanctl-outdated-vm1", uuid)
    change(bench, 1)
    assert bench.cluster.permanent("n2", "sanctl-outdated-vm1") is None


def test_a_new_replica_may_not_serve_before_the_primary_has_it_in_sync() -> None:
    """Its node may have old files: their tombstone went with the node's entry in the CIB."""
    bench = made("n1")
    bench.cluster.disks["n2"] = "Inconsistent"
    with pytest.raises(NotConverged):
        change(bench, 2)
    assert bench.cluster.is_marked("vm1", "n2")
    # So the replica with what the device held before is not promoted either.
    bench.cluster.disks["n2"] = "UpToDate"
    bench.cluster.keeps_marks = True
    bench.cluster.crash("n1")
    bench.cluster.tick()
    bench.cluster.tick()
    assert bench.cluster.active("vm1") == []
    bench.cluster.states["n1"] = "online"
    bench.cluster.keeps_marks = False
    bench.cluster.make_storage("n1")
    assert change(bench, 2).steps == ()
    assert not bench.cluster.is_marked("vm1", "n2")


def test_the_last_good_replica_is_not_dropped() -> None:
    bench = made("n1", "n2")
    bench.cluster.disks["n2"] = "Inconsistent"
    bench.cluster.tick()
    bench.cluster.tick()
    with pytest.raises(NotConverged):
        change(bench, 1, drop=("n1",))
    bench.cluster.crash("n2")
    with pytest.raises(Refused) as caught:
        change(bench, 1, drop=("n1",))
    assert codes(caught.value) == ["SAN-REP-001"]
    assert nodes_of(bench) == "n1 n2"


def test_nothing_is_dropped_of_a_device_that_no_node_serves() -> None:
    bench = made("n1", "n2")
    bench.cluster.crash("n1")
    bench.cluster.disks["n2"] = "Outdated"
    bench.cluster.tick()
    with pytest.raises(Refused) as caught:
        change(bench, 1, drop=("n1",))
    assert codes(caught.value) == ["SAN-REP-002"]


def test_silence_is_not_absence() -> None:
    bench = made("n1", "n2")
    bench.cluster.states["n2"] = "unclean"
    with pytest.raises(Refused) as caught:
        change(bench, 1, drop=("n2",))
    assert "SAN-REP-003" in codes(caught.value)


def test_a_replica_that_never_filled_is_taken_back() -> None:
    bench = made("n1")
    bench.cluster.disks["n2"] = "Inconsistent"
    with pytest.raises(NotConverged) as caught:
        change(bench, 2)
    assert "again" in caught.value.problems[0].hint
    left = caught.value.problems[1]
    assert (left.code, "n2" in left.text) == ("SAN-REP-009", True)
    assert "sanctl device replicas vm1 1 --drop n2" in left.hint
    assert nodes_of(bench) == "n1 n2"
    assert change(bench, 1).steps == ("dropping the replica of vm1 on n2",)


def test_a_replica_that_cannot_start_is_named_with_how_to_take_it_back() -> None:
    bench = made("n1")
    bench.cluster.after_patch = lambda: bench.cluster.crash("n2")
    with pytest.raises(NotConverged) as caught:
        change(bench, 2)
    left = caught.value.problems[-1]
    assert left.code == "SAN-REP-009"
    assert "n2" in left.text
    assert left.hint.endswith("'sanctl device replicas vm1 1 --drop n2'")


def test_a_refusal_after_a_step_says_what_was_done_before() -> None:
    bench = made("n1", "n2", wide=True)

    def lose_n2_and_n3() -> None:
        bench.cluster.after_patch = lambda: None
        bench.cluster.crash("n2")
        bench.cluster.crash("n3")

    bench.cluster.after_patch = lose_n2_and_n3
    with pytest.raises(PartialApply) as caught:
        change(bench, 2, add=("n3",), drop=("n1",), accepted=_RISK, wide=True)
    assert caught.value.exit_status is ExitStatus.PARTIAL
    *why, before = caught.value.problems
    assert why and before.code == "SAN-REP-008"
    assert before.text == "device vm1: done before that: moving vm1 to n2 first"
    assert before.hint.endswith("'again' run again goes on")


def test_killed_anywhere_the_same_command_goes_on() -> None:
    """The command dies after each of its changes of the CIB, and is run again."""
    bench = made("n1", "n2", wide=True)

    class Killed(Exception):
        pass

    def kill() -> None:
        raise Killed

    for _ in range(8):
        bench.cluster.after_patch = kill
        try:
            change(bench, 2, add=("n3",), drop=("n1",), accepted=_RISK, wide=True)
        except Killed:
            continue
        break
    assert set(nodes_of(bench).split()) == {"n2", "n3"}
    assert bench.cluster.active("vm1") == ["n2"]


def test_with_drbd_8_a_replica_that_moves_is_dropped_first_and_that_is_a_risk() -> None:
    bench = made("n1", "n2", wide=True)
    with pytest.raises(Refused) as caught:
        change(bench, 2, add=("n3",), drop=("n2",), wide=True)
    assert codes(caught.value) == ["SAN-RISK-004"]
    assert not bench.cluster.patches
    outcome = change(bench, 2, add=("n3",), drop=("n2",), accepted=_RISK, wide=True)
    assert outcome.steps == ("dropping the replica of vm1 on n2", "adding a replica of vm1 on n3")
    assert nodes_of(bench) == "n1 n3"


def test_with_drbd_9_the_new_replica_comes_first() -> None:
    bench = made("n1", "n2", wide=True)
    outcome = change(bench, 2, add=("n3",), drop=("n2",), wide=True, drbd="9.3.3")
    assert outcome.steps == ("adding a replica of vm1 on n3", "dropping the replica of vm1 on n2")
    assert nodes_of(bench) == "n1 n3"
    assert change(bench, 3, wide=True, drbd="9.3.3").steps
    assert set(nodes_of(bench).split()) == {"n1", "n2", "n3"}


def test_the_only_replica_moves_without_a_risk() -> None:
    bench = made("n1", wide=True)
    outcome = change(bench, 1, add=("n3",), drop=("n1",), wide=True)
    assert outcome.steps == (
        "adding a replica of vm1 on n3",
        "moving vm1 to n3 first",
        "dropping the replica of vm1 on n1",
    )
    assert (nodes_of(bench), bench.cluster.active("vm1")) == ("n3", ["n3"])


def replace(bench: Bench, old: str, new: str, *accepted: str) -> tuple[ReplicasOutcome, ...]:
    return replace_node(
        bench.session,
        NodeName.parse(old),
        NodeName.parse(new),
        StepContext(topology=wide_topology(), drbd_version="8.4.11", accepted=frozenset(accepted)),
        timeout_s=60,
        again="again",
    )


def test_a_dead_node_is_replaced_without_a_risk() -> None:
    bench = made("n1", "n2", wide=True)
    bench.create("vm2", nodes=("n1", "n2"))
    bench.cluster.crash("n2")
    bench.cluster.tick()
    outcomes = replace(bench, "n2", "n3")
    assert [outcome.device.name.value for outcome in outcomes] == ["vm1", "vm2"]
    assert {d["nodes"] for d in bench.cluster.devices().values()} == {"n1 n3"}
    assert replace(bench, "n2", "n3") == ()


def test_a_node_with_a_last_good_replica_is_not_replaced_and_no_device_is_touched() -> None:
    bench = made("n1", "n2", wide=True)
    bench.create("vm2", replicas="1", nodes=("n2",))
    bench.cluster.crash("n2")
    bench.cluster.tick()
    bench.cluster.patches.clear()
    with pytest.raises(Refused) as caught:
        replace(bench, "n2", "n3")
    assert codes(caught.value) == ["SAN-REP-002"]
    assert not bench.cluster.patches


def test_a_replacement_interrupted_after_the_drop_is_finished() -> None:
    bench = made("n1", "n2", wide=True)
    bench.cluster.crash("n2")
    bench.cluster.tick()
    bench.cluster.failing_starts.add("n3")
    with pytest.raises(Exception, match="no space left"):
        replace(bench, "n2", "n3")
    bench.cluster.failing_starts.clear()
    assert nodes_of(bench) == "n1 n3"
    bench.cluster.failures.clear()
    replace(bench, "n2", "n3")
    assert bench.cluster.roles["vm1", "n3"] is Role.UNPROMOTED


@pytest.mark.parametrize(
    ("old", "new", "code"), [("n1", "n1", "SAN-REP-006"), ("n1", "n9", "SAN-NODE-001")]
)
def test_a_replacement_that_makes_no_sense(old: str, new: str, code: str) -> None:
    with pytest.raises(Refused) as caught:
        replace(made("n1", "n2", wide=True), old, new)
    assert codes(caught.value) == [code]
