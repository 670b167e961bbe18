# SPDX-License-Identifier: GPL-2.0-or-later
"""Copies at a second site are used: devices made from them, thrown away, and changes brought home.

A host tries to log in all the time: the first data that it is given has to be the copy's. `there`
stands for the device of another cluster that goes on from a copy of `home`: to the site it is one,
with a folder of its own.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import second_site, steps
from tests.support.doc_samples import ROOT, consoles
from tests.support.eager_host import eager_host, first_seen
from tests.support.second_site import MOUNT, PATH, SERVER, SITE, digest, sanctl, state

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

HOME, THERE, OTHER = "home0", "there0", "other0"
SIZE_MIB, WRITTEN_MIB, MIB = 64, 24, 1 << 20
_DIE = "/run/sanctl/die-after"
#: What the hosts write `there`: pieces of this size, far from each other.
PIECE_KIB, PIECES = 64, 10


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    """Return a laboratory whose pools are XFS."""
    return xfs_bed


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    return Scenario(bed, Initiator(bed, "i1"))


@pytest.fixture(scope="module")
def home(scenario: Scenario) -> Iterator[str]:
    """Make the device and a copy of it at the site; return its target's name."""
    bed = scenario.bed
    with second_site.server(bed) as server:
        target = scenario.create(HOME, f"{SIZE_MIB}M", prefer="n1")
        write(scenario, target, WRITTEN_MIB, "")
        sanctl(bed, "n1", f"site add {SITE} --ssh {server} --path {PATH}")
        copy(bed, HOME, "n2")
        yield target
        for name in (THERE, OTHER, HOME):
            bed.sh(
                "n3",
                f"sanctl device delete {name} --yes --accept SAN-DEV-023 --with-points",
                timeout_s=240,
                ok=range(256),
            )


def write(scenario: Scenario, target: str, mib: int, more: str) -> None:
    """Have the host write the begin of a device, run more commands on its $path, and log out."""
    path = scenario.host.login(target, scenario.portals(("n1", "n2")))
    begin = f"dd if=/dev/urandom of=$path bs=1M count={mib} oflag=direct conv=notrunc,fsync"
    scenario.host.sh(f"path={path}; {begin if mib else ':'}; {more or ':'}", timeout_s=180)
    scenario.host.logout(target)


def write_pieces(scenario: Scenario, target: str) -> int:
    """Write pieces that are far from each other; return how many bytes."""
    step = WRITTEN_MIB * 1024 // PIECES // 4
    write(
        scenario,
        target,
        0,
        f"for n in $(seq 0 {PIECES - 1}); do dd if=/dev/urandom of=$path bs=4k"
        f" seek=$((n * {step})) count={PIECE_KIB // 4} iflag=fullblock oflag=direct status=none;"
        " done; sync $path",
    )
    return PIECES * PIECE_KIB * 1024


def copy(bed: LabSession, name: str, node: str) -> Any:
    """Copy a device to the site; a busy machine may not make the point within half a second."""

    def once() -> Any:
        line = f"sanctl replicate run {name} --to {SITE} --output json"
        done = bed.sh(node, line, timeout_s=400, ok=range(256))
        assert done.status == 0 or "SAN-SNAP-007" in done.stdout, done.stdout + done.stderr
        return json.loads(done.stdout)["data"]

    made = wait_for(f"a copy of {name}", once, within_s=400)
    print(f"  {name}: base {made['base']}, {made['copy']['sent_bytes']} bytes sent")
    return made


def digests(bed: LabSession, name: str) -> set[str]:
    data = f"$(ls /srv/sanctl/main/devices/{name}.*.data)"
    return {digest(bed, node, data) for node in ("n1", "n2")}


def newest(bed: LabSession, name: str) -> tuple[str, str]:
    """Return the name of the newest copy of a device, and the digest of its file."""
    found = sanctl(bed, "n1", f"site copies {SITE} {name}")[0]
    return str(found["copy"]), digest(bed, SERVER, found["file"])


