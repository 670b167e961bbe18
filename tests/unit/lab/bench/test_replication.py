# SPDX-License-Identifier: GPL-2.0-or-later
"""What `sanctl bench replicate` takes, and the programs with which it counts what has changed."""

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

from sanctl.lab.bench import bench_lab, replication
from sanctl.lab.bench.commands import bench
from sanctl.lab.harness import collect, point_copies
from sanctl.lab.measure.ledger_writer import Record, RecordKind
from tests.support.json_contract import breaches

MIB = 1 << 20


def program(text: str, *words: object) -> str:
    return subprocess.run(
        [sys.executable, "-", *map(str, words)],
        input=text, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def test_what_is_written_is_what_is_counted(tmp_path: Path) -> None:
    device, before = tmp_path / "device", tmp_path / "before"
    device.write_bytes(b"x" * (8 * MIB))
    before.write_bytes(device.read_bytes())
    assert program(replication._COMPARE, 4 * MIB, device, before) == "0 0\n"
    program(replication.CHANGE, device, 4 * MIB, 8 * MIB, 5, 64 << 10)
    assert program(replication._COMPARE, 4 * MIB, device, before) == f"0 {5 * (64 << 10)}\n"
    assert program(replication._COMPARE, 8 * MIB, device, before) == f"{5 * (64 << 10)} 0\n"
    assert device.read_bytes()[: 4 * MIB] == before.read_bytes()[: 4 * MIB]
    assert device.stat().st_size == 8 * MIB


def test_the_first_copy_is_compared_with_nothing(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(bytes(4096) + b"x" + bytes(4 * MIB - 4097))
    assert program(replication._COMPARE, 4096, copy) == "0 4096\n"


@pytest.mark.parametrize(
    "words",
    [
        ["--size", "16M"],
        ["--size", "64.5M"],
        ["--changed", "60K"],
        ["--changed", "63M"],
        ["--copies", "1"],
        ["--every", "9"],
    ],
)
def test_what_cannot_be_measured_is_refused(words: list[str]) -> None:
    done = CliRunner().invoke(bench, ["replicate", *words])
    assert done.exit_code == 2, done.output


class Site:
    """A laboratory in which every copy is made at once, from the second try on."""

    def __init__(self, *, sent_bytes: int) -> None:
        self._sent_bytes = sent_bytes
        self._tries = self._copies = self._counter = 0
        self.name, self.run = "i1", SimpleNamespace(device="/dev/mapper/x")
        self.scripts: list[str] = []

    def node(self, _name: str) -> Any:
        return SimpleNamespace(address=lambda _network: "192.0.2.9")

    @contextlib.contextmanager
    def watch_ledger(self, _run: object) -> Iterator[list[Any]]:
        yield []

    def fetch_log(self, _run: object) -> tuple[None, list[Record]]:
        now_s = time.time()
        return None, [
            Record(kind, 0, 0, 1, number, int((now_s + number / 10) * 1e9), int(
                (now_s + number / 10) * 1e9))
            for number in range(-200, 200) for kind in (RecordKind.INTENT, RecordKind.ACK)
        ]  # fmt: skip

    def sh(self, node: str, script: str, *, stdin: str = "", **_more: object) -> Any:
        self.scripts.append(f"{node}: {script}")
        status, out = 0, ""
        if "tx_bytes" in script:
            out = str(self._counter)
        elif "replicate run" in script:
            self._tries += 1
            status, out = self._copy()
        elif stdin == replication._COMPARE:
            behind = 124 * MIB if self._copies == 1 else 3 * MIB
            out = f"4096 {behind}"
        elif "snapshot show" in script:
            out = json.dumps({"data": {"file": "/point"}})
        elif "sha256sum" in script:
            out = "ab  -"
        return SimpleNamespace(status=status, stdout=out)

    def _copy(self) -> tuple[int, str]:
        if self._tries == 1:
            return 4, json.dumps(
                {"data": None, "problems": [{"code": "SAN-SNAP-007", "text": "t"}]}
            )
        self._copies += 1
        sent = 124 * MIB if self._copies == 1 else self._sent_bytes
        self._counter += sent
        made = f"2026-11-26T10:{self._copies:02}:00Z"
        copy = {"point": f"to-bench-{self._copies}", "made": made, "proven": made,
                "sent_bytes": sent}  # fmt: skip
        return 0, json.dumps({"data": {"copy": copy, "file": f"/copy{self._copies}"}})


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, site: Site) -> Result:
    load = SimpleNamespace(
        bed=site, host=site, run=site.run, device="bench-replicate",
        print_line=lambda _text: None, peer_of=lambda _node: "n2",
    )  # fmt: skip
    scenario = SimpleNamespace(bed=site, host=site, sanctl=lambda *_words, **_more: "")

    @contextlib.contextmanager
    def server(_bed: object, _where: object) -> Iterator[str]:
        yield "root@192.0.2.9"

    for owner, name, value in (
        (replication, "scenario_without", lambda *_words: scenario),
        (replication, "site_server", server),
        (replication, "_open_load", lambda *_words: load),
        (replication, "remove_device", lambda *_words: None),
        (replication, "await_writes", lambda *_words: None),
        (replication, "close_load", lambda _load: {"acknowledged": 9, "lost": 0, "errors": 0}),
        (bench_lab, "versions", lambda _bed: "kernel 7\n"),
        (collect, "active_node", lambda *_words: "n1"),
        (point_copies, "find_faults", lambda *_words: []),
        (time, "sleep", lambda _seconds: None),
    ):
        monkeypatch.setattr(owner, name, value)
    words = ["--copies", "3", "--report", str(folder), "--output", "json"]
    return CliRunner().invoke(bench, ["replicate", *words])


@pytest.mark.parametrize(("sent_bytes", "status"), [(3 * MIB, 0), (3 * MIB + MIB // 2, 1)])
def test_the_goal_is_judged_and_the_figures_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sent_bytes: int, status: int
) -> None:
    site = Site(sent_bytes=sent_bytes)
    done = run(monkeypatch, tmp_path / "figures", site)
    assert done.exit_code == status, done.output
    assert breaches("bench replicate", done.stdout) == []
    found = json.loads(done.stdout)["data"]
    first, *later = found["copies"]
    assert first["failed"] == ["SAN-SNAP-007"] and first["is_first"] and not first["faults"]
    assert [each["changed_bytes"] for each in later] == [3 * MIB, 3 * MIB]
    assert not any(each["failed"] or each["faults"] or each["is_first"] for each in later)
    assert found["worst_age_s"] == 60
    kept = json.loads((tmp_path / "figures" / "replicate.json").read_text())
    assert kept["copies"] == found["copies"]
    # Compared with the copy before, on the site's server.
    assert f"i1: python3 - {4 * MIB} /copy3 /copy2" in site.scripts


def test_a_copy_that_fails_for_another_reason_ends_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = Site(sent_bytes=MIB)
    failed = json.dumps({"data": None, "problems": [{"code": "SAN-SITE-007", "text": "no room"}]})
    monkeypatch.setattr(site, "_copy", lambda: (5, failed))
    done = run(monkeypatch, tmp_path, site)
    assert "SAN-SITE-007: no room" in str(done.exception)
