# SPDX-License-Identifier: GPL-2.0-or-later
"""A monitor of a device that serves fails only where the kernel says that it does not serve."""

from __future__ import annotations

import errno
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from sanctl.agents import cluster_toml, device, fingerprint, ocf, pool
from sanctl.agents.connections import (
    crashed_flag,
    frozen_primary,
    isolation,
    peers,
    reconnect_dropped,
    reconnect_outdated,
    reconnect_stalled,
)
from sanctl.agents.converge import Changes
from sanctl.agents.fencing import all_marked, cluster_run, hung_io_reboot
from sanctl.agents.promotion import admission, first_activation
from sanctl.agents.publish import replica_state
from sanctl.agents.recovery import (
    fill_outdated,
    fs_shutdown,
    heal,
    no_contact,
    reattach_disk,
    refill_suspect,
)
from sanctl.drivers import cib, drbd_kernel, drbdsetup, gate, lio, pool_files, sbd
from sanctl.errors import CommandError, ConfigError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system import state_files
from sanctl.system.runner import Runner, limit_s
from tests.fakes.node import FakeNode
from tests.support.doc_samples import ROOT

PEER = PeerState("peer", "Connected", "Secondary", "Established", "UpToDate", 0)
PRIMARY = ResourceState("vol1", "Primary", "no", "UpToDate", 1024, (PEER,), minor=3)
NOT_STARTED = CommandError(Problem("SAN-CMD-004", "drbdsetup could not be started"))
KILLED = CommandError(Problem("SAN-CMD-003", "drbdsetup: killed by signal 9"))
MISSING = CommandError(Problem("SAN-CMD-001", "drbdsetup: no such program"))
RUN = "0123456789ab-77"
SILENT = CommandError(Problem("SAN-CMD-002", "no answer within 20 s: drbdsetup"))
#: What an agent may meet for want of memory, processes or room, or by a mistake of its own.
ERRORS: tuple[Exception, ...] = (
    NOT_STARTED,
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    MemoryError(),
    ET.ParseError("no element found"),
    ValueError("could not convert string to float"),
    KeyError("id"),
)