def came_bytes(bed: LabSession, name: str) -> int:
    """Return how many bytes came over the line for the last restore of a device."""
    found: list[str] = []
    for node in ("n1", "n2"):
        text = bed.sh(
            node, f"journalctl -b -o short-unix SANCTL_DEVICE={name} SANCTL_ACTION=restore"
        ).stdout
        found += [line for line in text.splitlines() if "bytes came" in line]
    match = re.search(r"(\d+) bytes came", max(found))
    assert match is not None
    return int(match[1])


def restored(scenario: Scenario, name: str, source: str) -> Any:
    words = f"replicate restore {source} --from {SITE} --to {name} --initiator {scenario.host.iqn}"
    return sanctl(scenario.bed, "n1", words)


def reported(bed: LabSession, name: str) -> Any:
    """Return what `report rpo` says of a device."""
    found = sanctl(bed, "n1", "report rpo --no-backups")["devices"]
    return next(each for each in found if each["device"] == name)


def await_sessions(bed: LabSession, name: str) -> None:
    """Wait until the nodes have published that no host is logged in."""
    wait_for(
        "the nodes to publish that no host is logged in",
        lambda: (
            name not in bed.sh("n3", "attrd_updater --query --all --name sanctl.sessions").stdout
        ),
        within_s=60,
    )


@contextlib.contextmanager
def eager(scenario: Scenario, name: str) -> Iterator[subprocess.Popen[str]]:
    target = f"{scenario.iqn_prefix()}.{name}"
    with eager_host(scenario.bed, scenario.host, target, scenario.portals(("n1", "n2"))) as process:
        yield process


def is_over(bed: LabSession, name: str) -> bool:
    """Whether no restore of a device is under way; Pacemaker may not say while a node is lost."""
    done = bed.sh("n3", f"sanctl device show {name} --output json", ok=range(256))
    return done.status == 0 and json.loads(done.stdout)["data"]["restore"] is None


def await_end(bed: LabSession, name: str) -> None:
    wait_for("the end of the restore", lambda: is_over(bed, name), within_s=300)


def who_may(bed: LabSession, name: str) -> str:
    """Return whom the kernels of both nodes let in to a device."""
    folders = f"/sys/kernel/config/target/iscsi/*.{name}/tpgt_*/acls/*"
    return "".join(
        bed.sh(node, f"ls -d {folders} 2>/dev/null", ok=range(256)).stdout for node in ("n1", "n2")
    )


def order(bed: LabSession, source: str) -> None:
    """Order that the device becomes a copy, and wait until both nodes let no host in.

    Or until it is that already: a quick machine lets hosts in again between two looks.
    """
    line = f"sanctl replicate failback {HOME} --from {SITE} --copy {source} --yes --timeout 1"
    done = bed.sh("n1", f"{line} --output json", timeout_s=400, ok=range(256))
    assert done.status == 0 or (done.status == 7 and "goes on by itself" in done.stdout), done
    wait_for(
        "empty access lists",
        lambda: done.status == 0 or not who_may(bed, HOME) or is_over(bed, HOME),
        within_s=60,
    )


