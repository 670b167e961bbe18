# SPDX-License-Identifier: GPL-2.0-or-later
"""A device that awaits its second site: who is let in after a loss of all power, and after others.

A host tries to log in all the time, and has to be given nothing while the device is held. `there`
stands for the device of another cluster that goes on from a copy of `hold0`.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import second_site
from tests.support.eager_host import eager_host, first_seen
from tests.support.second_site import MOUNT, PATH, SITE, digest, sanctl

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME, THERE = "hold0", "there1"
NODES = ("n1", "n2", "n3")
SET = f"replicate set {NAME} --to {SITE}"


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    """Return a laboratory whose pools are XFS."""
    return xfs_bed


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    return Scenario(bed, Initiator(bed, "i1"))


@pytest.fixture(scope="module")
def target(scenario: Scenario) -> Iterator[str]:
    """Make the device, a copy of it, and a device from that; return the first one's target."""
    bed = scenario.bed
    with second_site.server(bed) as server:
        made = scenario.create(NAME, "16M", prefer="n1")
        path = scenario.host.login(made, scenario.portals(("n1", "n2")))
        scenario.host.sh(f"dd if=/dev/urandom of={path} bs=1M count=4 oflag=direct conv=fsync")
        scenario.host.logout(made)
        sanctl(bed, "n1", f"site add {SITE} --ssh {server} --path {PATH}")
        wait_for("a copy", lambda: is_copied(bed), within_s=400)
        sanctl(bed, "n1", f"replicate restore {NAME} --from {SITE} --to {THERE}")
        yield made
        bed.sh("n3", f"sanctl {SET} --no-hold-after-restart", timeout_s=90, ok=range(256))
        for name in (THERE, NAME):
            bed.sh(
                "n3",
                f"sanctl device delete {name} --yes --accept SAN-DEV-023 --with-points",
                timeout_s=240,
                ok=range(256),
            )


def is_copied(bed: LabSession) -> bool:
    """Copy the device; a busy machine may not make the restore point within half a second."""
    done = bed.sh("n2", f"sanctl replicate run {NAME} --to {SITE}", timeout_s=400, ok=range(256))
    assert done.status == 0 or "SAN-SNAP-007" in done.stderr, done.stdout + done.stderr
    return done.status == 0


def access(bed: LabSession, *nodes: str) -> str:
    """Return whom the kernels of some nodes let in to the device."""
    folders = f"/sys/kernel/config/target/iscsi/*.{NAME}/tpgt_*/acls/*"
    return "".join(
        bed.sh(node, f"ls -d {folders} 2>/dev/null", ok=range(256)).stdout for node in nodes
    )


def findings(bed: LabSession) -> dict[str, str] | None:
    """Return the severities of findings that are no mere notes; None: no answer."""
    done = bed.sh("n3", "sanctl status --output json", timeout_s=60, ok=range(256))
    data = json.loads(done.stdout or "{}").get("data")
    if not data:
        return None
    found = {str(each["code"]): str(each["severity"]) for each in data["findings"]}
    return {code: severity for code, severity in found.items() if severity != "note"}


def shown(bed: LabSession) -> Any:
    return sanctl(bed, "n3", f"device show {NAME}")


@contextlib.contextmanager
def eager(scenario: Scenario, target: str) -> Iterator[subprocess.Popen[str]]:
    portals = scenario.portals(("n1", "n2"))
    with eager_host(scenario.bed, scenario.host, target, portals) as process:
        yield process


def has_been_given(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0)[0])


@contextlib.contextmanager
def all_power_lost(bed: LabSession) -> Iterator[None]:
    for node in NODES:
        bed.cut_power(node)
    try:
        yield
    finally:
        for node in NODES:
            bed.ensure_power(node)


def content(bed: LabSession) -> str:
    return digest(bed, "n1", f"$(ls /srv/sanctl/main/devices/{NAME}.*.data)")


def test_the_setting_disturbs_no_host(scenario: Scenario, target: str) -> None:
    bed = scenario.bed
    problem = sanctl(bed, "n3", f"{SET}x --hold-after-restart", status=4)[0]
    assert problem["code"] == "SAN-SITE-002", problem
    assert shown(bed)["hold"] is None
    before = access(bed, "n1", "n2")
    assert before
    assert sanctl(bed, "n3", f"{SET} --hold-after-restart")["changed"]
    assert access(bed, "n1", "n2") == before
    assert not sanctl(bed, "n3", f"{SET} --hold-after-restart")["changed"]
    wait_for(
        "the nodes to say that hosts are let in",
        lambda: shown(bed)["hold"] == {"sites": [SITE], "held": False, "why": None},
        within_s=30,
    )
    problem = sanctl(bed, "n3", f"site remove {SITE} --yes", status=4)[0]
    assert problem["code"] == "SAN-SITE-024", problem
    assert not sanctl(bed, "n3", f"replicate release {NAME} --yes")["changed"]
    del target