@pytest.fixture
def serving(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    """A node that serves vol1, whose monitor finds nothing to do."""
    fake_node.ask_for_monitor(monkeypatch)
    fake_node.states["vol1"] = PRIMARY
    monkeypatch.setattr(gate, "gate_table", lambda _name: "drbd3")
    monkeypatch.setattr(gate, "is_suspended", lambda _name: False)
    monkeypatch.setattr(lio, "alua_state", lambda *_: "Active/Optimized")
    monkeypatch.setattr(lio, "is_exported", lambda _name: True)
    monkeypatch.setattr(drbd_kernel, "has_device", lambda _minor: True)
    return fake_node


def _raiser(error: Exception) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise error

    return fail


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize(
    ("module", "name"),
    [
        (frozen_primary, "call_handler_again"),
        (fs_shutdown, "release_files"),
        (replica_state, "publish"),
        (hung_io_reboot, "check"),
    ],
    ids=lambda each: str(getattr(each, "__name__", each)),
)
def test_no_error_of_a_step_makes_it_a_failed_device(
    module: object,
    name: str,
    error: Exception,
    serving: FakeNode,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, name, _raiser(error))
    assert device.monitor() == ocf.RUNNING_PROMOTED
    assert any("monitor" in line for line in serving.journal)


#: A monitor's duties, in their order: module, function, and whether the ones after it rely on it.
DUTIES: tuple[tuple[object, str, bool], ...] = (
    (Changes, "apply_access", False),
    (Changes, "apply_nodes", False),
    (Changes, "apply_sync_policy", False),
    (Changes, "start_ordered", False),
    (Changes, "begin_verify", False),
    (Changes, "grow", False),
    (Changes, "finish_growth", False),
    (Changes, "apply_read_cache", False),
    (heal, "carry_out_order", True),
    (isolation, "apply_rules", True),
    (reconnect_dropped, "reconnect", True),
    (refill_suspect, "refill_if_suspect", False),
    (replica_state, "mark_without_disk", False),
    (reattach_disk, "reattach", False),
    (fill_outdated, "fill", False),
    (reconnect_outdated, "reconnect", False),
    (reconnect_stalled, "reconnect", False),
    (crashed_flag, "clear_if_in_sync", False),
    (no_contact, "published_fields", False),
    (all_marked, "unmark_peer", False),
    (first_activation, "is_new", False),
)
REATTACH = DUTIES.index((reattach_disk, "reattach", False))
LIMIT = DUTIES.index((isolation, "apply_rules", True))
#: As it is where no test stands in for it.
APPLY_NODES = Changes.apply_nodes
STALLED = PRIMARY._replace(
    has_quorum=True, peers=(PEER._replace(replication="WFBitMapS", disk="Outdated"),)
)


class Duties:
    """Records which duties of a monitor were carried out, and on which state."""

    def __init__(self, node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node = node
        self.done: list[int] = []
        self.states: list[ResourceState] = []
        self._patch = monkeypatch
        for number, (module, name, _) in enumerate(DUTIES):
            monkeypatch.setattr(module, name, self._duty(number))

    def fail(self, number: int, *, takes_s: float = 0.0) -> None:
        """Have one duty fail after that time."""
        module, name, _ = DUTIES[number]

        def failing(*_: object) -> object:
            self.node.clock.now_s += takes_s
            raise NOT_STARTED

        self._patch.setattr(module, name, failing)

    def _duty(self, number: int) -> Callable[..., object]:
        def duty(*given: object) -> object:
            self.done.append(number)
            if isinstance(given[0], Changes) and DUTIES[number][1] == "apply_nodes":
                given[0].has_open_nodes = False
            if DUTIES[number][1] == "published_fields":
                return f" apart={number}"
            states = [each for each in given if isinstance(each, ResourceState)]
            self.states += states
            return states[0] if states else None

        return duty


@pytest.fixture
def duties(serving: FakeNode, monkeypatch: pytest.MonkeyPatch) -> Duties:
    """A node that serves vol1, whose monitor has each of its duties to do."""
    serving.states["vol1"] = STALLED
    monkeypatch.setattr(replica_state, "publish", lambda *_, **__: None)
    return Duties(serving, monkeypatch)


def test_a_monitor_has_these_duties(duties: Duties) -> None:
    assert device.monitor() == ocf.RUNNING_PROMOTED
    assert duties.done == [*range(len(DUTIES))]


def test_a_disk_that_is_negotiating_is_looked_after_as_an_exchange_of_bitmaps(
    duties: Duties,
) -> None:
    duties.node.states["vol1"] = PRIMARY._replace(disk="Negotiating")
    device.monitor()
    assert DUTIES.index((reconnect_stalled, "reconnect", False)) in duties.done


@pytest.mark.parametrize("number", range(len(DUTIES)))
def test_a_duty_that_fails_each_time_keeps_no_independent_one_from_its_turn(
    number: int, duties: Duties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All after it waited for it: a replica was never unmarked, a disk never attached."""
    told: list[str] = []
    monkeypatch.setattr(
        replica_state,
        "publish",
        lambda *_, no_contact_fields: told.append(no_contact_fields),
    )
    duties.fail(number)
    assert device.monitor() == ocf.RUNNING_PROMOTED
    chain = [at for at, duty in enumerate(DUTIES) if duty[2]]
    skipped = {number, *(at for at in (*chain, chain[-1] + 1) if at > number in chain)}
    # It writes a resource file, which nothing may before the change of nodes is through.
    skipped |= {LIMIT} if DUTIES[number][1] == "apply_nodes" else set()
    assert duties.done == [at for at in range(len(DUTIES)) if at not in skipped]
    assert sum("a change could not be applied" in line for line in duties.node.journal) == 1
    telling = DUTIES.index((no_contact, "published_fields", False))
    assert told == ["" if number == telling else f" apart={telling}"]


def test_what_follows_a_failed_duty_goes_by_what_drbd_says_then(
    duties: Duties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The duty may have changed something before it failed."""
    later = STALLED._replace(disk="Diskless")

    def half_way(*_: object) -> object:
        duties.node.states["vol1"] = later
        raise NOT_STARTED

    monkeypatch.setattr(heal, "carry_out_order", half_way)
    device.monitor()
    before = DUTIES.index((heal, "carry_out_order", True))
    assert {*duties.states[:before]} == {STALLED} and {*duties.states[before:]} == {later}


@pytest.mark.parametrize("says", [None, NOT_STARTED])
def test_nothing_follows_a_failed_duty_where_drbd_does_not_answer(
    says: CommandError | None, duties: Duties, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> object:
        monkeypatch.setattr(drbdsetup, "observe", answer if says is None else _raiser(says))
        raise KILLED

    def answer(*_: object) -> None:
        return None

    monkeypatch.setattr(reattach_disk, "reattach", silent)
    assert device.monitor() == ocf.RUNNING_PROMOTED
    assert duties.done == [*range(REATTACH)]


def test_a_duty_that_took_too_long_leaves_the_others_to_the_next_monitor(
    duties: Duties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would hang, too, and a monitor that times out is a failed one."""
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_timeout", "30000")
    monkeypatch.setattr(ocf._Begin, "at_s", duties.node.clock.now_s)
    duties.fail(REATTACH, takes_s=13.0)
    assert device.monitor() == ocf.RUNNING_PROMOTED
    assert duties.done == [*range(REATTACH)]


def test_what_follows_a_slow_failure_leaves_time_for_the_report(
    duties: Duties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them may take 20 s by itself."""
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_timeout", "30000")
    monkeypatch.setattr(ocf._Begin, "at_s", duties.node.clock.now_s)
    found: list[tuple[float, float]] = []

    def reattach(runner: Runner, *_: object) -> None:
        found.append((ocf.remaining_s(0.0), limit_s(runner, 20.0, "drbdsetup")))

    reported: list[float] = []
    monkeypatch.setattr(reattach_disk, "reattach", reattach)
    monkeypatch.setattr(
        replica_state,
        "publish",
        lambda runner, *_, **__: reported.append(limit_s(runner, 20.0, "attrd_updater")),
    )
    duties.fail(0, takes_s=10.0)
    assert device.monitor() == ocf.RUNNING_PROMOTED
    changes = DUTIES.index((heal, "carry_out_order", True))
    assert not {*range(changes + 4)} & {*duties.done}, "they would hang, too"
    ((left_s, may_take_s),) = found
    assert left_s - may_take_s == pytest.approx(10.0) and reported == [20.0]
    assert sum("applied: write-back and access list: " in line for line in duties.node.journal) == 1


def test_while_a_change_of_nodes_fails_the_limit_of_connections_alone_stays_as_it_is(
    duties: Duties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resource file with the new nodes would hide which of the old ones are connected still."""
    monkeypatch.setattr(Changes, "apply_nodes", APPLY_NODES)
    monkeypatch.setattr(peers, "apply_replica_nodes", _raiser(NOT_STARTED))
    assert device.monitor() == ocf.RUNNING_PROMOTED
    assert duties.done == [at for at in range(len(DUTIES)) if at not in {1, LIMIT}]
    duties.done.clear()
    monkeypatch.setattr(peers, "apply_replica_nodes", lambda *_: False)
    assert device.monitor() == ocf.RUNNING_PROMOTED
    assert LIMIT in duties.done


@pytest.mark.parametrize("failing", ["publish", "check", "ask_if_held"])
def test_what_is_looked_at_last_is_looked_at_each_by_itself(
    failing: str, serving: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for module, name in (
        (replica_state, "publish"),
        (hung_io_reboot, "check"),
        (admission, "ask_if_held"),
    ):
        monkeypatch.setattr(module, name, lambda *_, name=name, **__: done.append(name))
        if name == failing:
            monkeypatch.setattr(module, name, _raiser(ValueError("?")))
    assert device.monitor() == ocf.RUNNING_PROMOTED
    assert len(done) == 2 and serving.journal


@pytest.mark.parametrize("is_done", [True, False])
def test_what_is_left_to_publish_or_to_clear_is_the_next_monitors(
    is_done: bool, serving: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mark that could not be cleared would stay for as long as monitors are short."""
    left: list[int] = []
    state_files.of_device("vol1", f"was-active.{'a' * 32}").write()
    monkeypatch.setattr(replica_state, "publish", lambda *_, **__: is_done)
    monkeypatch.setattr(fingerprint, "leave", lambda *found: left.append(found[-1]))
    monkeypatch.setattr(Changes, "in_order", lambda _: ())
    assert device.monitor() == ocf.RUNNING_PROMOTED
    assert left == [ocf.RUNNING_PROMOTED] * is_done


@pytest.mark.parametrize("error", [NOT_STARTED, KILLED], ids=str)
def test_drbdsetup_that_cannot_be_run_makes_no_failed_device(
    error: CommandError, serving: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drbdsetup, "observe", _raiser(error))
    assert device.monitor() == ocf.RUNNING_PROMOTED
    assert any("DRBD could not be asked" in line for line in serving.journal)
    monkeypatch.setattr(gate, "gate_table", lambda _name: "error")
    monkeypatch.setattr(lio, "alua_state", lambda *_: "Standby")
    assert device.monitor() == ocf.SUCCESS


def test_without_drbdsetup_a_standby_is_no_candidate_and_what_serves_goes_on(
    serving: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed monitor would be followed by a stop that cannot succeed, and the node be fenced."""
    monkeypatch.setattr(drbdsetup, "observe", _raiser(MISSING))
    assert device.monitor() == ocf.RUNNING_PROMOTED
    assert not serving.calls
    monkeypatch.setattr(gate, "gate_table", lambda _name: "error")
    monkeypatch.setattr(lio, "alua_state", lambda *_: "Standby")
    assert device.monitor() == ocf.SUCCESS
    withdrawn = [call for call, _ in serving.calls if "master-vol1" in " ".join(call)]
    assert len(withdrawn) == 1
    assert "--delete" in withdrawn[0] or "-D" in withdrawn[0]
    monkeypatch.setattr(drbdsetup, "observe", _raiser(KILLED))
    assert device.monitor() == ocf.SUCCESS
    assert len([call for call, _ in serving.calls if "master-vol1" in " ".join(call)]) == 1


def test_a_node_without_drbdsetup_says_that_its_pools_cannot_be_used(
    serving: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cib, "query", lambda *_: None)
    monkeypatch.setattr(pool_files, "check_marker", lambda *_: None)
    monkeypatch.setattr(pool_files, "space_bytes", lambda _path: (1 << 30, 1 << 29))
    monkeypatch.setattr(pool_files, "allocated_bytes", lambda *_: 0)
    monkeypatch.setattr(cluster_run, "here", lambda: RUN)
    monkeypatch.setattr(sbd, "mode", lambda: "diskless")
    for has_it in (True, False, True):
        serving.calls.clear()
        serving.has_drbdsetup = has_it
        assert pool.start() == ocf.SUCCESS
        (told,) = [call for call, _ in serving.calls if "sanctl-pool-main" in " ".join(call)]
        assert ("error=SAN-CMD-001" in " ".join(told)) is not has_it
        assert (f" holds={RUN}" in " ".join(told)) is has_it
        assert (" sbd=diskless" in " ".join(told)) is has_it
        assert (f" release={ROOT.name}" in " ".join(told)) is has_it


def test_a_node_that_cannot_read_which_run_this_is_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_run, "here", _raiser(OSError(12, "no memory")))
    assert cluster_run.word() == "?"


def test_drbd_that_does_not_answer_is_a_failed_device(
    serving: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drbdsetup, "observe", _raiser(SILENT))
    with pytest.raises(CommandError):
        device.monitor()
    assert serving.journal == []


@pytest.mark.parametrize(
    "error", [OSError(5, "I/O error"), NOT_STARTED, KeyError("vol1")], ids=repr
)
def test_a_silence_that_cannot_be_explained_is_a_failed_device(
    error: Exception, serving: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drbdsetup, "observe", _raiser(SILENT))
    monkeypatch.setattr(hung_io_reboot, "check_unasked", _raiser(error))
    with pytest.raises(CommandError, match="no answer within"):
        device.monitor()
    assert any("requests that hang could not be looked for" in line for line in serving.journal)


def test_an_answer_ends_the_count_of_drbds_silence(serving: FakeNode) -> None:
    note = state_files.of_node("drbd-silent.vol1")
    note.write("1.0")
    assert device.monitor() == ocf.RUNNING_PROMOTED
    assert not note.exists()
    assert not any("could not be removed" in line for line in serving.journal)


def test_a_disk_that_hangs_and_ends_the_node_makes_no_failed_device(
    serving: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: DRBD answers about no device then, and each was demoted, stopped, and fenced."""
    monkeypatch.setattr(drbdsetup, "observe", _raiser(SILENT))
    monkeypatch.setattr(hung_io_reboot, "check_unasked", lambda *_: True)
    assert device.monitor() == ocf.RUNNING_PROMOTED
    (told,) = [line for line in serving.journal if "DRBD could not be asked" in line]
    assert "requests that hang explain that" in told
    monkeypatch.setattr(ocf, "is_probe", lambda: True)
    with pytest.raises(CommandError):
        device.monitor()
    monkeypatch.setattr(ocf, "is_probe", lambda: False)
    monkeypatch.setattr(gate, "gate_table", lambda _name: "error")
    monkeypatch.setattr(lio, "alua_state", lambda *_: "Standby")
    assert device.monitor() == ocf.SUCCESS
    assert not serving.calls
    # Nothing of the device is here but for DRBD, which said nothing: no answer, as it was.
    monkeypatch.setattr(gate, "gate_table", lambda _name: "absent")
    monkeypatch.setattr(lio, "alua_state", lambda *_: "absent")
    monkeypatch.setattr(drbd_kernel, "has_device", lambda _minor: False)
    with pytest.raises(CommandError):
        device.monitor()


def test_parts_that_disagree_are_a_failed_device(
    serving: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lio, "alua_state", lambda *_: "Standby")
    assert device.monitor() == ocf.FAILED_PROMOTED
    monkeypatch.setattr(drbdsetup, "observe", _raiser(NOT_STARTED))
    with pytest.raises(CommandError):
        device.monitor()


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_the_pool_agent_goes_on_watching(
    error: Exception, serving: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed start would end its watch on this node until an operator comes."""
    monkeypatch.setattr(cib, "query", _raiser(error))
    assert pool.start() == ocf.SUCCESS
    assert pool.monitor() == ocf.SUCCESS
    assert sum("could not be looked at" in line for line in serving.journal) == 2


@pytest.mark.usefixtures("serving")
def test_the_pool_agent_reports_a_broken_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ConfigError(Problem("SAN-CFG-001", "cluster.toml: line 3"))
    monkeypatch.setattr(cib, "query", lambda *_: None)
    monkeypatch.setattr(cluster_toml, "load_topology", _raiser(broken))
    with pytest.raises(ConfigError):
        pool.start()
    with pytest.raises(ConfigError):
        pool.monitor()