def test_what_is_refused_changes_nothing(scenario: Scenario, home: str) -> None:
    bed = scenario.bed
    whole = state(bed)
    for node, words, status, code in (
        ("n1", f"replicate restore {HOME} --from near --to {THERE}", 4, "SAN-SITE-002"),
        ("n1", f"replicate restore nobody --from {SITE} --to {THERE}", 4, "SAN-SITE-018"),
        ("n1", f"replicate restore {HOME}@none --from {SITE} --to {THERE}", 4, "SAN-SITE-018"),
        ("n1", f"replicate restore {HOME}/x --from {SITE} --to {THERE}", 2, "SAN-SITE-001"),
        ("n1", f"replicate restore {HOME} --from {SITE} --to {HOME}", 4, "SAN-DEV-001"),
        ("n1", f"replicate failback nobody --from {SITE} --copy {HOME} --yes", 4, "SAN-DEV-002"),
    ):  # fmt: skip
        problem = sanctl(bed, node, words, status=status)[0]
        assert problem["code"] == code, problem
        print(f"  {problem['code']}: {problem['text']}")
    with eager(scenario, HOME) as host:
        first_seen(host)
        wait_for(
            "the session",
            lambda: (
                HOME in bed.sh("n3", "attrd_updater --query --all --name sanctl.sessions").stdout
            ),
            within_s=60,
        )
        words = f"replicate failback {HOME} --from {SITE} --copy {HOME} --yes"
        assert sanctl(bed, "n1", words, status=4)[0]["code"] == "SAN-REST-001"
    assert [each["name"] for each in sanctl(bed, "n3", "device list")] == [HOME]
    assert state(bed) == whole
    del home


def test_a_device_is_made_from_the_newest_copy(scenario: Scenario, home: str) -> None:
    bed, whole = scenario.bed, state(scenario.bed)
    name, wanted = newest(bed, HOME)
    with eager(scenario, THERE) as host:
        made = restored(scenario, THERE, HOME)
        assert made["state"] != "restoring" and name.partition("@")[2] in made["copy"]
        assert first_seen(host) == wanted
    assert digests(bed, THERE) == {wanted} == digests(bed, HOME)
    came = came_bytes(bed, THERE)
    print(f"  {came} bytes came for {WRITTEN_MIB} MiB that were written of {SIZE_MIB}")
    assert WRITTEN_MIB * MIB <= came <= 1.02 * WRITTEN_MIB * MIB
    assert state(bed) == whole
    found = reported(bed, HOME)
    test = found["restored"]
    assert test["into"] == THERE and test["size_bytes"] == SIZE_MIB * MIB
    assert test["duration_s"] is not None and len(found["elsewhere"][0]["kept"]) == len(whole)
    assert reported(bed, THERE)["restored"] is None
    page = bed.sh("n1", "sanctl report rpo --no-backups --output html").stdout
    assert page.startswith("<!DOCTYPE html>") and "<polyline" in page
    del home


def test_changes_made_there_come_home_as_differences(scenario: Scenario, home: str) -> None:
    bed = scenario.bed
    changed = write_pieces(scenario, f"{scenario.iqn_prefix()}.{THERE}")
    active = collect.active_node(bed, THERE)
    sent = copy(bed, THERE, "n1" if active == "n2" else "n2")
    # The first copy of that device begins as the one that it was made from; pieces of a MiB.
    assert sent["base"] is not None
    assert changed <= sent["copy"]["sent_bytes"] <= 2 * PIECES * MIB
    source, wanted = newest(bed, THERE)
    # What hosts wrote at home meanwhile differs, too.
    write(scenario, home, 1, "")
    (before,) = digests(bed, HOME)
    await_sessions(bed, HOME)
    whole = state(bed)
    problem = sanctl(bed, "n3", f"replicate failback {HOME} --from {SITE} --copy {source} --yes",
                     status=4)[0]  # fmt: skip
    assert problem["code"] == "SAN-SITE-004", "the witness has no key"
    order(bed, source)
    with eager(scenario, HOME) as host:
        await_end(bed, HOME)
        assert first_seen(host) == wanted
    assert digests(bed, HOME) == {wanted}
    came, differed = came_bytes(bed, HOME), changed + MIB
    print(f"  {came} bytes came for {differed} that differed: {came / differed:.3f}x")
    assert came <= 1.1 * differed
    assert state(bed) == whole
    # And undone: what was there before is kept.
    await_sessions(bed, HOME)
    listed = sanctl(bed, "n3", f"snapshot list {HOME}")
    kept = max(each["name"] for each in listed if each["name"].startswith("before-restore-"))
    sanctl(bed, "n3", f"device restore {HOME} --to {kept} --yes")
    assert digests(bed, HOME) == {before}


