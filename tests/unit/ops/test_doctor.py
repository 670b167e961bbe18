# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from sanctl.cli.finding_codes import CODES as FINDING_CODES
from sanctl.drivers.node_facts import NO_CIB, Unit
from sanctl.errors import ConfigError, Problem
from sanctl.model.findings import Finding, Severity, is_degraded
from sanctl.ops import doctor
from sanctl.ops.doctor import Examination, examine
from sanctl.ops.session import Session
from sanctl.parse.corosync import Link
from sanctl.plan.health.doctor_checks import CHECKS, OF_THE_CLUSTER, checks_of
from tests.fakes.pacemaker import FakeClock, FakePacemaker, FakeReporter
from tests.fakes.remote_services import FakeRemoteServices
from tests.fakes.stonith import FakeStonith
from tests.fakes.topology import topology

SANCTL = Path(doctor.__file__).parents[1]
RUNNING = Unit(load="loaded", active="active", enabled="enabled")
MASKED = Unit(load="masked", active="inactive", enabled="masked")
MARKER = "/srv/sanctl/main/.sanctl-pool"


class FakeHost:
    def __init__(self) -> None:
        self.name = "n1"
        self.unit_states: dict[str, Unit] | None = {
            "corosync.service": RUNNING,
            "pacemaker.service": RUNNING,
            "sanctl-actions.service": RUNNING,
            "sanctl-drain.service": RUNNING,
            "sanctl-replicas.service": RUNNING,
            "target.service": MASKED,
            "rtslib-fb-targetctl.service": Unit(load="not-found", active="inactive", enabled=""),
        }
        self.modules = {"drbd", "target_core_mod", "iscsi_target_mod", "dm_mod", "loop"}
        self.texts = {MARKER: "5d4c3b2a-1f0e-4d3c-8b2a-1f0e4d3c8b2a\n"}
        self.modes = {
            "/etc/sanctl/drbd.secret": 0o600,
            "/usr/lib/ocf/resource.d/sanctl/device": 0o755,
            "/usr/lib/ocf/resource.d/sanctl/pool": 0o755,
            "/usr/lib/ocf/resource.d/sanctl/reach": 0o755,
            "/usr/lib/sanctl/program": 0o755,
        }
        self.clock: bool | None = True
        self.kernels: dict[str, str] = {}
        self.ipc_buffer: int | None = None
        self.written: list[tuple[int, int] | None] = [None]
        self.corosync_links: tuple[Link, ...] | None = None
        self.own_disk: tuple[int, int] | None = (100 << 30, 50 << 30)
        self.run_space: tuple[int, int] | None = (1 << 30, 1 << 29)

    def node_name(self) -> str:
        return self.name

    def units(self, names: Collection[str]) -> Mapping[str, Unit] | None:
        if self.unit_states is None:
            return None
        return {name: unit for name, unit in self.unit_states.items() if name in names}

    def has_module(self, name: str) -> bool:
        return name in self.modules

    def text(self, path: str) -> str | None:
        return self.texts.get(path)

    def folder_texts(self, folder: str) -> Mapping[str, str]:
        return {
            path.removeprefix(f"{folder}/"): text
            for path, text in self.texts.items()
            if path.startswith(f"{folder}/")
        }

    def mode(self, path: str) -> int | None:
        return self.modes.get(path)

    def owner(self, path: str) -> int | None:
        return 0 if path in self.modes else None

    def ipc_buffer_bytes(self) -> int | None:
        return self.ipc_buffer

    def written_cib_version(self) -> tuple[int, int] | None:
        return self.written.pop(0) if len(self.written) > 1 else self.written[0]

    def links(self) -> tuple[Link, ...] | None:
        return self.corosync_links

    def kernel_modules(self) -> Mapping[str, str]:
        return self.kernels

    def run_bytes(self) -> tuple[int, int] | None:
        return self.run_space

    def own_disk_bytes(self) -> tuple[int, int] | None:
        return self.own_disk

    def is_clock_synchronised(self) -> bool | None:
        return self.clock


def check(
    host: FakeHost,
    cluster: FakePacemaker | None = None,
    stonith: FakeStonith | None = None,
    remote: FakeRemoteServices | None = None,
) -> Examination:
    session = Session(cluster or FakePacemaker(), FakeClock(), FakeReporter())
    return examine(
        session,
        host,
        stonith or FakeStonith(),
        remote=remote or FakeRemoteServices(),
        topology=topology(),
        config_error=None,
    )


def test_all_is_well() -> None:
    result = check(FakeHost())
    assert result.findings == ()
    assert all(count == 0 for _, count in result.checks)


