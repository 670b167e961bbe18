# SPDX-License-Identifier: GPL-2.0-or-later
"""The device agent alone: every OCF action in every state, killed after each of its steps.

No Pacemaker is involved: the agent is called as Pacemaker would call it. Each action is killed
after each of its steps, as a power cut of the process would do it; run again it must reach its
goal, and the opposite action must be able to undo the half that was done. What the agent says of
the half-done state must never be more than is true.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario

NAME = "agenttest"
UUID = "a" * 32
SIZE_BYTES = 16 * 2**20
MINOR = 900

SUCCESS, GENERIC, UNIMPLEMENTED, CONFIGURED = 0, 1, 3, 6
NOT_RUNNING, PROMOTED, FAILED_PROMOTED = 7, 8, 9
KILLED = 137

_IN_THE_CIB = (
    f'<clone id="sanctl-{NAME}">'
    f'<primitive id="{NAME}" class="ocf" provider="pacemaker" type="Dummy">'
    f'<meta_attributes id="{NAME}-meta"><nvpair id="{NAME}-meta-role" name="target-role"'
    ' value="Stopped"/></meta_attributes>'
    f'<instance_attributes id="{NAME}-params"><nvpair id="{NAME}-params-uuid" name="uuid"'
    f' value="{UUID}"/></instance_attributes></primitive></clone>'
)

_PARAMETERS = {
    "uuid": UUID,
    "size": str(SIZE_BYTES),
    "pool": "main",
    "replicas": "2",
    "nodes": "n1 n2",
    "minor": str(MINOR),
    "initiators": "iqn.2026-11.net.example:i1",
}

_AGENTS = "/usr/lib/ocf/resource.d/sanctl"
_OCF_1_1 = "/usr/share/pacemaker/api/ocf-ra-1.1.rng"

START_STEPS = ("files", "drbd", "gate", "target", "listing")
PROMOTE_STEPS = ("primary", "gate", "alua")
DEMOTE_STEPS = ("alua", "gate", "secondary")
STOP_STEPS = ("secondary", "target", "gate", "drbd")


@dataclass(frozen=True)
class Replica:
    """The agent's replica of the test device on one node."""

    bed: LabSession
    node: str

    def run(self, action: str, *, die_after: str = "", **changes: str) -> int:
        """Run one action and return its exit code; with `die_after` that step must be reached."""
        environment = {
            "OCF_ROOT": "/usr/lib/ocf",
            "OCF_RESOURCE_INSTANCE": NAME,
            **{f"OCF_RESKEY_{name}": value for name, value in _PARAMETERS.items()},
            "OCF_RESKEY_CRM_meta_timeout": "60000",
            **changes,
        }
        script = (
            f"env {shlex.join(f'{key}={value}' for key, value in environment.items())}"
            f" {_AGENTS}/device {action}"
        )
        if die_after:
            trap = f"/run/sanctl/die-after/{die_after}"
            script = f"mkdir -p /run/sanctl/die-after; touch {trap}; {script}; rc=$?;"
            # 1 where the process was sanctl-actions.service's: its client was not killed.
            script += f" test $rc != {GENERIC} || rc={KILLED};"
            script += f" test ! -e {trap} || rc=250; rm -f {trap}; exit $rc"
        return self.bed.sh(self.node, script, timeout_s=90, ok=range(256)).status

    def left_over(self) -> str:
        """Return what there still is of the device, but for notes that outlive its stop.

        Of a failed start, and of a replica that was whole, and alone, when it was stopped.
        """
        return self.bed.sh(
            self.node,
            f"dmsetup ls | grep {NAME}; losetup -a | grep {NAME};"
            f" ls /run/sanctl/drbd.d | grep {NAME};"
            f" drbdsetup events2 --now | grep name:{NAME};"
            f" find /sys/kernel/config/target -name '*{NAME}*'; ls /dev/mapper | grep {NAME};"
            " cd /run/sanctl; ls -A . devices node | grep -v -e ^failed- -e '^kept[.]'"
            f" | grep {NAME}",
            ok=range(256),
        ).stdout

    def forget(self) -> None:
        """Remove what a replica tells that was whole, and alone, when it was stopped."""
        self.bed.sh(
            self.node,
            f"rm -f /run/sanctl/node/kept.{NAME}; attrd_updater --delete --name kept-{NAME}",
        )

    def wipe(self, which: str = "*") -> None:
        """Remove the device's files, as if its disk had been replaced."""
        self.bed.sh(self.node, f"rm -f /srv/sanctl/main/devices/{NAME}.*{which}")

    def status(self) -> str:
        """Return what DRBD says of the device, in one line; a connection only if there is none."""
        return " ".join(
            self.bed.sh(self.node, f"drbdsetup status {NAME}", ok=range(256)).stdout.split()
        )

    def disk_is(self, state: str) -> bool:
        """Whether DRBD says this of the local disk and is connected."""
        messages = self.status()
        return f" disk:{state} " in messages and "connection:" not in messages

    def are_new(self) -> bool:
        """Whether neither replica has ever had data, and they see each other."""
        return self.disk_is("Inconsistent") and "peer-disk:Inconsistent" in self.status()


