# SPDX-License-Identifier: GPL-2.0-or-later
"""sanctl-actions.service on real kernels: stopped, killed, hung, replaced, short of memory.

Whatever happens to the service, an action that was asked for ends as it would without it. The
device agent is called as Pacemaker would call it, as in test_device_agent.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sanctl.lab.harness.lab_session import LabSession, wait_for
from tests.lab.test_device_agent import (
    GENERIC,
    NAME,
    NOT_RUNNING,
    PROMOTED,
    SUCCESS,
    Replica,
    pair,
    running,
)

__all__ = ["pair", "running"]

_UNIT = "sanctl-actions.service"
_MAIN = f"$(systemctl show --value --property MainPID {_UNIT})"
_BACK_WITHIN_S = 90.0
_MONITORED_AFTER = {"start": SUCCESS, "promote": PROMOTED, "demote": SUCCESS, "stop": NOT_RUNNING}
#: What is done to the service, and what takes it back.
_FAULTS = {
    "kill": ("kill -9 $main", ":"),
    "stop": (f"systemctl stop {_UNIT}", f"systemctl start {_UNIT}"),
    "freeze": ("kill -STOP $main", ":"),
    "replace": (
        "cd /opt/sanctl; old=$(readlink current); test -e $old.x || cp -a $old $old.x;"
        " ln -sfn $old.x current.new; mv -T current.new current",
        "cd /opt/sanctl; old=$(readlink current); ln -sfn ${old%.x} current.new;"
        " mv -T current.new current; rm -rf ${old%.x}.x",
    ),
}
#: What the unit may have at most, and where the kernel says so. The service itself is one process;
#: in so little memory it cannot be, and systemd starts it again and again.
_LIMITS = {
    "processes": ("TasksMax=1", "pids.max", "1"),
    "memory": ("MemoryMax=8M", "memory.max", str(8 << 20)),
}
_GROUP = f"/sys/fs/cgroup/system.slice/{_UNIT}"


def is_active(bed: LabSession) -> bool:
    return bed.sh("n1", f"systemctl is-active {_UNIT}", ok=range(256)).stdout == "active\n"


def main_pid(bed: LabSession) -> str:
    return bed.sh("n1", f"echo {_MAIN}").stdout.strip()


@pytest.fixture
def served(running: tuple[Replica, Replica]) -> Iterator[Replica]:
    """The replica on n1, with the service there active before and after."""
    one, _ = running
    wait_for("the service", lambda: is_active(one.bed), within_s=_BACK_WITHIN_S)
    yield one
    wait_for("the service", lambda: is_active(one.bed), within_s=_BACK_WITHIN_S)


def forked(one: Replica, action: str, since: str) -> bool:
    """Whether steps of an action since a time were logged by a process of the service."""
    found = one.bed.sh(
        one.node,
        f"journalctl --since {shlex.quote(since)} --output cat SANCTL_DEVICE={NAME}"
        f" SANCTL_ACTION={action} _SYSTEMD_UNIT={_UNIT}",
    )
    return bool(found.stdout.strip())


def now(one: Replica) -> str:
    return one.bed.sh(one.node, "date '+%F %T'").stdout.strip()


def test_actions_are_forked_by_the_service_and_run_without_it(served: Replica) -> None:
    since = now(served)
    assert served.run("promote") == SUCCESS
    assert served.run("monitor") == PROMOTED
    assert forked(served, "promote", since)
    served.bed.sh("n1", f"systemctl stop {_UNIT}")
    try:
        since = now(served)
        assert served.run("demote") == SUCCESS
        assert served.run("monitor") == SUCCESS
        assert not forked(served, "demote", since)
        assert served.bed.sh("n1", "sanctl doctor", ok=range(256)).stdout.count("SAN-DOC-006") == 1
    finally:
        served.bed.sh("n1", f"systemctl start {_UNIT}")


def test_a_service_that_hangs_is_killed_and_comes_back(served: Replica) -> None:
    before = main_pid(served.bed)
    served.bed.sh("n1", f"kill -STOP {before}")
    assert served.run("monitor") == SUCCESS
    wait_for(
        "another service in the place of the one that hangs",
        lambda: main_pid(served.bed) not in {before, "0"} and is_active(served.bed),
        within_s=_BACK_WITHIN_S,
    )
    assert served.run("monitor") == SUCCESS


def disturbed(one: Replica, action: str, fault: str) -> int:
    """Run an action, disturb the service while it runs, and return the exit status."""
    doing, undoing = _FAULTS[fault]
    status = one.run(
        f"{action} & action=$!; main={_MAIN};"
        " while kill -0 $action 2>/dev/null && ! grep -q . /proc/$main/task/$main/children; do :;"
        f" done; ({doing}); wait $action; rc=$?; ({undoing}); (exit $rc)"
    )
    wait_for("the service", lambda: is_active(one.bed), within_s=_BACK_WITHIN_S)
    return status


def go_round(one: Replica, fault: str) -> None:
    """Take the replica through all actions, each disturbed."""
    for action in ("promote", "demote", "stop", "start"):
        assert disturbed(one, action, fault) == SUCCESS, action
        assert one.run("monitor") == _MONITORED_AFTER[action]


def test_a_service_killed_in_the_middle_of_each_action(served: Replica) -> None:
    go_round(served, "kill")


@pytest.mark.faults
@pytest.mark.parametrize("fault", ["stop", "freeze", "replace"])
def test_a_service_disturbed_in_the_middle_of_each_action(served: Replica, fault: str) -> None:
    go_round(served, fault)


@pytest.mark.parametrize("delay_s", [0.0, 0.1, 0.4])
def test_a_killed_client_leaves_no_action_behind(served: Replica, delay_s: float) -> None:
    """As at Pacemaker's timeout; then the cluster demotes."""
    status = served.run(f"promote & action=$!; sleep {delay_s}; kill -9 $action; wait $action; :")
    assert status == SUCCESS
    main = main_pid(served.bed)
    wait_for(
        "the end of what was forked",
        lambda: not served.bed.sh("n1", f"cat /proc/{main}/task/{main}/children").stdout.split(),
        within_s=60.0,
    )
    assert served.run("demote") == SUCCESS
    assert served.run("monitor") == SUCCESS