def test_others_are_asked_from_a_storage_node_alone() -> None:
    remote, host = FakeRemoteServices(), FakeHost()
    remote.fail("points of n2 from n1", "SAN-SNAP-004")
    assert [each.code for each in check(host, remote=remote).findings] == ["SAN-DOC-052"]
    remote.asked.clear()
    host.name, host.modules, host.texts, host.modes = "n3", set(), {}, {}
    assert check(host, remote=remote).findings == ()
    assert remote.asked == []


def test_a_witness_needs_no_storage() -> None:
    host = FakeHost()
    host.name, host.modules, host.texts, host.modes = "n3", set(), {}, {}
    assert check(host).findings == ()


@pytest.mark.parametrize(
    ("field", "value", "codes"),
    [
        ("unit_states", None, {"SAN-DOC-004"}),
        ("modules", {"drbd", "target_core_mod", "iscsi_target_mod", "dm_mod"}, {"SAN-DOC-010"}),
        ("texts", {}, {"SAN-DOC-040"}),
        ("texts", {MARKER: "other"}, {"SAN-DOC-041"}),
        ("modes", {}, {"SAN-DOC-020", "SAN-DOC-022"}),
        ("name", "n9", {"SAN-DOC-024"}),
        ("clock", False, {"SAN-DOC-030"}),
        ("clock", None, set()),
        (
            "texts",
            {
                MARKER: "5d4c3b2a-1f0e-4d3c-8b2a-1f0e4d3c8b2a\n",
                "/proc/swaps": "Filename Type\n/dev/dm-3 partition\n",
                "/sys/class/block/dm-3/dm/uuid": "mpath-36001405aa\n",
            },
            {"SAN-DOC-012"},
        ),
        ("ipc_buffer", 1024, {"SAN-CLU-006"}),
        ("ipc_buffer", 1 << 20, set()),
    ],
)
def test_local_findings(field: str, value: object, codes: set[str]) -> None:
    host = FakeHost()
    setattr(host, field, value)
    assert {finding.code for finding in check(host).findings} == codes


@pytest.mark.parametrize(
    ("written", "is_said"),
    [
        ([None], False),
        ([(0, 1)], True),
        ([(0, 1), (0, 1), (0, 2)], False),  # it was being written
        ([(9, 0)], False),
        ([NO_CIB], True),  # EIO
    ],
)
@pytest.mark.parametrize("node", ["n1", "n3"])
def test_a_cib_that_is_not_written_to_disk(
    node: str, written: list[tuple[int, int] | None], is_said: bool
) -> None:
    """What broke: nothing but Pacemaker's log said it, and marks were lost with the power."""
    host = FakeHost()
    host.name, host.written = node, [*written]
    found = [each.subject for each in check(host).findings if each.code == "SAN-HLT-140"]
    assert found == ([f"node {node}"] if is_said else [])


@pytest.mark.parametrize(
    ("space", "is_said"),
    [
        (None, False),
        ((0, 0), False),
        ((4 << 30, 600 << 20), False),
        ((4 << 30, 400 << 20), True),
        ((100 << 30, 4 << 30), True),
        # A large disk has enough, and a small one is not full.
        ((2 << 40, 20 << 30), False),
        ((2 << 40, 9 << 30), True),
        ((1 << 30, 300 << 20), False),
        ((1 << 30, 200 << 20), True),
    ],
)
def test_little_room_on_the_nodes_own_disk(space: tuple[int, int] | None, is_said: bool) -> None:
    host = FakeHost()
    host.own_disk = space
    assert [each.code for each in check(host).findings] == (["SAN-HLT-141"] if is_said else [])
    host.own_disk, host.run_space = None, space
    assert [each.code for each in check(host).findings] == (["SAN-HLT-162"] if is_said else [])


def told(host: FakeHost, *published: str) -> list[tuple[str, str]]:
    """What the doctor says on n1, which has published that, of the disks and links of nodes."""
    cluster = FakePacemaker(golden="one-device")
    for node, value in zip(("n1", "n2"), published, strict=False):
        cluster.attribute(node, "sanctl-pool-main", f"total=100 free=90 {value}")
    codes = {"SAN-HLT-140", "SAN-HLT-141", "SAN-HLT-145", "SAN-HLT-162"}
    return [(e.code, e.subject) for e in check(host, cluster).findings if e.code in codes]


_PUBLISHED = "cib=unwritten own-disk=0 run-free=0 links-down=1:2"


def test_its_own_look_outweighs_what_the_node_has_published() -> None:
    """What broke: for a minute after the mend it said what it saw was not so any more."""
    host = FakeHost()
    host.written = [(9, 0)]
    host.corosync_links = (Link(0, 2, True), Link(1, 2, True))
    others = [(f"SAN-HLT-{each}", "node n2") for each in (140, 141, 145, 162)]
    assert told(host, _PUBLISHED, _PUBLISHED) == others
    # What it cannot see it takes from there.
    host.written, host.own_disk, host.run_space, host.corosync_links = [None], None, None, None
    assert len(told(host, _PUBLISHED)) == 4