@pytest.fixture(scope="module")
def pair(scenario: Scenario) -> Iterator[tuple[Replica, Replica]]:
    """Two replicas, stopped; whatever a test leaves is taken down and removed.

    The cluster knows the device by name and UUID only: a replica is marked as outdated before it
    is filled, and of a device that the CIB does not know none can be marked.
    """
    one, two = Replica(scenario.bed, "n1"), Replica(scenario.bed, "n2")
    one.bed.sh("n1", f"cibadmin --create --scope resources --xml-text {shlex.quote(_IN_THE_CIB)}")
    yield one, two
    for replica in (one, two):
        assert replica.run("stop") == SUCCESS
        replica.wipe()
        assert replica.left_over() == ""
        replica.forget()
    # Only then: the one that stops last may mark the other.
    one.bed.sh(
        "n1",
        "cibadmin --delete-all --force --xpath"
        f" \"//rsc_location[starts-with(@id,'sanctl-outdated-{NAME}.')]\"",
        ok=range(256),
    )
    one.bed.sh("n1", f"cibadmin --delete --xml-text '<clone id=\"sanctl-{NAME}\"/>'")


@pytest.fixture
def running(pair: tuple[Replica, Replica]) -> tuple[Replica, Replica]:
    """Both replicas standby, connected and UpToDate."""
    with ThreadPoolExecutor() as pool:  # each waits for the other, for a while
        for demoted in pool.map(lambda replica: replica.run("demote"), pair):
            assert demoted in {SUCCESS, NOT_RUNNING}
        assert list(pool.map(lambda replica: replica.run("start"), pair)) == [SUCCESS, SUCCESS]
    one, _ = pair
    wait_for(
        f"{NAME} connected on {one.node}",
        lambda: one.disk_is("UpToDate") or one.are_new(),
        within_s=60,
    )
    if one.are_new():
        one.bed.sh(one.node, f"drbdsetup new-current-uuid --clear-bitmap=yes {MINOR}")
    for replica in pair:
        wait_for(
            f"{NAME} UpToDate on {replica.node}",
            lambda replica=replica: replica.disk_is("UpToDate") or None,  # type: ignore[misc]
            within_s=60,
        )
    return pair


@pytest.mark.quick
def test_absent(pair: tuple[Replica, Replica]) -> None:
    one, _ = pair
    assert one.run("monitor") == NOT_RUNNING
    assert one.run("demote") == NOT_RUNNING
    assert one.run("stop") == SUCCESS
    assert one.run("promote") == GENERIC
    assert one.run("reload-agent") == GENERIC
    assert one.run("monitor") == NOT_RUNNING
    assert one.left_over() == ""


def test_what_is_asked_wrongly_changes_nothing(pair: tuple[Replica, Replica]) -> None:
    one, _ = pair
    assert one.run("validate-all") == SUCCESS
    assert one.run("validate-all", OCF_RESKEY_initiators="not-an-iqn") == GENERIC
    assert one.run("migrate_to") == UNIMPLEMENTED
    assert one.run("start", OCF_RESKEY_pool="nowhere") == GENERIC
    assert one.left_over() == ""


@pytest.mark.quick
def test_meta_data_is_what_pacemaker_reads(pair: tuple[Replica, Replica]) -> None:
    one, _ = pair
    shown = one.bed.sh("n1", "crm_resource --show-metadata ocf:sanctl:device")
    for action in ("start", "promote", "demote", "stop", "monitor", "reload-agent"):
        assert f'<action name="{action}"' in shown.stdout
    # Pacemaker of Debian 12 brings no schema of OCF 1.1.
    one.bed.sh(
        "n1",
        f"test ! -e {_OCF_1_1} ||"
        f" {_AGENTS}/device meta-data | xmllint --noout --relaxng {_OCF_1_1} -",
    )


