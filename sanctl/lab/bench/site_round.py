# SPDX-License-Identifier: GPL-2.0-or-later
"""One round of `sanctl bench site`: a device is lost, goes on from its copy, and comes home.

As docs/howto/site-lost.md does it. Three ledgers of the host, with blocks of their own, say for how
long there was no answer, and what has to be there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sanctl.errors import CommandError, Problem
from sanctl.lab.bench.bench_lab import start_load
from sanctl.lab.bench.replication import CHANGE, PIECE_BYTES
from sanctl.lab.harness import collect, point_copies
from sanctl.lab.harness.failover import LedgerLoad, await_writes
from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scenario, require
from sanctl.lab.harness.site_server import SiteServer
from sanctl.lab.measure import ledger_latency, site_figures
from sanctl.lab.measure.ledger_writer import Record
from sanctl.lab.measure.site_figures import Return, SiteRound, Stage
from sanctl.plan.device.restore_request import HOSTS_LOGGED_IN

HOME, THERE = "bench-site", "bench-site-dr"
SITE = "bench"
#: Each ledger has blocks of its own: before the loss, there, and at home after it.
_REGION_BYTES = 4 * 2**20
_THERE_AT, _AFTER_AT, LEDGERS_BYTES = _REGION_BYTES, 2 * _REGION_BYTES, 3 * _REGION_BYTES
_WRITES_PER_S = 100.0
#: The command on the node gives up before ssh does: its error says more.
COMMAND_S, _GIVEN_UP_S = 580.0, 500
#: A busy machine may not make the restore point within half a second, and nodes say about every ten
#: seconds who is logged in.
_AGAIN_FOR = frozenset({"SAN-SNAP-007", HOSTS_LOGGED_IN})
_AGAIN_S = 120.0
_SYNC_S = 240.0
_NOTED_S = 20.0
#: How long a ledger writes beside what is measured.
_WRITES_ON_S = 3.0
_FAILOVER_STAGES = ("restore", "takeover", "login", "first write")
_TURN_STAGES = ("log out", "last copy", "failback", "login", "first write")

#: Prints in how many bytes, by blocks of 4 KiB, two files or devices of one length differ, outside
#: of a stretch.
COMPARE = """
import sys
begin, end = map(int, sys.argv[1:3])
one, other = (open(path, "rb") for path in sys.argv[3:5])
differs = at = 0
while True:
    data, beside = one.read(1 << 20), other.read(1 << 20)
    if data != beside:
        for place in range(0, max(len(data), len(beside)), 4096):
            if data[place : place + 4096] != beside[place : place + 4096]:
                differs += not begin <= at + place < end
    if not data and not beside:
        break
    at += 1 << 20