def test_a_lost_link_is_seen_from_here() -> None:
    host = FakeHost()
    host.corosync_links = (
        Link(0, 2, True),
        Link(1, 2, False),
        Link(0, 3, False),
        Link(1, 3, False),
    )
    assert told(host) == [("SAN-HLT-145", "node n1")]
    host.corosync_links = (Link(0, 2, False), Link(1, 2, False))
    assert told(host) == [], "it is away"


def test_a_link_that_has_just_come_up_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    host = FakeHost()
    looks = [(Link(0, 2, True), Link(1, 2, False)), (Link(0, 2, True), Link(1, 2, True))]
    monkeypatch.setattr(host, "links", lambda: looks.pop(0))
    assert told(host) == [] and not looks


@pytest.mark.parametrize(
    ("unit", "state", "code"),
    [
        (
            "corosync.service",
            Unit(load="loaded", active="failed", enabled="enabled"),
            "SAN-DOC-001",
        ),
        (
            "pacemaker.service",
            Unit(load="loaded", active="active", enabled="disabled"),
            "SAN-DOC-002",
        ),
        (
            "target.service",
            Unit(load="loaded", active="inactive", enabled="disabled"),
            "SAN-DOC-003",
        ),
        (
            "sanctl-actions.service",
            Unit(load="loaded", active="activating", enabled="static"),
            "SAN-DOC-006",
        ),
        (
            "sanctl-drain.service",
            Unit(load="not-found", active="inactive", enabled=""),
            "SAN-DOC-005",
        ),
        (
            "sanctl-logins.service",
            Unit(load="loaded", active="failed", enabled="enabled"),
            "SAN-DOC-008",
        ),
    ],
)
def test_services(unit: str, state: Unit, code: str) -> None:
    host = FakeHost()
    assert host.unit_states is not None
    host.unit_states[unit] = state
    assert [finding.code for finding in check(host).findings] == [code]


@pytest.mark.parametrize(
    ("sub", "codes"), [("start-post", []), ("start", []), ("auto-restart", ["SAN-DOC-008"])]
)
def test_logins_that_wait_for_their_disks_are_right(sub: str, codes: list[str]) -> None:
    host = FakeHost()
    assert host.unit_states is not None
    host.unit_states["sanctl-logins.service"] = Unit(
        load="loaded", active="activating", enabled="enabled", sub=sub
    )
    assert [finding.code for finding in check(host).findings] == codes


def test_a_node_that_would_not_come_back_is_a_finding_that_counts() -> None:
    """With a note the exit status was 0, and after the next power cut the node stayed away."""
    host = FakeHost()
    assert host.unit_states is not None
    host.unit_states["pacemaker.service"] = Unit(load="loaded", active="active", enabled="disabled")
    result = check(host)
    assert is_degraded(result.findings)
    assert dict(result.checks)["services"] == 1


def test_a_secret_others_can_read() -> None:
    host = FakeHost()
    host.modes["/etc/sanctl/drbd.secret"] = 0o644
    assert [finding.code for finding in check(host).findings] == ["SAN-DOC-021"]


@pytest.mark.parametrize(
    ("kib", "version", "codes"),
    [("200", "8.4.11", []), ("200", "9.3.3", ["SAN-DOC-011"]), ("x", "9.3.3", [])],
)
def test_memory_for_the_bitmaps_of_this_nodes_replicas(
    kib: str, version: str, codes: list[str]
) -> None:
    host = FakeHost()
    host.texts |= {
        "/proc/meminfo": f"MemTotal:       {kib} kB\nMemFree:  7 kB\n",
        "/sys/module/drbd/version": f"{version}\n",
    }
    cluster = FakePacemaker(golden="one-device")
    found = [finding.code for finding in check(host, cluster).findings]
    assert [code for code in found if code.startswith("SAN-DOC-")] == codes
    # What it has published itself is not said twice; of another node only that is known.
    for node in ("n1", "n2"):
        value = "total=100 free=90 memory=204800 bitmaps=3"
        cluster.attribute(node, "sanctl-pool-main", value)
    again = [(each.code, each.subject) for each in check(host, cluster).findings]
    assert [each for each in again if each[0] == "SAN-HLT-165"] == [("SAN-HLT-165", "node n2")]
    assert [code for code, _ in again if code.startswith("SAN-DOC-")] == codes


def test_without_pacemaker_what_can_be_checked_is_checked() -> None:
    fake = FakePacemaker()
    fake.is_down = True
    host = FakeHost()
    host.modules = set()
    result = check(host, fake)
    assert {finding.code for finding in result.findings} == {"SAN-CLU-002", "SAN-DOC-010"}
    assert dict(result.checks)["devices"] is None
    assert dict(result.checks)["kernel"] == 5


