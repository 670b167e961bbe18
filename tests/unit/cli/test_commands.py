# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import io
import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

import sanctl.cli.environment
from sanctl.cli.main import main
from sanctl.drivers import host_secrets
from sanctl.errors import ConfigError, Problem
from sanctl.model.cib_change import SetPoint, SetStopped
from sanctl.model.host_session import SESSIONS_ATTRIBUTE
from sanctl.model.names import DeviceName
from sanctl.model.restore_point import RestorePoint
from sanctl.model.topology import Topology
from sanctl.ops.session import Session
from tests.fakes.pacemaker import FakeClock, FakePacemaker, FakeReporter
from tests.fakes.stonith import FakeStonith
from tests.fakes.topology import topology
from tests.support.json_contract import breaches

I1 = "iqn.2026-11.net.example:i1"
Run = Callable[..., tuple[int, str, str]]


class FakeEnvironment:
    def __init__(self) -> None:
        self.pacemaker = FakePacemaker()
        self.stonith = FakeStonith()
        self.clock = FakeClock(self.pacemaker.tick)
        self.reporter = FakeReporter()
        self.records: list[str] = []
        self.has_topology = True
        self.uuids = 0

    @contextmanager
    def session(self) -> Iterator[Session]:
        yield Session(self.pacemaker, self.clock, self.reporter)

    def topology(self) -> Topology:
        if not self.has_topology:
            raise ConfigError(Problem("SAN-CLI-003", "cluster.toml cannot be read"))
        return topology()

    def drbd_version(self) -> str | None:
        return "8.4.11"

    def ipc_buffer_bytes(self) -> int:
        return 128 << 10

    def new_uuid(self) -> str:
        self.uuids += 1
        return f"{self.uuids:032x}"

    @contextmanager
    def logged(self, action: str, *, device: str = "", command_line: str = "") -> Iterator[None]:
        self.records.append(command_line)
        yield


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> FakeEnvironment:
    fake = FakeEnvironment()
    monkeypatch.setattr(sanctl.cli.environment, "Environment", lambda: fake)
    return fake