def crash_of_the_active_node(bed: LabSession) -> None:
    """Hosts are let in by the other node, and by this one when it is back."""
    active = collect.active_node(bed, NAME)
    assert active is not None
    other = "n2" if active == "n1" else "n1"
    bed.cut_power(active)
    try:
        wait_for(
            f"{other} to serve",
            lambda: collect.active_node(bed, NAME) == other,
            within_s=120,
        )
        assert access(bed, other), "hosts are kept out after a failover"
    finally:
        bed.ensure_power(active)
    failover.await_healthy(bed, "n3")
    wait_for(f"{active} to let hosts in", lambda: access(bed, active), within_s=40)
    assert "SAN-HLT-120" not in (findings(bed) or {})


def test_a_crash_of_each_node_in_turn_holds_nothing(scenario: Scenario, target: str) -> None:
    """The site is not there meanwhile: nobody could ask it."""
    bed = scenario.bed
    bed.sh("i1", f"umount {MOUNT}")
    crash_of_the_active_node(bed)
    crash_of_the_active_node(bed)
    for node in ("n1", "n2"):
        log = bed.sh(node, "journalctl -b SYSLOG_IDENTIFIER=sanctl").stdout
        assert NAME in log and "no host is let in yet" not in log
    bed.sh("i1", f"mount -o loop {second_site.IMAGE} {MOUNT}")
    del target


def test_no_host_is_let_in_to_a_device_that_was_taken_over(scenario: Scenario, target: str) -> None:
    bed, wanted = scenario.bed, content(scenario.bed)
    assert sanctl(bed, "n1", f"replicate takeover {THERE}")["changed"]
    # The cluster forgets it: as if it had been away when that was done.
    bed.sh("n3", f"cibadmin --delete --xpath \"//nvpair[@id='sanctl-takeover.{NAME}.{SITE}']\"")
    with contextlib.ExitStack() as stack:
        with all_power_lost(bed):
            host = stack.enter_context(eager(scenario, target))
        wait_for(
            "the findings",
            lambda: findings(bed) == {"SAN-HLT-116": "critical", "SAN-HLT-120": "critical"},
            within_s=400,
        )
        device = shown(bed)
        assert device["state"] == "held" and device["active_node"] is not None
        assert device["hold"] == {"sites": [SITE], "held": True, "why": "SAN-SITE-021"}
        (status,) = sanctl(bed, "n3", f"replicate status {NAME}")
        assert status["held"] == "SAN-SITE-021" and status["takeover"]["device"] == THERE
        problem = sanctl(bed, "n3", f"{SET} --no-hold-after-restart", status=4)[0]
        assert problem["code"] == "SAN-SITE-023", problem
        # Moved, and asked again: it stays so.
        other = "n2" if device["active_node"] == "n1" else "n1"
        sanctl(bed, "n3", f"device move {NAME} --to {other}")
        assert not access(bed, "n1", "n2") and not has_been_given(host)
        assert sanctl(bed, "n1", f"replicate giveback {NAME} --at {SITE} --yes")["changed"]
        began_s = time.monotonic()
        assert first_seen(host) == wanted
        print(f"  let in {time.monotonic() - began_s:.0f} s after the takeover had ended")
    wait_for("no finding", lambda: findings(bed) == {}, within_s=60)


def test_a_site_that_does_not_answer_lets_no_host_in(scenario: Scenario, target: str) -> None:
    """Until an administrator says so; and that holds for this start of the cluster alone."""
    bed, wanted = scenario.bed, content(scenario.bed)
    bed.sh("i1", f"umount {MOUNT}")
    for ends_by_order in (True, False):
        with contextlib.ExitStack() as stack:
            with all_power_lost(bed):
                host = stack.enter_context(eager(scenario, target))
            wait_for(
                "the finding",
                lambda: findings(bed) == {"SAN-HLT-120": "critical"},
                within_s=400,
            )
            assert shown(bed)["hold"]["why"] == "SAN-SITE-006"
            assert not access(bed, "n1", "n2") and not has_been_given(host)
            if ends_by_order:
                assert sanctl(bed, "n3", f"replicate release {NAME} --yes")["changed"]
            else:
                bed.sh("i1", f"mount -o loop {second_site.IMAGE} {MOUNT}")
            assert first_seen(host) == wanted
        wait_for("no finding", lambda: findings(bed) == {}, within_s=60)