print(differs * 4096)
"""


class SiteBench:
    """A device, the site, and the device made of its copy: one round."""

    def __init__(self, scenario: Scenario, device_bytes: int, changed_bytes: int) -> None:
        self._scenario = scenario
        self._bed, self._host = scenario.bed, scenario.host
        self._device_bytes, self._changed_bytes = device_bytes, changed_bytes
        self._nodes = [node.name for node in scenario.bed.storage][:2]
        self._iqn_prefix = scenario.iqn_prefix()
        #: Why commands were given again.
        self._codes: list[str] = []

    def run(self, address: str, where: SiteServer) -> SiteRound:
        """Lose the device, go on with one made of its copy, and come home.

        Args:
            address: of the site's server, for ssh.
            where: the site.

        Raises:
            CommandError: a command failed for another reason than those that pass.
            NotConverged: the host got no device or no answer in time.
        """
        scenario, host = self._scenario, self._host
        before = self._open_device()
        scenario.sanctl(
            "site", "add", SITE, "--ssh", address, "--path", where.path,
            "--identity", where.key, timeout_s=COMMAND_S,
        )  # fmt: skip
        with host.watch_ledger(before.run) as states:
            await_writes(before, states)
            standby = self._standby(HOME)
            chosen = self._copy(HOME, standby)
            await_writes(before, states)
        digests = self._digests(chosen, standby)
        # What is written from here on is not in the copy, and lost with the site.
        time.sleep(_WRITES_ON_S)
        host.stop_ledger(before.run)
        faults = point_copies.find_faults(before, chosen["file"], [host.name])
        logs: list[Sequence[Record]] = [host.fetch_log(before.run)[1]]
        host.logout(before.target)
        before.print_line(f"{HOME} is lost, copy {chosen['copy']['point']} is chosen")

        there, failover_s, failover_stages = self._fail_over(chosen["copy"]["point"])
        made_bytes = self._differing(
            host.name, _THERE_AT, _AFTER_AT, there.run.device, chosen["file"]
        )
        running, running_s, pause, running_bytes = self._come_home_running(there)
        faults += point_copies.find_faults(there, running["file"], [host.name])

        after, last, moments_s = self._turn(there)
        time.sleep(_WRITES_ON_S)
        host.stop_ledger(after.run)
        there_log, after_log = (host.fetch_log(load.run)[1] for load in (there, after))
        moments_s = [
            site_figures.last_answer(there_log).wall_ns / 1e9,
            *moments_s,
            site_figures.first_answer(after_log).wall_ns / 1e9,
        ]
        home_bytes = self._differing(
            host.name, _AFTER_AT, LEDGERS_BYTES, after.run.device, last["file"]
        )
        checks = [
            host.check_ledger(replace(there.run, device=after.run.device)),
            host.check_ledger(after.run),
        ]
        found = SiteRound(
            failover_s=failover_s,
            failover_stages=failover_stages,
            turn_s=site_figures.turn_s(there_log, after_log),
            turn_stages=site_figures.stages(_TURN_STAGES, moments_s),
            running_s=running_s,
            running_pause=pause,
            running=Return(running_bytes, self._came_bytes(running)),
            last=Return(
                self._differing(host.name, 0, 0, running["file"], last["file"]),
                self._came_bytes(last),
            ),
            codes=tuple(self._codes),
            acknowledged=sum(check["acknowledged"] for check in checks),
            lost=sum(check["lost"] for check in checks),
            errors=site_figures.count_errors([*logs, there_log, after_log]),
            faults=(
                *faults,
                *site_figures.find_faults(
                    digests=digests, made_bytes=made_bytes, home_bytes=home_bytes
                ),
            ),
        )
        after.print_line(f"home again, {found.turn_s:.1f} s without an answer")
        for fault in found.faults:
            after.print_line(fault)
        return found

    def _open_device(self) -> LedgerLoad:
        scenario, size_mib = self._scenario, self._device_bytes >> 20
        target = scenario.create(HOME, f"{size_mib}M", prefer=self._nodes[0], nodes=self._nodes)
        path = self._host.login(target, scenario.portals(self._nodes))
        # All of it but the ledgers' blocks: what a device has that was written once.
        self._host.sh(
            f"dd if=/dev/urandom of={path} bs=1M seek={LEDGERS_BYTES >> 20}"
            f" count={size_mib - (LEDGERS_BYTES >> 20)} oflag=direct status=none",
            timeout_s=COMMAND_S,
        )
        return self._write(HOME, target, path, 0)

    def _write(self, device: str, target: str, path: str, start_bytes: int) -> LedgerLoad:
        return start_load(
            self._scenario, device, target, path,
            rate=_WRITES_PER_S, region_bytes=_REGION_BYTES, start_bytes=start_bytes,
        )  # fmt: skip

    def _fail_over(self, point: str) -> tuple[LedgerLoad, float, tuple[Stage, ...]]:
        """Make a device of a copy, and have the host write to it; return when it could."""
        node, host = self._nodes[0], self._host
        moments_s = [time.time()]
        self._sanctl(
            node,
            f"replicate restore {HOME}@{point} --from {SITE} --to {THERE}"
            f" --nodes {','.join(self._nodes)} --prefer {node} --initiator {host.iqn}"
            f" --timeout {_GIVEN_UP_S}",
        )
        moments_s.append(time.time())
        self._sanctl(node, f"replicate takeover {THERE}")
        moments_s.append(time.time())
        load = self._log_in(THERE, _THERE_AT, moments_s)
        first_s = site_figures.first_answer(host.fetch_log(load.run)[1]).wall_ns / 1e9
        failover_s = first_s - moments_s[0]
        load.print_line(f"{THERE} goes on, after {failover_s:.1f} s")
        return load, failover_s, site_figures.stages(_FAILOVER_STAGES, [*moments_s, first_s])

    def _log_in(self, device: str, start_bytes: int, moments_s: list[float]) -> LedgerLoad:
        """Log the host in to a device, note when, and have it write."""
        target = f"{self._iqn_prefix}.{device}"
        path = self._host.login(target, self._scenario.portals(self._nodes))
        moments_s.append(time.time())
        return self._write(device, target, path, start_bytes)

    def _come_home_running(
        self, load: LedgerLoad
    ) -> tuple[dict[str, Any], float, ledger_latency.Pause, int]:
        """Bring home what was written there, while the host goes on; the device is held then.

        Returns:
            The copy, how long it took with the failback, the host's longest pause meanwhile, and in
            how many bytes what was at home before differed.
        """
        host = self._host
        # In pieces behind the ledgers' blocks.
        host.bed.sh(
            host.name,
            f"python3 - {load.run.device} {LEDGERS_BYTES} {self._device_bytes}"
            f" {self._changed_bytes // PIECE_BYTES} {PIECE_BYTES}",
            stdin=CHANGE,
            timeout_s=COMMAND_S,
        )
        standby = self._standby(THERE)
        wait_for(
            f"the replicas of {THERE} to be in sync",
            lambda: collect.is_in_sync(self._bed, standby, THERE),
            within_s=_SYNC_S,
        )
        with host.watch_ledger(load.run) as states:
            await_writes(load, states)
            began_s = time.time()
            made = self._copy(THERE, standby)
            kept = self._fail_back(made, "--hold")
            ended_s = time.time()
            await_writes(load, states)
        pause = ledger_latency.find_pause(host.fetch_log(load.run)[1], began_s, ended_s)
        load.print_line(
            f"a first failback, while the host wrote: {ended_s - began_s:.1f} s, its longest pause"
            f" {pause.seconds * 1000:.0f} ms"
        )
        # No host has it, so its file is what has come.
        before = self._point_file(kept)
        data = f"{before.rpartition('/points/')[0]}/devices/{HOME}.*.data"
        differing = self._differing(collect.active_node(self._bed, HOME), 0, 0, before, data)
        return made, ended_s - began_s, pause, differing

    def _turn(self, there: LedgerLoad) -> tuple[LedgerLoad, dict[str, Any], list[float]]:
        """Stop what writes there, bring home the last of it, and go on at home.

        Returns:
            The ledger at home, the last copy, and when each stage but the last one ended.
        """
        # Asked before: each question would be a part of the pause.
        standby = self._standby(THERE)
        self._host.stop_ledger(there.run)
        self._host.logout(there.target)
        moments_s = [time.time()]
        last = self._copy(THERE, standby)
        moments_s.append(time.time())
        self._fail_back(last, "--takeover")
        moments_s.append(time.time())
        return self._log_in(HOME, _AFTER_AT, moments_s), last, moments_s

    def _standby(self, device: str) -> str:
        active = collect.active_node(self._bed, device)
        return next(node for node in self._nodes if node != active)

    def _copy(self, device: str, standby: str) -> dict[str, Any]:
        return self._sanctl(standby, f"replicate run {device} --to {SITE}")

    def _fail_back(self, made: dict[str, Any], option: str) -> str:
        """Make the device at home what a copy is; return what keeps what it held before."""
        done = self._sanctl(
            self._nodes[0],
            f"replicate failback {HOME} --from {SITE} --copy {THERE}@{made['copy']['point']}"
            f" {option} --yes --timeout {_GIVEN_UP_S}",
        )
        require(bool(done["kept"]), f"failback keeps nothing of what was on {HOME}")
        return str(done["kept"])

    def _sanctl(self, node: str, words: str) -> dict[str, Any]:
        """Run a command on a node, again where it fails for what passes; return its data.

        Raises:
            CommandError: it failed.
        """
        deadline = time.monotonic() + _AGAIN_S
        while True:
            done = self._bed.sh(
                node, f"sanctl {words} --output json", timeout_s=COMMAND_S, ok=range(256)
            )
            try:
                result: dict[str, Any] = json.loads(done.stdout)
            except ValueError:
                why = (done.stderr or done.stdout).strip()
                raise CommandError(
                    Problem("SAN-CMD-003", f"sanctl {words} on {node}: {done.status}: {why}")
                ) from None
            if done.status == 0:
                data = result["data"]
                assert isinstance(data, dict)
                return data
            problem = result["problems"][0] if result["problems"] else {}
            code = problem.get("code", "SAN-CMD-003")
            self._codes.append(code)
            if code not in _AGAIN_FOR or time.monotonic() > deadline:
                text = problem.get("text", f"status {done.status}")
                raise CommandError(Problem(code, f"sanctl {words} on {node}: {text}"))
            time.sleep(1.0)

    def _differing(self, where: str, begin: int, end: int, one: str, other: str) -> int:
        """Return in how many bytes two files differ, outside of a stretch."""
        done = self._bed.sh(
            where,
            f"python3 - {begin} {end} {one} {other}",
            stdin=COMPARE,
            timeout_s=COMMAND_S,
        )
        return int(done.stdout)

    def _point_file(self, point: str) -> str:
        """Return the path of a restore point of the device at home, the same on each node."""
        shown = self._bed.sh(
            self._nodes[0], f"sanctl snapshot show {HOME}@{point} --output json"
        ).stdout
        return str(json.loads(shown)["data"]["file"])

    def _digests(self, made: dict[str, Any], node: str) -> list[str]:
        """Return the digests of the restore point on the node that sent it, and of the copy."""
        files = ((node, self._point_file(made["copy"]["point"])),
                 (self._host.name, made["file"]))  # fmt: skip
        return [
            self._bed.sh(where, f"sha256sum <{file}", timeout_s=COMMAND_S).stdout.split()[0]
            for where, file in files
        ]

    def _came_bytes(self, made: dict[str, Any]) -> int:
        """Return how many bytes came for the failback to a copy, as the node says that did it."""
        point = made["copy"]["point"]

        def look() -> int | None:
            for node in self._nodes:
                text = self._bed.sh(
                    node,
                    f"journalctl -b -o cat SANCTL_DEVICE={HOME} SANCTL_ACTION=restore",
                    ok=(0, 1),
                ).stdout
                found = site_figures.came_bytes(text, point)
                if found is not None:
                    return found
            return None

        return wait_for(f"a note of what came for {point}", look, within_s=_NOTED_S)
