# SPDX-License-Identifier: GPL-2.0-or-later
"""A device goes back to a restore point in place, whatever dies meanwhile; no host sees half of it.

A host tries to log in all the time, on both portals: the first data that it is given has to be what
the device held at the restore point.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import eager_host as eager
from tests.support import steps
from tests.support.eager_host import first_seen

pytestmark = pytest.mark.faults

NAME = "rest0"
SIZE_MIB = 64
_DATA = f"/srv/sanctl/main/devices/{NAME}.*.data"
_DIE = "/run/sanctl/die-after"


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    """Return a laboratory whose pools are XFS."""
    return xfs_bed


class Bed:
    """A device, and the host that writes it."""

    def __init__(self, scenario: Scenario, target: str) -> None:
        self.lab, self.host, self.target = scenario.bed, scenario.host, target
        self.portals = scenario.portals(("n1", "n2"))
        #: The digest of the restore point `good`.
        self.good = ""

    def write(self, mib: int) -> str:
        """Have the host overwrite the begin of the device; return the whole device's digest."""
        path = self.host.login(self.target, self.portals)
        self.host.sh(
            f"dd if=/dev/urandom of={path} bs=1M count={mib} oflag=direct conv=notrunc,fsync",
            timeout_s=120,
        )
        self.host.logout(self.target)
        (found,) = self.digests()
        return found

    def digest(self, node: str) -> str:
        return self.lab.sh(node, f"sha256sum <$(ls {_DATA})", timeout_s=120).stdout.split()[0]

    def digests(self) -> set[str]:
        return {self.digest(node) for node in ("n1", "n2")}

    def sanctl(self, words: str, *, status: int = 0, timeout_s: float = 300.0) -> Any:
        done = self.lab.sh(
            "n3", f"sanctl {words} --output json", timeout_s=timeout_s, ok=range(256)
        )
        assert done.status == status, done.stdout + done.stderr
        found = json.loads(done.stdout)
        return found["data"] if not status else found["problems"]

    def show(self) -> Any:
        return self.sanctl(f"device show {NAME}", timeout_s=60)

    def await_session(self, *, is_there: bool) -> None:
        """Wait until the nodes have published that the host is logged in, or that none is."""

        def is_seen() -> bool:
            answer = self.lab.sh("n3", "attrd_updater --query --all --name sanctl.sessions").stdout
            return (NAME in answer) == is_there

        wait_for("the nodes to publish the host's sessions", is_seen, within_s=60)

    def restore(self, point: str) -> str:
        """Go back to a restore point, and return the name of the one that keeps what was there."""
        self.await_session(is_there=False)
        return str(self.sanctl(f"device restore {NAME} --to {point} --yes")["kept"])