@contextmanager
def limits_lifted(one: Replica) -> Iterator[None]:
    """Take the unit's limits back at the end, and wait for the service."""
    try:
        yield
    finally:
        one.bed.sh(
            one.node,
            f"systemctl set-property --runtime {_UNIT} TasksMax=infinity MemoryMax=infinity;"
            f" rm -rf /run/systemd/system.control/{_UNIT}.d; systemctl daemon-reload",
        )
        wait_for("the service", lambda: is_active(one.bed), within_s=_BACK_WITHIN_S)


def has_limit(one: Replica, limit: str) -> bool:
    """Whether the kernel knows the limit; between two starts of the service there is no group."""
    _, name, value = _LIMITS[limit]
    found = one.bed.sh(one.node, f"cat {_GROUP}/{name}", ok=range(256))
    return found.stdout.strip() == value


def assert_forked_again(one: Replica) -> None:
    """The service forks actions, as before."""
    since = now(one)
    assert one.run("promote") == SUCCESS
    assert forked(one, "promote", since)
    assert one.run("demote") == SUCCESS


@pytest.mark.parametrize("limit", list(_LIMITS))
def test_actions_of_a_service_that_cannot_fork_are_run_by_their_clients(
    served: Replica, limit: str
) -> None:
    before = main_pid(served.bed)
    with limits_lifted(served):
        served.bed.sh("n1", f"systemctl set-property --runtime {_UNIT} {_LIMITS[limit][0]}")
        wait_for("the limit", lambda: has_limit(served, limit), within_s=_BACK_WITHIN_S)
        since = now(served)
        for action in ("promote", "demote", "stop", "start"):
            assert served.run(action) == SUCCESS, action
            assert served.run("monitor") == _MONITORED_AFTER[action]
            assert not forked(served, action, since)
        if limit == "processes":
            said = served.bed.sh("n1", f"journalctl --since '{since}' --output cat -u {_UNIT}")
            assert "no process for an action" in said.stdout
            assert main_pid(served.bed) == before, "it ended because it could not fork"
    assert_forked_again(served)


@pytest.mark.faults
@pytest.mark.parametrize("limit", list(_LIMITS))
def test_a_service_short_of_processes_or_memory_in_the_middle_of_each_action(
    served: Replica, limit: str
) -> None:
    """What runs then may fail, or be killed; the same action, by its client, ends what it began."""
    setting = f"systemctl set-property --runtime {_UNIT} {_LIMITS[limit][0]}"
    for action in ("promote", "demote", "stop", "start"):
        with limits_lifted(served):
            status = served.run(
                f"{action} & action=$!; main={_MAIN};"
                " while kill -0 $action 2>/dev/null"
                " && ! grep -q . /proc/$main/task/$main/children; do :; done;"
                f" {setting}; wait $action"
            )
            assert status in {SUCCESS, GENERIC}, action
            wait_for("the limit", lambda: has_limit(served, limit), within_s=_BACK_WITHIN_S)
            if status != SUCCESS:
                assert served.run(action) == SUCCESS, f"{action} again"
            assert served.run("monitor") == _MONITORED_AFTER[action]
            wait_for(
                "the end of what was forked",
                lambda: len(served.bed.sh("n1", f"cat {_GROUP}/cgroup.procs", ok=range(256))
                            .stdout.split()) <= 1,
                within_s=60.0,
            )  # fmt: skip
    assert_forked_again(served)