def point_names(bed: LabSession) -> list[str]:
    """Return the restore points of the device; what each holds alone is not known after a boot."""
    return [str(each["name"]) for each in sanctl(bed, "n3", f"snapshot list {HOME}")]


def finding_codes(bed: LabSession) -> set[str] | None:
    """Return the codes of findings that are no mere notes; None: the cluster does not answer."""
    done = bed.sh("n3", "sanctl status --output json", timeout_s=60, ok=range(256))
    data = json.loads(done.stdout or "{}").get("data")
    if not data:
        return None
    return {str(each["code"]) for each in data["findings"] if each["severity"] != "note"}


def test_a_first_site_that_returns_learns_that_it_was_taken_over(
    scenario: Scenario, home: str
) -> None:
    """The whole cluster is without power meanwhile, and no schedule copies the device."""
    del home
    bed = scenario.bed
    (before,) = digests(bed, HOME)
    problem = sanctl(bed, "n1", f"replicate takeover {HOME}", status=4)[0]
    assert problem["code"] == "SAN-SITE-022", problem
    taken = sanctl(bed, "n1", f"replicate takeover {THERE}")
    assert taken["changed"] and taken["instead_of"].startswith(f"{HOME}.")
    whole, points = state(bed), point_names(bed)
    # The cluster forgets it: as if it had been away when that was done.
    note = f"//nvpair[@id='sanctl-takeover.{HOME}.{SITE}']"
    bed.sh("n3", f'cibadmin --delete --xpath "{note}"')
    for node in ("n1", "n2", "n3"):
        bed.cut_power(node)
    for node in ("n1", "n2", "n3"):
        bed.ensure_power(node)
    wait_for("the finding alone", lambda: finding_codes(bed) == {"SAN-HLT-116"}, within_s=400)
    listed = sanctl(bed, "n3", "replicate status")
    (shown,) = (each for each in listed if each["device"] == HOME)
    assert shown["takeover"]["device"] == THERE
    active = collect.active_node(bed, HOME)
    standby = "n1" if active == "n2" else "n2"
    problem = sanctl(bed, standby, f"replicate run {HOME} --to {SITE} --keep 1", status=4)[0]
    assert problem["code"] == "SAN-SITE-021" and THERE in problem["text"], problem
    print(f"  {problem['code']}: {problem['text']}")
    assert state(bed) == whole and digests(bed, HOME) == {before}
    assert point_names(bed) == points
    # The site's storage goes back to an older state: who goes on is not known, and that is said.
    bed.sh(SERVER, f"rm {PATH}/{HOME}.*/takeover.json")
    problem = sanctl(bed, standby, f"replicate run {HOME} --to {SITE} --keep 1", status=4)[0]
    assert problem["code"] == "SAN-SITE-021" and "says so no more" in problem["text"], problem
    listed = sanctl(bed, "n3", "replicate status")
    assert [each["takeover_lost"] for each in listed if each["device"] == HOME] == [True]
    assert finding_codes(bed) == {"SAN-HLT-116"}
    assert state(bed) == whole and point_names(bed) == points
    # Undone: it is copied again.
    assert sanctl(bed, "n1", f"replicate giveback {HOME} --at {SITE} --yes")["changed"]
    wait_for("no finding", lambda: finding_codes(bed) == set(), within_s=60)
    copy(bed, HOME, standby)


def test_a_tested_failover_is_thrown_away(scenario: Scenario, home: str) -> None:
    bed, whole = scenario.bed, state(scenario.bed)
    (before,) = digests(bed, HOME)
    sanctl(bed, "n3", f"device delete {THERE} --yes --accept SAN-DEV-023 --with-points")
    assert state(bed) == whole and digests(bed, HOME) == {before}
    del home


