# SPDX-License-Identifier: GPL-2.0-or-later
"""The roles turn: the device at home is held as a copy, and a later one comes as what has changed.

A host tries to log in at home while that is held, and is given nothing before the roles have
turned; its first data then have to be the last copy's. `there` stands for the device of another
cluster.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.lab.test_site_restore import (
    MIB,
    PIECES,
    SIZE_MIB,
    WRITTEN_MIB,
    await_sessions,
    copy,
    digests,
    newest,
    who_may,
    write,
    write_pieces,
)
from tests.support import second_site, steps
from tests.support.eager_host import eager_host, first_seen
from tests.support.second_site import PATH, SITE, sanctl, state

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

HOME, THERE = "turn0", "turndr0"
_DIE = "/run/sanctl/die-after"
#: For so long a host that tries all the time is given nothing.
_NOTHING_S = 10.0
#: Longer than the deadlines of what is done meanwhile come to.
_TRIES_S = 2400


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    """Return a laboratory whose pools are XFS."""
    return xfs_bed


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    return Scenario(bed, Initiator(bed, "i1"))


@pytest.fixture(scope="module")
def there(scenario: Scenario) -> Iterator[str]:
    """Make a device, a copy of it, and the one that goes on instead; return that one's target."""
    bed = scenario.bed
    with second_site.server(bed) as server:
        target = scenario.create(HOME, f"{SIZE_MIB}M", prefer="n1")
        write(scenario, target, WRITTEN_MIB, "")
        sanctl(bed, "n1", f"site add {SITE} --ssh {server} --path {PATH}")
        copy(bed, HOME, "n2")
        words = f"replicate restore {HOME} --from {SITE} --to {THERE} --prefer n1"
        sanctl(bed, "n1", f"{words} --initiator {scenario.host.iqn}")
        sanctl(bed, "n1", f"replicate takeover {THERE}")
        yield f"{scenario.iqn_prefix()}.{THERE}"
        for name in (THERE, HOME):
            bed.sh(
                "n3",
                f"sanctl device delete {name} --yes --accept SAN-DEV-023 --with-points",
                timeout_s=240,
                ok=range(256),
            )


def changed_there(scenario: Scenario, target: str) -> tuple[str, str, int]:
    """Write there, and copy that; return the copy, the digest of its file, and how much it was."""
    changed = write_pieces(scenario, target)
    active = collect.active_node(scenario.bed, THERE)
    copy(scenario.bed, THERE, "n1" if active == "n2" else "n2")
    source, wanted = newest(scenario.bed, THERE)
    return source, wanted, changed


def fail_back(bed: LabSession, source: str, options: str = "--hold", *, status: int = 0) -> Any:
    words = f"replicate failback {HOME} --from {SITE} --copy {source} {options} --yes"
    return sanctl(bed, "n1", words, status=status)


def shown(bed: LabSession) -> dict[str, Any]:
    """Return what is said of the restore; Pacemaker may not say while a node is lost."""
    done = bed.sh("n3", f"sanctl device show {HOME} --output json", ok=range(256))
    return dict(json.loads(done.stdout)["data"]["restore"] or {}) if done.status == 0 else {}


def is_held_as(bed: LabSession, source: str) -> bool:
    found = shown(bed)
    return bool(found.get("held")) and f"/{source.partition('@')[2]}." in str(found["point"])


def await_held(bed: LabSession, source: str) -> None:
    wait_for(f"it to be held as {source}", lambda: is_held_as(bed, source), within_s=300)


def await_both(bed: LabSession) -> None:
    """Wait until both replicas are the same."""
    active = collect.active_node(bed, HOME)
    other = "n2" if active == "n1" else "n1"
    wait_for(
        "the replicas to be in sync", lambda: collect.is_in_sync(bed, other, HOME), within_s=240
    )


def read_bytes(bed: LabSession) -> int:
    """Return how much the last process read that brought what had changed; -1: none has."""
    found: list[str] = []
    for node in ("n1", "n2"):
        words = f"journalctl -b -o short-unix SANCTL_DEVICE={HOME} SANCTL_ACTION=restore"
        lines = bed.sh(node, words, ok=(0, 1)).stdout.splitlines()
        found += [line for line in lines if "bytes came" in line]
    match = re.search(r"(\d+) bytes were read", max(found))
    return int(match[1]) if match else -1


@contextlib.contextmanager
def given_nothing(scenario: Scenario) -> Iterator[None]:
    """Have the host try to log in at home while the block lasts, and see that it gets nothing."""
    target = f"{scenario.iqn_prefix()}.{HOME}"
    portals = scenario.portals(("n1", "n2"))
    with eager_host(scenario.bed, scenario.host, target, portals, within_s=_TRIES_S) as host:
        yield
        assert host.stdout is not None
        assert not select.select([host.stdout], [], [], _NOTHING_S)[0], "a host was let in"
        assert host.poll() is None, "it tries no more"
    assert not who_may(scenario.bed, HOME)