@pytest.fixture(scope="module")
def own(bed: LabSession) -> Iterator[Bed]:
    scenario = Scenario(bed, Initiator(bed, "i1"))
    target = scenario.create(NAME, f"{SIZE_MIB}M", prefer="n1", nodes=("n1", "n2"))
    made = Bed(scenario, target)
    made.good = made.write(SIZE_MIB // 2)  # the rest is zeros, and holes in the files
    steps.take_point(bed, "n3", NAME, "good")
    yield made
    made.host.logout(target)
    bed.sh(
        "n3",
        f"sanctl device delete {NAME} --yes --accept SAN-DEV-023 --with-points",
        timeout_s=240,
        ok=(0, 4),
    )


@contextlib.contextmanager
def eager_host(own: Bed) -> Iterator[subprocess.Popen[str]]:
    """Have the host try to log in for as long as the block lasts."""
    with eager.eager_host(own.lab, own.host, own.target, own.portals) as process:
        yield process


def half_restored(own: Bed, node: str) -> contextlib.AbstractContextManager[None]:
    """Have each copying process of a node die after its first few MiB, while the block lasts."""
    return steps.dies_each_time(own.lab, node, "restore-chunk")


def order(own: Bed, point: str, more: str = "") -> None:
    """Order a restore, and wait until both nodes let no host in."""
    own.await_session(is_there=False)
    line = f"device restore {NAME} --to {point} --yes --timeout 1 {more}"
    problems = own.sanctl(line, status=7)
    assert "goes on by itself" in str(problems)
    entries = f"cd /sys/kernel/config/target/iscsi/{own.target} && ls tpgt_*/acls"
    wait_for(
        "empty access lists",
        lambda: all("iqn" not in own.lab.sh(n, entries).stdout for n in ("n1", "n2")),
        within_s=60,
    )


def begin(own: Bed, point: str, before: str, more: str = "") -> None:
    """Order a restore, and wait until the device holds parts of two states."""
    order(own, point, more)
    wait_for("a part of the copy", lambda: own.digest("n1") != before, within_s=120)
    shown = own.show()
    assert shown["state"] == "restoring" and shown["restore"]["copying"]


def await_end(own: Bed) -> None:
    def is_over() -> bool:
        # Pacemaker may not answer while a node is lost.
        done = own.lab.sh("n3", f"sanctl device show {NAME} --output json", ok=range(256))
        return done.status == 0 and json.loads(done.stdout)["data"]["restore"] is None

    wait_for("the end of the restore", is_over, within_s=240)


def test_it_is_what_it_was_and_can_be_undone(own: Bed) -> None:
    later = own.write(SIZE_MIB)
    with eager_host(own) as host:
        assert first_seen(host) == later
        own.await_session(is_there=True)
        problems = own.sanctl(f"device restore {NAME} --to good --yes", status=4)
        assert "SAN-REST-001" in str(problems) and own.host.iqn in str(problems)
        assert own.show()["restore"] is None
    kept = own.restore("good")
    assert own.digests() == {own.good}
    with eager_host(own) as host:
        assert first_seen(host) == own.good
    assert own.restore(kept) != kept
    assert own.digests() == {later}
    delete_kept(own)


def test_what_is_refused_changes_nothing(own: Bed) -> None:
    own.await_session(is_there=False)
    for words, code in (
        (f"device restore {NAME} --to none --yes", "SAN-SNAP-009"),
        ("device restore none --to good --yes", "SAN-DEV-002"),
        (f"device restore {NAME} --to Not/One --yes", "SAN-NAME-008"),
    ):
        done = own.lab.sh("n3", f"sanctl {words}", ok=range(256), timeout_s=60)
        assert done.status in {2, 4} and code in done.stderr, done.stderr
    refused = own.lab.sh("n3", f"sanctl device restore {NAME} --to good </dev/null", ok=range(256))
    assert refused.status == 2 and "SAN-CLI-002" in refused.stderr
    assert own.show()["restore"] is None
    assert [each["name"] for each in own.sanctl(f"snapshot list {NAME}")] == ["good"]


@pytest.mark.parametrize(
    "step",
    ["restore-ready", pytest.param("restore-chunk", marks=pytest.mark.quick), "restore-copied"],
)
def test_the_process_is_killed(own: Bed, step: str) -> None:
    own.write(SIZE_MIB)
    active = collect.active_node(own.lab, NAME)
    own.lab.sh(active, f"mkdir -p {_DIE} && touch {_DIE}/{step}")
    order(own, "good")
    with eager_host(own) as host:
        await_end(own)
        assert own.lab.sh(active, f"ls {_DIE}/{step}", ok=(0, 2)).status == 2, "not killed"
        assert first_seen(host) == own.good
    assert own.digests() == {own.good}
    delete_kept(own)


def test_the_active_node_loses_power_in_the_middle(own: Bed) -> None:
    later = own.write(SIZE_MIB)
    with half_restored(own, "n1"):
        begin(own, "good", later)
        with eager_host(own) as host:
            refused_meanwhile(own)
            own.lab.cut_power("n1")
            try:
                await_end(own)
                assert first_seen(host) == own.good
                assert own.digest("n2") == own.good
                assert collect.active_node(own.lab, NAME) == "n2"
            finally:
                own.lab.ensure_power("n1")
    failover.await_healthy(own.lab, "n3")
    assert own.digests() == {own.good}
    own.sanctl(f"device move {NAME} --to n1")
    delete_kept(own)


def refused_meanwhile(own: Bed) -> None:
    """Check that nothing gets in the way of a restore that is under way."""
    (kept,) = [
        each["name"] for each in own.sanctl(f"snapshot list {NAME}") if each["name"] != "good"
    ]
    for words in (
        f"snapshot delete {NAME}@good --yes",
        f"snapshot delete {NAME}@{kept} --yes",
        f"snapshot create {NAME}",
        f"device resize {NAME} 1G",
        f"device replicas {NAME} 1 --drop n2 --yes",
    ):
        assert "SAN-REST-005" in str(own.sanctl(words, status=4, timeout_s=120)), words
    found = own.lab.sh("n3", "sanctl status", ok=range(256), timeout_s=60)
    assert found.status == 1 and "SAN-HLT-110" in found.stdout


def delete_kept(own: Bed) -> None:
    for each in own.sanctl(f"snapshot list {NAME}"):
        if each["name"] != "good":
            own.sanctl(f"snapshot delete {NAME}@{each['name']} --yes")


def test_the_standby_loses_power_in_the_middle(own: Bed) -> None:
    later = own.write(SIZE_MIB)
    with half_restored(own, "n1"):
        begin(own, "good", later)
        own.lab.cut_power("n2")
    try:
        with eager_host(own) as host:
            await_end(own)
            assert first_seen(host) == own.good
        assert own.digest("n1") == own.good
    finally:
        own.lab.ensure_power("n2")
    failover.await_healthy(own.lab, "n3")
    assert own.digests() == {own.good}
    delete_kept(own)


def test_a_node_without_the_restore_point_stays_closed(own: Bed) -> None:
    """Moved to such a node the device waits, and says so; back on the other one it goes on."""
    own.lab.sh("n3", "sanctl node standby n2", timeout_s=180)
    try:
        steps.take_point(own.lab, "n3", NAME, "alone")
    finally:
        own.lab.sh("n3", "sanctl node online n2", timeout_s=180)
    wait_for("both replicas", lambda: collect.is_in_sync(own.lab, "n1", NAME), within_s=120)
    (alone,) = own.digests()
    later = own.write(SIZE_MIB)
    with half_restored(own, "n1"):
        begin(own, "alone", later, "--accept SAN-REST-011")
        own.sanctl(f"device move {NAME} --to n2")
        wait_for(
            "the finding",
            lambda: "SAN-HLT-111" in own.lab.sh("n3", "sanctl status", ok=range(256)).stdout,
            within_s=60,
        )
        assert "SAN-REST-002" in own.show()["restore"]["problem"]
    with eager_host(own) as host:
        own.sanctl(f"device move {NAME} --to n1")
        await_end(own)
        assert first_seen(host) == alone
    assert own.digests() == {alone}