@pytest.mark.parametrize("step", ["restore-chunk", "restore-copied"])
def test_the_process_is_killed(scenario: Scenario, home: str, step: str) -> None:
    bed, whole = scenario.bed, state(scenario.bed)
    write(scenario, home, 8, "")
    source, wanted = newest(bed, HOME)
    await_sessions(bed, HOME)
    active = collect.active_node(bed, HOME)
    # The node that serves runs it; after the tests before that may be either.
    bed.sh(active, f"mkdir -p {_DIE} && touch {_DIE}/{step}")
    try:
        order(bed, source)
        with eager(scenario, HOME) as host:
            await_end(bed, HOME)
            assert bed.sh(active, f"ls {_DIE}/{step}", ok=(0, 2)).status == 2, "not killed"
            assert first_seen(host) == wanted
    finally:
        bed.sh(active, f"rm -f {_DIE}/{step}")
    assert digests(bed, HOME) == {wanted} and state(bed) == whole


def test_the_serving_node_loses_power_in_the_middle(scenario: Scenario, home: str) -> None:
    bed, whole = scenario.bed, state(scenario.bed)
    name, wanted = newest(bed, HOME)
    words = (
        f"replicate restore {HOME} --from {SITE} --to {THERE} --prefer n1"
        f" --initiator {scenario.host.iqn} --timeout 40"
    )
    with contextlib.ExitStack() as dying:
        for node in ("n1", "n2"):
            dying.enter_context(steps.dies_each_time(bed, node, "restore-chunk"))
        assert "goes on by itself" in str(sanctl(bed, "n1", words, status=7))
        shown = sanctl(bed, "n3", f"device show {THERE}")
        assert shown["state"] == "restoring" and not who_may(bed, THERE)
        assert name.partition("@")[2] in shown["restore"]["point"]
        active = shown["active_node"]
        other = "n2" if active == "n1" else "n1"
        with eager(scenario, THERE) as host:
            bed.cut_power(active)
            try:
                wait_for(
                    f"{other} to serve",
                    lambda: collect.active_node(bed, THERE) == other,
                    within_s=120,
                )
                entries = f"ls -d /sys/kernel/config/target/iscsi/*.{THERE}/tpgt_*/acls/*"
                assert bed.sh(other, entries, ok=range(256)).stdout == ""
                dying.close()
                await_end(bed, THERE)
                assert first_seen(host) == wanted
            finally:
                bed.ensure_power(active)
    failover.await_healthy(bed, "n3")
    assert digests(bed, THERE) == {wanted} and state(bed) == whole
    # From the order on, whichever process ended it.
    assert reported(bed, HOME)["restored"]["duration_s"] >= 40
    sanctl(bed, "n3", f"device delete {THERE} --yes --accept SAN-DEV-023 --with-points")
    assert reported(bed, HOME)["restored"]["into"] == THERE
    del home


def test_a_damaged_copy_or_a_lost_line_lets_no_host_in(scenario: Scenario, home: str) -> None:
    """The site is mended, and it goes on by itself."""
    bed, whole = scenario.bed, state(scenario.bed)
    name, wanted = newest(bed, HOME)
    file = sanctl(bed, "n1", f"site copies {SITE} {HOME}")[0]["file"]
    bed.sh(
        SERVER,
        f"cp -a --reflink=always {file} {MOUNT}/good && chmod u+w {file}"
        f" && printf x | dd of={file} bs=1 seek={5 * MIB} conv=notrunc status=none",
    )
    words = f"replicate restore {name} --from {SITE} --to {OTHER}"
    problem = sanctl(bed, "n1", f"{words} --initiator {scenario.host.iqn}", status=5)[0]
    assert problem["code"] == "SAN-SITE-017", problem
    print(f"  {problem['code']}: {problem['text']}")
    assert not who_may(bed, OTHER)
    # The directory is another filesystem's, and then the right one again.
    bed.sh(SERVER, f"mv {MOUNT}/good {file} && umount {MOUNT}")
    wait_for(
        "the finding",
        lambda: "SAN-SITE-006" in str(sanctl(bed, "n3", f"device show {OTHER}")["restore"]),
        within_s=120,
    )
    assert "SAN-HLT-111" in bed.sh("n3", "sanctl status", ok=range(256)).stdout
    problem = sanctl(bed, "n3", f"site remove {SITE} --yes", status=4)[0]
    assert problem["code"] == "SAN-REST-005", problem
    bed.sh(SERVER, f"mount -o loop {second_site.IMAGE} {MOUNT}")
    with eager(scenario, OTHER) as host:
        await_end(bed, OTHER)
        assert first_seen(host) == wanted
    assert digests(bed, OTHER) == {wanted} and state(bed) == whole
    del home