def test_it_is_held_after_the_first_failback(scenario: Scenario, there: str) -> None:
    bed = scenario.bed
    source, wanted, _ = changed_there(scenario, there)
    await_sessions(bed, HOME)
    made = fail_back(bed, source)
    assert made["held"] and made["kept"] and is_held_as(bed, source)
    with given_nothing(scenario):
        assert digests(bed, HOME) == {wanted}
        assert read_bytes(bed) == -1, "the first one reads all"
        assert "SAN-HLT-167" in bed.sh("n3", "sanctl status", ok=range(256)).stdout
        for words in (
            f"device resize {HOME} 128M",
            f"snapshot create {HOME} --name no",
            f"device restore {HOME} --cancel",
        ):
            assert sanctl(bed, "n3", words, status=4)[0]["code"] == "SAN-REST-014"
    assert is_held_as(bed, source) and digests(bed, HOME) == {wanted}


def test_it_is_held_over_a_failover(scenario: Scenario, there: str) -> None:
    del there
    bed = scenario.bed
    (before,) = digests(bed, HOME)
    source = newest(bed, THERE)[0]
    active = collect.active_node(bed, HOME)
    other = "n2" if active == "n1" else "n1"
    with given_nothing(scenario):
        bed.cut_power(active)
        try:
            wait_for(
                f"{other} to serve",
                lambda: collect.active_node(bed, HOME) == other,
                within_s=120,
            )
            await_held(bed, source)
        finally:
            bed.ensure_power(active)
        await_both(bed)
    assert is_held_as(bed, source) and digests(bed, HOME) == {before}


def test_a_later_copy_comes_as_what_has_changed(scenario: Scenario, there: str) -> None:
    bed = scenario.bed
    source, wanted, changed = changed_there(scenario, there)
    whole = state(bed)
    with given_nothing(scenario):
        began_s = time.monotonic()
        made = fail_back(bed, source)
        took_s = time.monotonic() - began_s
        assert made["held"] and digests(bed, HOME) == {wanted}
    read = read_bytes(bed)
    print(f"  {took_s:.1f} s, {read} bytes read for {changed} that had changed of {SIZE_MIB} MiB")
    assert changed <= read <= 2 * PIECES * MIB < SIZE_MIB * MIB
    assert state(bed) == whole


@pytest.mark.parametrize(
    "step", ["restore-ready", "restore-begun", "restore-chunk", "restore-copied"]
)
def test_the_process_is_killed(scenario: Scenario, there: str, step: str) -> None:
    bed = scenario.bed
    source, wanted, _ = changed_there(scenario, there)
    active = collect.active_node(bed, HOME)
    bed.sh(active, f"mkdir -p {_DIE} && touch {_DIE}/{step}")
    try:
        with given_nothing(scenario):
            fail_back(bed, source)
            assert bed.sh(active, f"ls {_DIE}/{step}", ok=(0, 2)).status == 2, "not killed"
            assert digests(bed, HOME) == {wanted}
    finally:
        bed.sh(active, f"rm -f {_DIE}/{step}")
    # Before it began nothing was written, so what had changed was enough; else all was read.
    assert (read_bytes(bed) == -1) is (step != "restore-ready")


def test_the_serving_node_loses_power_in_the_middle(scenario: Scenario, there: str) -> None:
    bed = scenario.bed
    source, wanted, _ = changed_there(scenario, there)
    with contextlib.ExitStack() as dying:
        for node in ("n1", "n2"):
            dying.enter_context(steps.dies_each_time(bed, node, "restore-chunk"))
        fail_back(bed, source, "--hold --timeout 20", status=7)
        found, active = shown(bed), collect.active_node(bed, HOME)
        assert found["copying"] and not found["held"]
        other = "n2" if active == "n1" else "n1"
        with given_nothing(scenario):
            bed.cut_power(active)
            try:
                wait_for(
                    f"{other} to serve",
                    lambda: collect.active_node(bed, HOME) == other,
                    within_s=120,
                )
                assert not shown(bed).get("held")
                dying.close()
                await_held(bed, source)
            finally:
                bed.ensure_power(active)
            await_both(bed)
    assert digests(bed, HOME) == {wanted}


def test_a_later_copy_is_withdrawn_before_it_begins(scenario: Scenario, there: str) -> None:
    bed = scenario.bed
    (before,) = digests(bed, HOME)
    first = newest(bed, THERE)[0]
    source, _, _ = changed_there(scenario, there)
    with given_nothing(scenario), contextlib.ExitStack() as dying:
        for node in ("n1", "n2"):
            dying.enter_context(steps.dies_each_time(bed, node, "restore-ready"))
        fail_back(bed, source, "--hold --timeout 10", status=7)
        sanctl(bed, "n3", f"device restore {HOME} --cancel")
    assert is_held_as(bed, first) and digests(bed, HOME) == {before}


def test_the_roles_turn_before_a_host_is_let_in(scenario: Scenario, there: str) -> None:
    bed = scenario.bed
    source, wanted, changed = changed_there(scenario, there)
    target = f"{scenario.iqn_prefix()}.{HOME}"
    with eager_host(bed, scenario.host, target, scenario.portals(("n1", "n2"))) as host:
        made = fail_back(bed, source, "--takeover")
        assert made["took_over"] and not made["held"] and made["kept"]
        assert first_seen(host) == wanted
    print(f"  {made['duration_s']:.1f} s beside the takeover")
    assert changed <= read_bytes(bed) <= 4 * PIECES * MIB
    listed = sanctl(bed, "n3", "replicate status")
    taken = {each["device"]: each["takeover"] for each in listed}
    assert taken[HOME] is None and taken[THERE]["device"] == HOME
    assert bed.sh("n3", f"sanctl replicate failback {HOME} --release").status == 0, "nothing to do"
