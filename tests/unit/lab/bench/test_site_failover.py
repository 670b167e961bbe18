# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl bench site`: the order of its commands, its judgement, and what it leaves: nothing."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sanctl.errors import CommandError, Problem
from sanctl.lab.bench import bench_lab, site_failover, site_round
from sanctl.lab.bench.commands import bench
from sanctl.lab.harness import collect, point_copies
from sanctl.lab.harness.initiator import LedgerRun
from sanctl.lab.measure.ledger_writer import Record, RecordKind
from tests.support.json_contract import breaches

MIB = 1 << 20


def differing(begin: int, end: int, one: Path, other: Path) -> int:
    done = subprocess.run(
        [sys.executable, "-", str(begin), str(end), str(one), str(other)],
        input=site_round.COMPARE, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(done.stdout)


def test_what_differs_is_counted_outside_of_a_stretch(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(bytes(3 * MIB))
    changed = bytearray(3 * MIB)
    for at in (0, 4096, MIB + 5, 2 * MIB, 3 * MIB - 1):
        changed[at] = 1
    other.write_bytes(changed)
    assert differing(0, 0, one, one) == 0
    assert differing(0, 0, one, other) == 5 * 4096
    assert differing(4096, 2 * MIB, one, other) == 3 * 4096
    # One is shorter.
    other.write_bytes(bytes(2 * MIB))
    assert differing(0, 0, one, other) == differing(0, 0, other, one) == MIB


@pytest.mark.parametrize(
    "words",
    [["--size", "16M"], ["--size", "64.5M"], ["--changed", "60K"], ["--changed", "59M"],
     ["--repeat", "0"]],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(words: list[str]) -> None:
    done = CliRunner().invoke(bench, ["site", *words])
    assert done.exit_code == 2, done.output


class Lab:
    """A laboratory whose commands are done at once; a clock that they advance."""

    def __init__(self, *, restore_s: float = 20.0, failback_s: float = 4.0) -> None:
        self._took_s = {"replicate restore": restore_s, "replicate failback": failback_s}
        self.name, self.iqn = "i1", "iqn.host"
        self.storage = (SimpleNamespace(name="n1"), SimpleNamespace(name="n2"))
        self.now_s, self._copies, self._kept = 1_000_000.0, 0, 0
        self.done: list[str] = []
        #: What a command says once, by its first words.
        self.problems: dict[str, tuple[int, str]] = {}
        self.devices: list[str] = []
        #: When a ledger was answered first, and when it was ended, by its log.
        self.first_s: dict[str, float] = {}
        self.ended_s: dict[str, float] = {}
        self.lost = 0

    bed = property(lambda self: self)
    host = property(lambda self: self)

    def node(self, _name: str) -> Any:
        return SimpleNamespace(address=lambda _network: "192.0.2.9")

    def iqn_prefix(self) -> str:
        return "iqn.lab"

    def portals(self, nodes: list[str]) -> list[str]:
        return [*nodes]

    def exists(self, device: str) -> bool:
        return device in self.devices

    def create(self, device: str, _size: str, **_more: object) -> str:
        self.devices.append(device)
        return f"iqn.lab.{device}"

    def login(self, target: str, portals: list[str]) -> str:
        assert portals == ["n1", "n2"]
        self.done.append(f"login {target}")
        self.now_s += 1.0
        return f"/dev/mapper/{target}"

    def logout(self, target: str) -> None:
        self.done.append(f"logout {target}")

    def start_load(self, device: str, target: str, path: str, **more: Any) -> Any:
        self.done.append(f"ledger {device} from {more['start_bytes']}")
        run = LedgerRun(unit=f"ledger-{device}", device=path, log=device)
        self.first_s[device] = self.now_s + 0.5
        self.ended_s.pop(device, None)
        self.now_s += 2.5
        return SimpleNamespace(
            bed=self, host=self, run=run, device=device, target=target,
            print_line=lambda _text: None,
        )  # fmt: skip

    def stop_ledger(self, run: LedgerRun) -> None:
        self.done.append(f"end {run.unit}")
        self.ended_s[run.log] = self.now_s

    def fetch_log(self, run: LedgerRun) -> tuple[None, list[Record]]:
        at_s, end_s = self.first_s[run.log], self.ended_s.get(run.log, self.now_s)
        found = []
        while at_s <= end_s:
            at_ns = int(at_s * 1e9)
            found += [
                Record(kind, 0, 0, 1, 1, at_ns, at_ns)
                for kind in (RecordKind.INTENT, RecordKind.ACK)
            ]
            at_s += 0.1
        return None, found

    def check_ledger(self, run: LedgerRun) -> dict[str, int]:
        # Both are read at home.
        assert run.device.endswith(".bench-site")
        return {"acknowledged": 20, "lost": self.lost, "errors": 0}

    @contextlib.contextmanager
    def watch_ledger(self, _run: object) -> Iterator[list[Any]]:
        yield []

    def sanctl(self, *words: str, **_more: object) -> str:
        self.done.append(" ".join(words))
        if words[:2] == ("device", "delete"):
            self.devices.remove(words[2])
        return ""

    def sh(self, node: str = "", script: str = "", *, stdin: str = "", **_more: object) -> Any:
        """Run a script on a node; of the host it is the first argument."""
        if not script:
            self.done.append(node)
            return ""
        status, out = 0, ""
        if stdin == site_round.COMPARE:
            # What the device and its copy differ in, outside of the ledger; else of two copies.
            out = "0" if "/dev/mapper" in script else str(MIB)
        elif "sha256sum" in script:
            out = "ab  -"
        elif "journalctl" in script:
            out = "".join(
                f"holds copy x@to-bench-{number} at site bench, digest d; {MIB} bytes came\n"
                for number in range(20)
            )
        elif script.startswith("sanctl "):
            self.done.append(f"{node}: {script[7:].partition(' --output')[0]}")
            status, out = self._command(script[7:])
        return SimpleNamespace(status=status, stdout=out, stderr="ssh: broken")

    def _command(self, words: str) -> tuple[int, str]:
        first = " ".join(words.split()[:2])
        if first in self.problems:
            return self.problems.pop(first)
        self.now_s += self._took_s.get(first, 0.5)
        data: dict[str, Any] = {}
        if first == "snapshot show":
            data = {"file": "/srv/points/point"}
        elif first == "replicate run":
            self._copies += 1
            data = {"copy": {"point": f"to-bench-{self._copies}"}, "file": f"/copy{self._copies}"}
        elif first == "replicate restore":
            self.devices.append("bench-site-dr")
        elif first == "replicate failback":
            self._kept += 1
            data = {"kept": f"before-restore-{self._kept}"}
        return 0, json.dumps({"data": data, "problems": []})


def run(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    lab: Lab,
    *,
    rounds: int = 1,
    output: str = "json",
) -> Result:
    @contextlib.contextmanager
    def server(_bed: object, _where: object) -> Iterator[str]:
        try:
            yield "root@192.0.2.9"
        finally:
            lab.done.append("site removed")

    def start(_scenario: object, device: str, target: str, path: str, **more: Any) -> Any:
        return lab.start_load(device, target, path, **more)

    for owner, name, value in (
        (site_failover, "scenario_without", lambda *_words: lab),
        (site_failover, "site_server", server),
        (site_round, "start_load", start),
        (site_round, "await_writes", lambda *_words: None),
        (bench_lab, "versions", lambda _bed: "kernel 7\n"),
        (collect, "active_node", lambda *_words: "n1"),
        (collect, "is_in_sync", lambda *_words: True),
        (point_copies, "find_faults", lambda *_words: []),
        (time, "sleep", lambda _seconds: None),
        (time, "time", lambda: lab.now_s),
    ):
        monkeypatch.setattr(owner, name, value)
    words = ["--repeat", str(rounds), "--report", str(folder), "--output", output]
    return CliRunner().invoke(bench, ["site", *words])


def test_the_commands_are_those_of_the_how_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lab = Lab()
    assert run(monkeypatch, tmp_path, lab).exit_code == 0
    nodes = "--nodes n1,n2 --prefer n1 --initiator iqn.host --timeout 500"
    assert [each for each in lab.done if not each.startswith(("n1: snapshot", "dd "))] == [
        "login iqn.lab.bench-site",
        "ledger bench-site from 0",
        "site add bench --ssh root@192.0.2.9 --path /srv/bench-site/sanctl"
        " --identity /etc/sanctl/bench_site_key",
        "n2: replicate run bench-site --to bench",
        "end ledger-bench-site",
        "logout iqn.lab.bench-site",
        "n1: replicate restore bench-site@to-bench-1 --from bench --to bench-site-dr " + nodes,
        "n1: replicate takeover bench-site-dr",
        "login iqn.lab.bench-site-dr",
        f"ledger bench-site-dr from {4 * MIB}",
        "n2: replicate run bench-site-dr --to bench",
        "n1: replicate failback bench-site --from bench --copy bench-site-dr@to-bench-2 --hold"
        " --yes --timeout 500",
        "end ledger-bench-site-dr",
        "logout iqn.lab.bench-site-dr",
        "n2: replicate run bench-site-dr --to bench",
        "n1: replicate failback bench-site --from bench --copy bench-site-dr@to-bench-3 --takeover"
        " --yes --timeout 500",
        "login iqn.lab.bench-site",
        f"ledger bench-site from {8 * MIB}",
        "end ledger-bench-site",
        "systemctl stop ledger-bench-site-dr 2>/dev/null || true",
        "systemctl stop ledger-bench-site 2>/dev/null || true",
        "logout iqn.lab.bench-site-dr",
        "device delete bench-site-dr --yes --with-points --accept SAN-DEV-023",
        "logout iqn.lab.bench-site",
        "device delete bench-site --yes --with-points --accept SAN-DEV-023",
        "site removed",
    ]


@pytest.mark.parametrize(
    ("seconds", "lost", "status"),
    [((20, 4), 0, 0), ((70, 4), 0, 1), ((20, 12), 0, 1), ((20, 4), 1, 1)],
)
def test_the_goals_are_judged_and_the_figures_are_kept(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    seconds: tuple[float, float],
    lost: int,
    status: int,
) -> None:
    restore_s, failback_s = seconds
    lab = Lab(restore_s=restore_s, failback_s=failback_s)
    lab.lost = lost
    done = run(monkeypatch, tmp_path / "figures", lab, rounds=2)
    assert done.exit_code == status, done.output
    assert breaches("bench site", done.stdout) == []
    found = json.loads(done.stdout)["data"]
    assert (found["acknowledged"], found["lost"]) == (80, 4 * lost)
    for each in found["rounds"]:
        # The command, the takeover, the login, and half a second until the first answer.
        assert each["failover_s"] == pytest.approx(restore_s + 2)
        stages = {stage["stage"]: stage["took_s"] for stage in each["turn_stages"]}
        assert stages["failback"] == pytest.approx(failback_s)
        assert stages["login"] == pytest.approx(1)
        assert each["turn_s"] == pytest.approx(sum(stages.values()), abs=0.01)
        assert each["running"] == each["last"] == {"changed_bytes": MIB, "came_bytes": MIB}
        assert each["faults"] == each["tried_again"] == []
    kept = json.loads((tmp_path / "figures" / "site.json").read_text())
    assert kept["rounds"] == found["rounds"] and lab.devices == []


def test_the_text_has_the_judgement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = run(monkeypatch, tmp_path, Lab(), output="text")
    assert "goal 60 s: held" in done.output and "0 lost" in done.output


@pytest.mark.parametrize(
    ("words", "code"),
    [("replicate run", "SAN-SNAP-007"), ("replicate failback", "SAN-REST-001")],
)
def test_what_passes_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, code: str
) -> None:
    lab = Lab()
    problem = {"code": code, "text": "not now"}
    lab.problems[words] = (4, json.dumps({"data": None, "problems": [problem]}))
    done = run(monkeypatch, tmp_path, lab)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["data"]["rounds"][0]["tried_again"] == [code]


@pytest.mark.parametrize(
    ("words", "answer", "text"),
    [
        ("replicate restore", (5, '{"problems": [{"code": "SAN-SITE-017", "text": "bad"}]}'),
         "SAN-SITE-017"),
        ("replicate takeover", (1, '{"data": {}, "problems": []}'), "status 1"),
        ("replicate failback", (255, ""), "ssh: broken"),
        ("replicate failback", (0, '{"data": {"kept": null}}'), "keeps nothing"),
    ],
)  # fmt: skip
def test_what_fails_otherwise_ends_it_and_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, answer: tuple[int, str], text: str
) -> None:
    lab = Lab()
    lab.problems[words] = answer
    done = run(monkeypatch, tmp_path, lab)
    assert text in str(done.exception)
    assert lab.devices == [] and lab.done[-1] == "site removed"


def test_one_that_cannot_be_removed_does_not_keep_the_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lab = Lab()
    sanctl = lab.sanctl

    def refuse(*words: str, **more: object) -> str:
        if words[:3] == ("device", "delete", "bench-site-dr"):
            raise CommandError(Problem("SAN-CMD-003", "refused"))
        return sanctl(*words, **more)

    monkeypatch.setattr(lab, "sanctl", refuse)
    done = run(monkeypatch, tmp_path, lab)
    assert "refused" in str(done.exception)
    assert lab.devices == ["bench-site-dr"] and lab.done[-1] == "site removed"