def test_the_commands_of_the_how_to(scenario: Scenario, home: str) -> None:
    """In the order of docs/howto/site-lost.md; both clusters are this one."""
    del home
    bed = scenario.bed
    add, listed, restore, delete, takeover, schedule, again, failback, last, turn, off, end = (
        sample.command.replace("iqn.2026-11.net.example:host1", scenario.host.iqn)
        for sample in consoles(ROOT / "docs" / "howto" / "site-lost.md")
    )
    assert add.split()[:4] == ["sanctl", "site", "add", SITE], "as the fixture has done"
    target = scenario.create("vm1", "16M", prefer="n1")
    try:
        write(scenario, target, 8, "")
        copy(bed, "vm1", "n2")
        assert "vm1." in typed(bed, "n1", listed)
        whole, (wanted,) = state(bed), digests(bed, "vm1")
        typed(bed, "n1", restore)
        assert digests(bed, "vm1-dr") == {wanted}
        await_sessions(bed, "vm1-dr")
        typed(bed, "n1", delete)
        assert state(bed) == whole
        typed(bed, "n1", restore)
        write(scenario, f"{scenario.iqn_prefix()}.vm1-dr", 2, "")
        (wanted,) = digests(bed, "vm1-dr")
        typed(bed, "n1", takeover)
        active = collect.active_node(bed, "vm1")
        refused = f"replicate run vm1 --to {SITE}"
        problem = sanctl(bed, "n1" if active == "n2" else "n2", refused, status=4)[0]
        assert problem["code"] == "SAN-SITE-021", problem
        typed(bed, "n1", schedule)
        await_copy(bed, again)
        await_sessions(bed, "vm1")
        assert "no host is let in" in typed(bed, "n1", failback)
        assert digests(bed, "vm1") == {wanted} and not who_may(bed, "vm1")
        write(scenario, f"{scenario.iqn_prefix()}.vm1-dr", 1, "")
        (wanted,) = digests(bed, "vm1-dr")
        await_copy(bed, last)
        assert "it goes on instead of vm1-dr." in typed(bed, "n1", turn)
        assert digests(bed, "vm1") == {wanted}
        copy(bed, "vm1", "n2" if collect.active_node(bed, "vm1") == "n1" else "n1")
        typed(bed, "n1", off)
        typed(bed, "n1", end)
    finally:
        for name in ("vm1", "vm1-dr"):
            bed.sh(
                "n3",
                f"sanctl device delete {name} --yes --accept SAN-DEV-023 --with-points",
                timeout_s=240,
                ok=range(256),
            )


def await_copy(bed: LabSession, command: str) -> None:
    """Run a command of the page that copies vm1-dr, until it does.

    Beside a copy by schedule, a restore point is being made, or takes the other's place.
    """
    active = collect.active_node(bed, "vm1-dr")
    node = "n1" if active == "n2" else "n2"
    wait_for(
        "a copy",
        lambda: bed.sh(node, command, ok=range(256), timeout_s=120).status == 0,
        within_s=240,
    )


def typed(bed: LabSession, node: str, command: str) -> str:
    """Run a command of the page; return what it prints."""
    done = bed.sh(node, command, timeout_s=400, ok=range(256))
    print(f"  {node}: {command}\n{done.stdout}{done.stderr}")
    assert done.status == 0, command
    return done.stdout