@pytest.mark.quick
def test_ocf_tester_finds_nothing(running: tuple[Replica, Replica]) -> None:
    """What the resource agents' own project demands of each, the other replica being there.

    Its schema is that of OCF 1.0: what 1.1 has added is taken out before it looks.
    """
    one, _ = running
    options = " ".join(f"-o {shlex.quote(f'{key}={text}')}" for key, text in _PARAMETERS.items())
    reported = one.bed.sh(
        one.node,
        "mkdir -p /run/ocf-1.0; printf '%s\\n' '#!/bin/sh'"
        " 'sed \"/reload-agent/d; s/ reloadable=.1.//; s/ unique-group=.[a-z]*.//\" |'"
        " '/usr/bin/xmllint \"$@\"' >/run/ocf-1.0/xmllint; chmod +x /run/ocf-1.0/xmllint;"
        f" PATH=/run/ocf-1.0:$PATH ocf-tester -n {NAME} {options} {_AGENTS}/device",
        timeout_s=180,
        ok=range(256),
    )
    assert reported.status == 0, reported.stdout + reported.stderr
    assert "passed all tests" in reported.stdout
    # It stops what it has started.
    assert one.left_over() == ""


@pytest.mark.parametrize("step", START_STEPS)
def test_a_start_killed_after_each_step_goes_on(pair: tuple[Replica, Replica], step: str) -> None:
    """From empty files each time: also new metadata must survive the interruption."""
    one, _ = pair
    assert one.run("stop") == SUCCESS
    one.wipe()
    assert one.run("start", die_after=step) == KILLED
    assert one.run("monitor") in {SUCCESS, GENERIC, NOT_RUNNING}
    assert one.run("start") == SUCCESS
    assert one.run("monitor") == SUCCESS


@pytest.mark.parametrize("step", START_STEPS)
def test_a_start_killed_after_each_step_can_be_stopped(
    pair: tuple[Replica, Replica], step: str
) -> None:
    one, _ = pair
    assert one.run("stop") == SUCCESS
    assert one.run("start", die_after=step) == KILLED
    assert one.run("stop") == SUCCESS
    assert one.run("monitor") == NOT_RUNNING
    assert one.left_over() == ""


@pytest.mark.parametrize("which", ["", "-gate", ".disk"])
def test_a_start_goes_on_over_a_device_without_a_table(
    pair: tuple[Replica, Replica], which: str
) -> None:
    """What a process leaves that is killed between a dm device's creation and its table."""
    one, _ = pair
    assert one.run("stop") == SUCCESS
    one.bed.sh(one.node, f"dmsetup create --notable --noudevsync sanctl-{NAME}{which}")
    assert one.run("start") == SUCCESS
    assert one.run("monitor") == SUCCESS
    assert one.run("stop") == SUCCESS
    assert one.left_over() == ""


def test_standby_states(running: tuple[Replica, Replica]) -> None:
    one, _ = running
    assert one.run("start") == SUCCESS
    assert one.run("monitor") == SUCCESS
    assert one.run("demote") == SUCCESS
    assert one.run("reload-agent") == SUCCESS
    assert one.run("monitor") == SUCCESS


def test_promoted_states(running: tuple[Replica, Replica]) -> None:
    one, two = running
    assert one.run("promote") == SUCCESS
    assert one.run("promote") == SUCCESS
    assert one.run("monitor") == PROMOTED
    assert one.run("reload-agent") == SUCCESS
    # The peer is Primary and alive: a second one must be refused, and nothing half-promoted.
    assert two.run("promote") == GENERIC
    assert two.run("monitor") == SUCCESS
    assert one.run("monitor") == PROMOTED
    assert one.run("demote") == SUCCESS
    assert one.run("monitor") == SUCCESS


@pytest.mark.parametrize("step", PROMOTE_STEPS)
def test_a_promotion_killed_after_each_step(running: tuple[Replica, Replica], step: str) -> None:
    one, two = running
    assert one.run("promote", die_after=step) == KILLED
    # After the last step only the report is missing; before it, monitor must not say PROMOTED.
    assert one.run("monitor") == (PROMOTED if step == "alua" else FAILED_PROMOTED)
    assert one.run("promote") == SUCCESS
    assert one.run("monitor") == PROMOTED
    assert one.run("demote") == SUCCESS
    # And undone from half-way: then the other node can take over at once.
    assert one.run("promote", die_after=step) == KILLED
    assert one.run("demote") == SUCCESS
    assert one.run("monitor") == SUCCESS
    assert two.run("promote") == SUCCESS
    assert two.run("demote") == SUCCESS


@pytest.mark.parametrize("step", DEMOTE_STEPS)
def test_a_demotion_killed_after_each_step(running: tuple[Replica, Replica], step: str) -> None:
    one, _ = running
    assert one.run("promote") == SUCCESS
    assert one.run("demote", die_after=step) == KILLED
    assert one.run("monitor") == (SUCCESS if step == "secondary" else FAILED_PROMOTED)
    assert one.run("demote") == SUCCESS
    assert one.run("monitor") == SUCCESS
    # Asked to serve again from half-way down.
    assert one.run("promote") == SUCCESS
    assert one.run("demote", die_after=step) == KILLED
    assert one.run("promote") == SUCCESS
    assert one.run("monitor") == PROMOTED