def test_without_a_configuration() -> None:
    session = Session(FakePacemaker(), FakeClock(), FakeReporter())
    error = ConfigError(Problem("SAN-CONF-001", "not TOML"))
    result = examine(
        session,
        FakeHost(),
        FakeStonith(),
        remote=FakeRemoteServices(),
        topology=None,
        config_error=error,
    )
    assert [finding.code for finding in result.findings] == ["SAN-CONF-001"]
    assert dict(result.checks)["cluster.toml"] == 1


def test_a_fencing_device_that_does_not_answer_is_found_before_it_is_needed() -> None:
    stonith = FakeStonith()
    stonith.silent["fence-n2"] = "Connection timed out"
    result = check(FakeHost(), stonith=stonith)
    assert [finding.code for finding in result.findings] == ["SAN-FEN-002"]
    assert dict(result.checks)["fencing"] == 1


def test_a_fencer_that_does_not_answer_is_not_taken_for_a_good_one() -> None:
    stonith = FakeStonith()
    stonith.is_down = True
    result = check(FakeHost(), stonith=stonith)
    assert [finding.code for finding in result.findings] == ["SAN-CMD-002"]
    assert dict(result.checks)["fencing"] is None


def test_unattended_updates_of_the_cluster_are_found_on_a_witness_too() -> None:
    for name in ("n1", "n3"):
        host = FakeHost()
        host.name = name
        host.texts["/etc/apt/apt.conf.d/20auto-upgrades"] = 'APT::Periodic::Unattended-Upgrade "1";'
        result = check(host)
        assert [finding.code for finding in result.findings] == ["SAN-DOC-007"]
        assert dict(result.checks)["services"] == 1


def _codes_of_sources() -> set[str]:
    """The codes that are said in what finds something; SAN-DOC-0, a beginning, is none."""
    found = set(FINDING_CODES)
    for folder in ("plan/health", "ops"):
        for path in (SANCTL / folder).glob("*.py"):
            found.update(re.findall(r"SAN-(?:HLT|DOC)-\d{3}", path.read_text(encoding="utf-8")))
    return found


def test_each_code_of_a_finding_belongs_to_one_check() -> None:
    """What no check counts is "ok" in the list of checks, however bad it is."""
    codes = _codes_of_sources()
    assert {"SAN-HLT-125", "SAN-HLT-091", "SAN-DOC-040"} <= codes
    assert {code: checks_of(code) for code in sorted(codes) if len(checks_of(code)) != 1} == {}
    assert {name for name, _ in CHECKS} >= OF_THE_CLUSTER


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("SAN-HLT-125", "devices"),
        ("SAN-HLT-111", "devices"),
        ("SAN-HLT-120", "devices"),
        ("SAN-HLT-127", "devices"),
        ("SAN-HLT-057", "devices"),
        ("SAN-HLT-130", "devices"),
        ("SAN-HLT-131", "fencing"),
        ("SAN-HLT-124", "restore points"),
        ("SAN-HLT-091", "pools"),
        ("SAN-HLT-129", "hosts"),
        ("SAN-HLT-116", "second sites"),
        ("SAN-HLT-158", "backups"),
        ("SAN-HLT-168", "devices"),
        ("SAN-HLT-169", "backups"),
        ("SAN-HLT-171", "backups"),
        ("SAN-HLT-172", "backups"),
        ("SAN-HLT-051", "leftovers"),
    ],
)
def test_a_check_with_a_critical_finding_is_not_ok(
    monkeypatch: pytest.MonkeyPatch, code: str, name: str
) -> None:
    bad = Finding(code=code, severity=Severity.CRITICAL, subject="device vm1", what="it is bad")
    monkeypatch.setattr(doctor, "all_findings", lambda *_, **__: (bad,))
    assert {name: count for name, count in check(FakeHost()).checks if count} == {name: 1}


def test_of_a_cluster_that_does_not_answer_nothing_is_ok() -> None:
    fake = FakePacemaker()
    fake.is_down = True
    checks = dict(check(FakeHost(), fake).checks)
    assert {name for name, count in checks.items() if count is None} == OF_THE_CLUSTER


@pytest.mark.parametrize(
    ("version", "codes"), [("9.2.1\n", ["SAN-DOC-010"]), ("8.4.11\n", []), (None, [])]
)
def test_an_installed_kernel_without_the_drbd_that_runs(
    version: str | None, codes: list[str]
) -> None:
    host = FakeHost()
    host.kernels = {"6.1.0-29-amd64": "kernel/drivers/block/drbd/drbd.ko:\n"}
    host.texts["/proc/sys/kernel/osrelease"] = "6.1.0-28-amd64\n"
    if version is not None:
        host.texts["/sys/module/drbd/version"] = version
    assert [each.code for each in check(host).findings] == codes
