# SPDX-License-Identifier: GPL-2.0-or-later
"""sanctl-actions.service on real kernels: stopped, killed, hung, replaced in the middle of actions.

Whatever happens to the service, an action that was asked for ends as it would without it. The
device agent is called as Pacemaker would call it, as in test_device_agent.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from sanctl.lab.harness.lab_session import LabSession, wait_for
from tests.lab.test_device_agent import (
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