@pytest.fixture
def run(
    env: FakeEnvironment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # nobody answers a question

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sanctl", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        code = stop.value.code
        assert isinstance(code, int) or code is None
        return int(code or 0), output.out, output.err

    return call


def data_of(out: str) -> Any:
    document = json.loads(out)
    assert document["schema"] == 1
    return document["data"]


def test_a_device_from_creation_to_deletion(run: Run, env: FakeEnvironment) -> None:
    status, out, err = run("device", "create", "vm1", "--size", "1G", "--initiator", I1)
    assert (status, err) == (0, "")
    assert out.startswith("device vm1: 1 GiB, served by n1")
    assert "iqn.2026-11.net.example:lab.vm1" in out

    status, out, _ = run("device", "list")
    assert status == 0
    assert " ".join(out.split()).endswith("vm1 1 GiB ok n1 n1 UpToDate, n2 UpToDate")
    status, out, _ = run("device", "move", "vm1", "--to", "n2", "--output", "json")
    assert data_of(out)["active_node"] == "n2" and data_of(out)["changed"]
    status, out, _ = run("device", "resize", "vm1", "2G")
    assert out == "device vm1 has 2 GiB; hosts see the new size after a rescan\n"
    status, out, _ = run("target", "show", "vm1")
    assert "portals n2:   10.77.1.2:3260 (group 2)" in out
    status, out, _ = run("target", "deny", "vm1", I1.upper())
    assert out == f"{I1} may no longer use device vm1\n"
    status, out, _ = run("target", "allow", "vm1", I1)
    status, out, _ = run("target", "allow", "vm1", I1)
    assert (status, out) == (0, f"{I1} may use device vm1 already: nothing to do\n")
    status, out, _ = run("status")
    assert status == 0
    assert out.splitlines()[0] == "healthy: 3 of 3 nodes online (node-majority), 1 of 1 devices ok"
    status, out, _ = run("device", "show", "vm1")
    assert "wwid:         36001405" in out
    status, out, _ = run("node", "standby", "n2")
    assert out == "node n2 is in standby\n"
    status, out, _ = run("status", "--output", "json")
    assert status == 1
    assert data_of(out)["devices"][0]["active_node"] == "n1"
    status, out, _ = run("node", "online", "n2")
    assert status == 0
    status, out, _ = run("device", "delete", "vm1", "--yes")
    assert (status, out) == (0, "device vm1 is deleted\n")
    assert env.records[0] == "device create vm1"
    assert run("device", "show", "vm1")[0] == 4


def test_the_names_of_many_devices_come_from_a_file(
    run: Run, env: FakeEnvironment, tmp_path: Path
) -> None:
    names = tmp_path / "names"
    names.write_text("vm1  # the first\n\n# none\nvm2\n")
    status, out, _ = run("device", "create", "vm0", "--names-from", str(names), "--size", "100M")
    assert status == 0
    assert [line.split(":")[0] for line in out.splitlines() if line.startswith("device ")] == [
        "device vm0",
        "device vm1",
        "device vm2",
    ]
    assert out.splitlines()[-1].startswith("3 devices, ")
    assert len(env.pacemaker.patches) == 1
    status, out, _ = run("device", "create", "--size", "1G")
    assert (status, len(env.pacemaker.patches)) == (2, 1)


def test_a_file_gives_devices_their_sizes(run: Run, env: FakeEnvironment, tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_text("vm1 100M  # its own\nvm2\n")
    status, _, err = run("device", "create", "--names-from", str(names))
    assert status == 2 and "Missing option '--size' for vm2." in err
    names.write_text("vm1 100M  # its own\nvm2 10X\nvm3 1G 2G\n")
    status, _, err = run("device", "create", "--names-from", str(names))
    assert status == 2 and [line.split(":")[0] for line in err.splitlines()] == ["SAN-NAME-006"] * 2
    assert env.pacemaker.patches == []
    names.write_text("vm1 100M  # its own\nvm2\n")
    status, out, _ = run(
        "device", "create", "--names-from", str(names), "--size", "1G", "--output", "json"
    )
    assert status == 0
    assert {each["name"]: each["size"] for each in data_of(out)} == {
        "vm1": 100 << 20,
        "vm2": 1 << 30,
    }
    assert len(env.pacemaker.patches) == 1


def test_many_devices_are_deleted_by_one_command(
    run: Run, env: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("device", "create", "vm1", "vm2", "vm3", "--size", "100M")
    asked: list[str] = []
    monkeypatch.setattr("click.confirm", lambda text, **_: asked.append(text))
    status, out, err = run("device", "delete", "vm1", "vm2", "vm1")
    assert (status, out) == (0, "device vm1 is deleted\ndevice vm2 is deleted\n")
    assert asked == ["Delete these 2 devices?"]
    assert "device vm2 of 100 MiB: its data will be lost" in err
    assert set(env.pacemaker.devices()) == {"vm3"}
    status, _, err = run("device", "delete", "VM4", "VM5", "vm3", "--yes")
    assert status == 2 and err.count("SAN-NAME-001") == 2
    status, _, err = run("device", "delete", "vm4", "vm3", "--yes")
    assert status == 4 and set(env.pacemaker.devices()) == {"vm3"}
    run("device", "create", "vm4", "--size", "100M")
    status, out, _ = run("device", "delete", "vm3", "vm4", "--yes", "--output", "json")
    assert data_of(out) == [{"name": "vm3", "away": []}, {"name": "vm4", "away": []}]


def test_refusals_are_one_line_each_and_change_nothing(run: Run, env: FakeEnvironment) -> None:
    status, out, err = run(
        "device", "create", "VM", "--size", "x", "--nodes", "n1,n3", "--initiator", "bad"
    )
    assert (status, out) == (2, "")
    assert [line.split(":")[0] for line in err.splitlines()] == [
        "SAN-NAME-001",
        "SAN-NAME-006",
        "SAN-NAME-005",
        "SAN-NODE-002",
    ]
    assert env.pacemaker.patches == []
    assert run("device", "create", "vm1", "--size", "1T")[0] == 4
    assert run("device", "create", "vm1", "--size", "1G", "--replicas", "3")[0] == 4
    assert env.pacemaker.patches == []


@pytest.mark.parametrize(
    ("words", "status", "word", "code"),
    [
        (("device", "create", "vm1"), 2, "usage", "SAN-CLI-001"),
        (("bogus",), 2, "usage", "SAN-CLI-001"),
        (("device", "show", "nope"), 4, "refused", "SAN-DEV-002"),
        (("device", "show", "NO"), 2, "usage", "SAN-NAME-001"),
        (("device", "resize", "NO", "x"), 2, "usage", "SAN-NAME-001"),
        (("target", "allow", "NO", "x"), 2, "usage", "SAN-NAME-001"),
        (("explain", "SAN-NO-001"), 2, "usage", "SAN-CLI-004"),
    ],
)
def test_failures_are_json_too(
    run: Run, words: tuple[str, ...], status: int, word: str, code: str
) -> None:
    got, out, err = run(*words, "--output", "json")
    document = json.loads(out)
    assert got == status
    assert (document["schema"], document["status"], document["data"]) == (1, word, None)
    assert document["problems"][0]["code"] == code
    assert code in err


def test_every_refusal_of_two_arguments_is_reported(run: Run) -> None:
    _, _, err = run("device", "resize", "NO", "x")
    assert [line.split(":")[0] for line in err.splitlines()] == ["SAN-NAME-001", "SAN-NAME-006"]


def test_no_cluster(run: Run, env: FakeEnvironment) -> None:
    env.pacemaker.is_down = True
    assert run("status")[0] == 6
    env.has_topology = False
    assert run("node", "list")[0] == 3


def test_status_without_cluster_toml_is_degraded(run: Run, env: FakeEnvironment) -> None:
    env.has_topology = False
    status, out, _ = run("status")
    assert status == 1
    assert "SAN-CLI-003" in out


def test_delete_asks(run: Run, env: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    run("device", "create", "vm1", "--size", "1G")
    monkeypatch.setattr("click.confirm", lambda *_, **__: (_ for _ in ()).throw(_abort()))
    status, out, err = run("device", "delete", "vm1")
    assert (status, out) == (2, "")
    assert "SAN-CLI-002" in err
    assert "vm1" in env.pacemaker.devices()


@pytest.mark.parametrize(
    ("text", "who"),
    [
        (f"{I1},10.0.0.7=other,vm1", f"hosts are logged in to device vm1: {I1}"),
        ("?", "n2 does not say who is logged in to device vm1"),
        (None, "n2 does not say who is logged in to device vm1"),
    ],
)
def test_a_device_that_a_host_is_logged_in_to_is_not_deleted(
    run: Run, env: FakeEnvironment, text: str | None, who: str
) -> None:
    """Its queued writes would go to the next device of that name."""
    run("device", "create", "vm1", "vm2", "--size", "100M")
    said = env.pacemaker.private_attributes
    del said["n2", SESSIONS_ATTRIBUTE]
    if text is not None:
        said["n2", SESSIONS_ATTRIBUTE] = text
    said["n1", SESSIONS_ATTRIBUTE] = f"{I1},10.0.0.7=other"
    status, _, err = run("device", "delete", "vm2", "vm1", "--yes")
    assert status == 4 and f"SAN-DEV-023: {who}" in err
    assert ("device vm2" in err) == (I1 not in who), "of no other device"
    assert set(env.pacemaker.devices()) == {"vm1", "vm2"}
    assert run("device", "delete", "vm1", "--yes", "--accept", "SAN-SNAP-013")[0] == 4
    assert run("device", "delete", "vm1", "--yes", "--accept", "SAN-DEV-023")[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("target", "deny", "vm1", "--host", "web1"),
        ("target", "deny", "vm1", "--host-group", "web"),
        ("target", "deny", "vm2", I1),
        ("host", "group", "remove", "web", "--host", "web1"),
        ("host", "set", "web1", "--remove-iqn", "iqn.2026-11.net.example:w2"),
        ("target", "deny", "vm1", "--all"),
        ("target", "deny", "vm2", "--all"),
    ],
)
def test_sessions_that_would_end_are_named_and_it_asks(
    run: Run, env: FakeEnvironment, words: tuple[str, ...]
) -> None:
    """At the third site at night: what the hosts still write waits for a path."""
    first, second = "iqn.2026-11.net.example:w1", "iqn.2026-11.net.example:w2"
    run("host", "create", "web1", "--iqn", first, "--iqn", second)
    run("device", "create", "vm1", "vm2", "vm3", "--size", "100M")
    run("target", "allow", "vm2", I1)
    if "web" in words:
        run("host", "group", "create", "web", "--host", "web1")
        run("target", "allow", "vm1", "--host-group", "web")
    else:
        run("target", "allow", "vm1", "--host", "web1")
    before = env.pacemaker.devices()
    said = env.pacemaker.private_attributes
    logged_in = I1 if "vm2" in words else second
    device = "vm2" if "vm2" in words else "vm1"
    said["n1", SESSIONS_ATTRIBUTE] = f"{logged_in},10.0.0.7={device}"
    status, _, err = run(*words)
    assert status == 2 and "SAN-CLI-002" in err
    assert f"device {device}: " in err and f"logged in now: {logged_in}" in err
    assert env.pacemaker.devices() == before
    said["n1", SESSIONS_ATTRIBUTE] = ""
    del said["n2", SESSIONS_ATTRIBUTE]
    status, _, err = run(*words)
    assert status == 2 and "n2 does not say who is logged in" in err
    said["n2", SESSIONS_ATTRIBUTE] = f"{logged_in},10.0.0.7=vm3"
    if "--all" in words:
        status, _, err = run(*words)
        assert status == 2 and "nobody is logged in" in err, "that of another device"
        words = (*words, "--yes")
    status, out, _ = run(*words)
    assert status == 0, "no session of it would end"
    assert ("no host may use device" in out) == ("--all" in words)


def test_all_hosts_are_kept_from_a_device(run: Run, env: FakeEnvironment) -> None:
    iqn = "iqn.2026-11.net.example:w1"
    for name, each in (("web1", iqn), ("db1", "iqn.2026-11.net.example:d1")):
        run("host", "create", name, "--iqn", each)
    run("host", "group", "create", "web", "--host", "web1")
    run("device", "create", "vm1", "--size", "100M")
    for who in (("--host-group", "web"), ("--host", "db1"), (I1,)):
        assert run("target", "allow", "vm1", *who)[0] == 0
    assert run("target", "deny", "vm1", I1, "--all")[0] == 2
    said = env.pacemaker.private_attributes
    said["n1", SESSIONS_ATTRIBUTE] = f"{iqn},10.0.0.7=vm1"
    status, _, err = run("target", "deny", "vm1", "--all")
    assert status == 2 and f"3 initiators may use it; logged in now: {iqn}" in err
    out = run("target", "deny", "vm1", "--all", "--yes", "--output", "json")[1]
    assert breaches("target deny", out) == []
    found = data_of(out)
    assert (found["initiators"], found["hosts"], found["host_groups"]) == ([], [], [])
    assert found["lost"] == sorted([iqn, "iqn.2026-11.net.example:d1", I1.lower()])
    status, out, _ = run("target", "deny", "vm1", "--all")
    assert status == 0 and "nothing to do" in out


def test_a_device_is_found_by_what_hosts_and_kernels_call_it(
    run: Run, env: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuids = iter(f"{digit}{'0b' * 15}e" for digit in "abcdef")
    monkeypatch.setattr(env, "new_uuid", lambda: next(uuids))
    run("device", "create", "vm1", "--size", "100M", "--initiator", I1)
    run("host", "create", "web1", "--iqn", "iqn.2026-11.net.example:w1")
    run("device", "create", "vm2", "--size", "100M", "--initiator", I1)
    run("target", "allow", "vm2", "--host", "web1")
    shown = {each["device"]: each for each in data_of(run("target", "show", "--output", "json")[1])}
    wwid, serial = shown["vm2"]["wwid"], shown["vm2"]["serial"]
    minor = data_of(run("device", "show", "vm2", "--output", "json")[1])["minor"]
    for word, by in (
        (wwid, "wwid"),
        (wwid[1:].upper(), "wwid"),
        (f"naa.{wwid[1:]}", "wwid"),
        (f"/dev/disk/by-id/wwn-0x{wwid[1:]}", "wwid"),
        (f"/dev/disk/by-id/dm-uuid-mpath-{wwid}", "wwid"),
        (f"/dev/disk/by-id/scsi-{wwid}", "wwid"),
        (serial, "serial"),
        (shown["vm2"]["target"].upper(), "target"),
        ("iqn.2026-11.net.example:w1", "initiator"),
        (str(minor), "minor"),
        (f"/dev/drbd{minor}", "minor"),
    ):
        status, out, _ = run("device", "find", word, "--output", "json")
        assert status == 0 and breaches("device find", out) == [], word
        assert [(each["name"], each["by"]) for each in data_of(out)] == [("vm2", by)], word
    out = run("device", "find", I1)[1]
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["vm1", "vm2"]
    assert wwid in out and serial in out
    for word, status, code in (
        ("36001405" + "f" * 25, 4, "SAN-DEV-024"),
        ("9999", 4, "SAN-DEV-024"),
        ("iqn.2026-11.net.example:nobody", 4, "SAN-DEV-024"),
        ("iqn.wrong", 2, "SAN-"),
        ("vm2", 2, "SAN-DEV-025"),
        ("3600140", 4, "SAN-DEV-024"),
    ):
        found, _, err = run("device", "find", word)
        assert found == status and code in err, word


def test_what_is_refused_needs_no_answer(run: Run, env: FakeEnvironment) -> None:
    run("host", "create", "web1", "--iqn", I1)
    run("host", "group", "create", "web", "--host", "web1")
    run("device", "create", "vm1", "--size", "100M")
    run("target", "allow", "vm1", "--host-group", "web")
    env.pacemaker.private_attributes["n1", SESSIONS_ATTRIBUTE] = f"{I1},10.0.0.7=vm1"
    for words, code in (
        (("target", "deny", "vm1", "--host", "web1"), "SAN-HOST-016"),
        (("target", "deny", "vm1", I1), "SAN-HOST-010"),
    ):
        status, _, err = run(*words)
        assert status == 4 and code in err


def test_a_host_that_logs_in_while_the_question_is_asked_keeps_its_device(
    run: Run, env: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("device", "create", "vm1", "--size", "100M")
    said = env.pacemaker.private_attributes

    def meanwhile(*_: object, **__: object) -> None:
        said["n1", SESSIONS_ATTRIBUTE] = f"{I1},10.0.0.7=vm1"

    monkeypatch.setattr("click.confirm", meanwhile)
    status, _, err = run("device", "delete", "vm1")
    assert status == 4 and "SAN-DEV-023" in err and "vm1" in env.pacemaker.devices()
    assert "waits, for a new device of the same name, too" in err


def test_a_node_that_is_away_has_no_sessions(run: Run, env: FakeEnvironment) -> None:
    run("device", "create", "vm1", "--size", "100M")
    del env.pacemaker.private_attributes["n2", SESSIONS_ATTRIBUTE]
    env.pacemaker.crash("n2")
    status, out, _ = run("device", "delete", "vm1", "--yes")
    assert status == 0 and "node n2 is away" in out


def test_a_deletion_that_has_begun_asks_no_hosts(run: Run, env: FakeEnvironment) -> None:
    run("device", "create", "vm1", "--size", "100M")
    with env.session() as session:
        session.change(lambda _: (SetStopped(name=DeviceName.parse("vm1")),))
    env.pacemaker.private_attributes["n1", SESSIONS_ATTRIBUTE] = f"{I1},10.0.0.7=vm1"
    assert run("device", "delete", "vm1", "--yes")[0] == 0


def test_a_device_that_somebody_has_disabled_is_no_deletion(run: Run, env: FakeEnvironment) -> None:
    """`pcs resource disable`: neither is its deletion finished, nor are its hosts passed over."""
    run("device", "create", "vm1", "--size", "100M")
    group = env.pacemaker.root.find(".//clone[@id='sanctl-vm1']/meta_attributes")
    assert group is not None
    role = ET.SubElement(group, "nvpair", id="sanctl-vm1-meta-target-role", name="target-role")
    role.set("value", "Stopped")
    env.pacemaker.touch()
    env.pacemaker.private_attributes["n1", SESSIONS_ATTRIBUTE] = f"{I1},10.0.0.7=vm1"

    status, out, _ = run("status")
    assert status == 1 and "SAN-HLT-166" in out and "SAN-HLT-030" not in out
    assert "stopped" in out and "device delete" not in out
    status, _, err = run("device", "resize", "vm1", "200M")
    assert status == 4 and "SAN-DEV-014" in err and "device delete" not in err
    status, _, err = run("device", "delete", "vm1", "--yes")
    assert status == 4 and "SAN-DEV-023" in err and "vm1" in env.pacemaker.devices()
    assert run("device", "delete", "vm1", "--yes", "--accept", "SAN-DEV-023")[0] == 0


def test_a_deletion_that_has_begun_is_taken_back(run: Run, env: FakeEnvironment) -> None:
    run("device", "create", "vm1", "--size", "100M")
    with env.session() as session:
        session.change(lambda _: (SetStopped(name=DeviceName.parse("vm1")),))
    status, out, _ = run("status")
    assert status == 1 and "SAN-HLT-030" in out and "sanctl device delete vm1" in out
    assert "deleting" in out


def test_another_device_than_the_one_asked_for_is_not_deleted(
    run: Run, env: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("device", "create", "vm1", "--size", "1G")

    def meanwhile(*_: object, **__: object) -> None:
        pair = env.pacemaker.root.find(".//nvpair[@id='vm1-params-uuid']")
        assert pair is not None
        pair.set("value", "9" * 32)
        env.pacemaker.touch()

    monkeypatch.setattr("click.confirm", meanwhile)
    patches = len(env.pacemaker.patches)
    status, _, err = run("device", "delete", "vm1")
    assert status == 4 and "SAN-DEV-022" in err
    assert len(env.pacemaker.patches) == patches and "vm1" in env.pacemaker.devices()


def test_a_restore_point_made_since_the_question_is_not_deleted(
    run: Run, env: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("device", "create", "vm1", "--size", "1G")
    point = RestorePoint(
        device="vm1",
        name="new",
        token="1" * 16,
        uuid=f"{1:032x}",
        pool="main",
        made_s=1,
        size_bytes=1 << 30,
        pause_ms=1,
        nodes=("n1",),
    )

    def meanwhile(*_: object, **__: object) -> None:
        with env.session() as session:
            session.change(lambda _: (SetPoint(point=point),))

    monkeypatch.setattr("click.confirm", meanwhile)
    status, _, err = run("device", "delete", "vm1")
    assert status == 4 and "SAN-SNAP-013" in err
    assert "vm1" in env.pacemaker.devices()
    assert run("device", "delete", "vm1", "--with-points")[0] == 0


def test_a_deleted_hosts_secret_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be that of the next host of the same name."""
    monkeypatch.setattr(host_secrets, "FOLDER", str(tmp_path))
    for name, chap in (("with", ("--chap", "w")), ("without", ()), ("former", ())):
        run("host", "create", name, "--iqn", f"iqn.2026-11.net.example:{name}", *chap)
    (tmp_path / "former").touch()
    for name in ("with", "former"):
        out = run("host", "delete", name)[1]
        assert f"remove {tmp_path}/{name} on each" in out and "sanctl_host_secrets" in out
    assert run("host", "delete", "without")[1] == "host without is deleted\n"


def test_ctrl_c_during_a_wait_says_what_stays(run: Run, env: FakeEnvironment) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    env.clock.on_sleep = stop
    status, out, err = run("device", "create", "vm1", "--size", "1G", "--output", "json")
    assert (status, json.loads(out)["status"]) == (130, "interrupted")
    assert err.startswith("\nSAN-CLI-005") or err.startswith("SAN-CLI-005")
    assert "vm1" in env.pacemaker.devices()


def _abort() -> Exception:
    return click.Abort()


def test_status_says_what_and_what_next(run: Run, env: FakeEnvironment) -> None:
    run("device", "create", "vm1", "--size", "1G")
    env.pacemaker.crash("n2")
    env.pacemaker.tick()
    status, out, _ = run("status")
    lines = out.splitlines()
    assert status == 1
    assert lines[0] == "degraded: 2 of 3 nodes online (node-majority), 0 of 1 devices ok"
    assert any("next: start the node" in line for line in lines)
    row = next(line for line in lines if line.startswith("vm1"))
    assert row.endswith("n2 ?")


def test_a_bug_is_reported_as_one(run: Run, env: FakeEnvironment) -> None:
    env.pacemaker = None  # type: ignore[assignment]
    status, out, err = run("status", "--output", "json")
    assert status == 70
    assert json.loads(out)["status"] == "bug"
    assert "Traceback" in err and "SAN-BUG-001" in err


@pytest.mark.parametrize("words", [("--help",), ("device", "--help"), ("--version",)])
def test_help(run: Run, words: tuple[str, ...]) -> None:
    status, out, _ = run(*words)
    assert status == 0 and "sanctl" in out


def test_a_group_alone_shows_its_help(run: Run) -> None:
    status, out, err = run("device")
    assert (status, out) == (2, "")
    assert "create" in err


def test_many_devices(run: Run, env: FakeEnvironment) -> None:
    env.pacemaker.attribute("n1", "sanctl-pool-main", "total=9000000000000 free=9000000000000")
    env.pacemaker.attribute("n2", "sanctl-pool-main", "total=9000000000000 free=9000000000000")
    for number in range(12):
        assert run("device", "create", f"vm{number}", "--size", "1G")[0] == 0
    status, out, _ = run("device", "list")
    assert status == 0 and len(out.splitlines()) == 13
    assert "…" not in out


def test_a_terminal_gets_a_fitted_table(
    run: Run, monkeypatch: pytest.MonkeyPatch, env: FakeEnvironment
) -> None:
    run("device", "create", "vm1", "--size", "1G")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "dumb")
    _, out, _ = run("device", "list")
    assert out.splitlines()[0].split() == ["DEVICE", "SIZE", "STATE", "ACTIVE", "REPLICAS"]
    assert all(len(line) <= 60 for line in out.splitlines())


def test_what_lets_a_host_in_all_the_same_is_said(run: Run) -> None:
    """By its IQN alone, which is on a list of its own; a denial names who has lost the device."""
    alone = "iqn.2026-11.net.example:alone"
    run("device", "create", "vm1", "--size", "1G", "--initiator", alone)
    out = run("host", "create", "web1", "--iqn", I1)[1]
    assert "by itself" not in out
    out = run("host", "set", "web1", "--add-iqn", alone)[1]
    assert f"device vm1 lets in {alone} by itself (SAN-HLT-123)\n" in out
    out = run("host", "set", "web1", "--remove-iqn", alone, "--output", "json")[1]
    assert data_of(out)["by_themselves"] == [{"device": "vm1", "iqn": alone}]
    run("host", "set", "web1", "--add-iqn", alone)
    out = run("target", "deny", "vm1", "--host", "web1")[1]
    assert out == f"web1 may no longer use device vm1: {alone}\n"
    out = run("host", "group", "create", "web", "--host", "web1")[1]
    run("target", "allow", "vm1", "--host-group", "web")
    out = run("host", "group", "remove", "web", "--host", "web1")[1]
    assert out.endswith(f"device vm1 lets in no longer {alone}, {I1}\n")
    out = run("target", "allow", "vm1", "--host", "web1")[1]
    out = run("host", "group", "remove", "web", "--host", "web1")[1]
    assert out.endswith(f"device vm1 still lets in {I1} as host web1\n")
    run("target", "deny", "vm1", "--host-group", "web")
    run("target", "deny", "vm1", "--host", "web1")
    run("host", "set", "web1", "--remove-iqn", alone)
    run("target", "allow", "vm1", alone)
    run("host", "set", "web1", "--add-iqn", alone)
    out = run("host", "delete", "web1")[1]
    assert out == f"host web1 is deleted\ndevice vm1 lets in {alone} by itself (SAN-HLT-123)\n"


def test_the_secret_under_a_hosts_old_name_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be that of the next host of that name."""
    monkeypatch.setattr(host_secrets, "FOLDER", str(tmp_path))
    for name, chap in (("with", ("--chap", "w")), ("without", ()), ("former", ())):
        run("host", "create", name, "--iqn", f"iqn.2026-11.net.example:{name}", *chap)
    (tmp_path / "former").touch()
    for name in ("with", "former"):
        out = run("host", "rename", name, f"{name}2")[1]
        assert f"remove {tmp_path}/{name} on each" in out and "sanctl_host_secrets" in out
    assert "secret" not in run("host", "rename", "without", "without2")[1]


def test_where_a_denial_is_not_in_force_yet_is_said(run: Run, env: FakeEnvironment) -> None:
    run("device", "create", "vm1", "--size", "1G", "--initiator", I1)
    env.pacemaker.states["n2"] = "maintenance"
    for words in ([I1], ["--all"]):
        status, out, _ = run("target", "deny", "vm1", *words, "--yes")
        assert status == 0 and "not yet on n2, which is in maintenance" in out
        assert "'crm_attribute --node n2 --name maintenance --delete'" in out
    out = run("target", "deny", "vm1", "--all", "--output", "json")[1]
    assert data_of(out)["not_in_force"] == ["n2"]
    env.pacemaker.set_permanent("n2", "maintenance", "true")
    env.pacemaker.states["n2"] = "offline"
    status, out, _ = run("target", "deny", "vm1", "--all", "--yes")
    assert status == 0 and "not carried out on n2" in out and "Pacemaker does not run" in out
    assert "systemctl start pacemaker" in out
    out = run("target", "deny", "vm1", "--all", "--output", "json")[1]
    assert data_of(out)["not_in_force"] == ["n2"]


def test_where_a_host_has_not_lost_an_iqn_yet_is_said(run: Run, env: FakeEnvironment) -> None:
    other = f"{I1}-old"
    run("device", "create", "vm1", "--size", "1G")
    run("host", "create", "h1", "--iqn", I1, "--iqn", other)
    run("host", "group", "create", "web", "--host", "h1")
    run("target", "allow", "vm1", "--host-group", "web")
    env.pacemaker.states["n2"] = "maintenance"
    where = [{"device": "vm1", "node": "n2"}]
    for words in (
        ("host", "set", "h1", "--remove-iqn", other),
        ("host", "group", "remove", "web", "--host", "h1"),
    ):
        status, out, _ = run(*words, "--yes")
        assert status == 0 and "device vm1: not yet on n2, which is in maintenance" in out
    out = run("host", "group", "remove", "web", "--host", "h1", "--yes", "--output", "json")[1]
    assert data_of(out)["not_in_force"] == where