@pytest.mark.parametrize("step", STOP_STEPS)
def test_a_stop_killed_after_each_step(running: tuple[Replica, Replica], step: str) -> None:
    one, _ = running
    assert one.run("promote") == SUCCESS
    assert one.run("stop", die_after=step) == KILLED
    assert one.run("monitor") != PROMOTED
    assert one.run("stop") == SUCCESS
    assert one.run("monitor") == NOT_RUNNING
    assert one.left_over() == ""


@pytest.mark.parametrize("which", ["*", "data", "meta"])
def test_a_missing_file_is_a_replaced_replica(running: tuple[Replica, Replica], which: str) -> None:
    """Never a new device: it joins Inconsistent and is filled from its peer.

    Metadata without its data would call an empty file a good replica.
    """
    one, two = running
    assert two.run("promote") == SUCCESS
    two.bed.sh("n2", f"dd if=/dev/urandom of=/dev/mapper/sanctl-{NAME} bs=1M count=4 oflag=direct")
    wanted = two.bed.sh("n2", f"dd if=/dev/mapper/sanctl-{NAME} bs=1M iflag=direct | md5sum")
    assert one.run("stop") == SUCCESS
    one.wipe(which)
    assert one.run("start") == SUCCESS
    assert one.run("promote") == GENERIC
    wait_for("the resync", lambda: one.disk_is("UpToDate") or None, within_s=60)
    assert two.run("demote") == SUCCESS
    assert one.run("promote") == SUCCESS
    found = one.bed.sh("n1", f"dd if=/dev/mapper/sanctl-{NAME} bs=1M iflag=direct | md5sum")
    assert found.stdout == wanted.stdout


def test_a_file_that_lost_its_end_is_not_grown_back(running: tuple[Replica, Replica]) -> None:
    """Grown back with zeros, it would pass for the up-to-date replica its metadata calls it."""
    one, two = running
    assert two.run("promote") == SUCCESS
    assert one.run("stop") == SUCCESS
    file = f"/srv/sanctl/main/devices/{NAME}.{UUID}.data"
    one.bed.sh("n1", f"truncate --size=-4M {file}")
    assert one.run("start") == GENERIC
    assert one.bed.sh("n1", f"stat --format=%s {file}").stdout.strip() == str(SIZE_BYTES - 2**22)
    assert one.run("stop") == SUCCESS
    assert one.left_over() == ""
    # What the message asks for: without the file it is a replaced replica.
    one.bed.sh("n1", f"rm {file}")
    assert one.run("start") == SUCCESS
    wait_for("the resync", lambda: one.disk_is("UpToDate") or None, within_s=60)


def test_two_missing_files_are_never_a_new_device(pair: tuple[Replica, Replica]) -> None:
    for replica in pair:
        assert replica.run("stop") == SUCCESS
        replica.wipe()
    for replica in pair:
        assert replica.run("start") == SUCCESS
    assert [replica.run("promote") for replica in pair] == [GENERIC, GENERIC]
    assert [replica.run("monitor") for replica in pair] == [SUCCESS, SUCCESS]


def test_an_unmounted_pool_is_an_error_not_an_empty_pool(pair: tuple[Replica, Replica]) -> None:
    one, _ = pair
    assert one.run("stop") == SUCCESS
    marker, note = "/srv/sanctl/main/.sanctl-pool", f"/run/sanctl/node/failed-start.{NAME}"
    one.bed.sh("n1", f"mv {marker} {marker}.away")
    try:
        assert one.run("start") == GENERIC
        assert one.left_over() == ""
        assert one.bed.sh("n1", f"cat {note}").stdout == "main 0"
    finally:
        one.bed.sh("n1", f"mv {marker}.away {marker}")
    # The pools' own agent may have looked meanwhile, or be about to say what it saw: whoever comes
    # next wants a pool that the cluster believes in.
    usable = (
        "! pgrep -f '/resource.d/sanctl/[p]ool' >/dev/null"
        " && attrd_updater -Q -n sanctl-pool-main -N n1 | grep -q total="
    )
    wait_for(
        "the pool is usable again",
        lambda: one.bed.sh("n1", usable, ok=range(256)).status == 0,
        within_s=60,
    )
    wait_for(
        "the failed start to be over",
        lambda: one.bed.sh("n1", f"test -e {note}", ok=range(256)).status == 1,
        within_s=60,
    )
