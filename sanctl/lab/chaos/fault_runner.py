# SPDX-License-Identifier: GPL-2.0-or-later
"""The course of one fault: inject, undo, wait for the recovery, check every promise."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from sanctl.errors import CommandError, NotConverged, Problem, SanctlError
from sanctl.lab.chaos import ledgers
from sanctl.lab.chaos.consoles import ConsoleReader, as_kernel_log
from sanctl.lab.chaos.fault import (
    ACTIVE,
    STANDBY,
    WITNESS,
    AgentKilled,
    Fault,
    PowerCutSeries,
    Reboot,
    describe,
    is_one_sided,
    resolve,
)
from sanctl.lab.chaos.fault_choice import NodesByRole
from sanctl.lab.chaos.fault_injection import FaultInjector
from sanctl.lab.chaos.ledgers import DeviceLedger
from sanctl.lab.chaos.paced import Watch
from sanctl.lab.chaos.primary_watch import PrimaryWatch
from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.machines.spec import Role
from sanctl.lab.measure import cleanliness, kernel_audit, log_patterns
from sanctl.lab.measure.journal_time import lines_since
from sanctl.lab.measure.ledger_latency import Pause
from sanctl.lab.measure.status_findings import has_recovered

#: A crash, the fence, a boot and a resync take about a minute on two quiet processors.
RECOVERY_DEADLINE_S = 300.0
_WRITING_DEADLINE_S = 120.0
_AUDIT_TIMEOUT_S = 60.0
_SIGN_OF_LIFE_S = 20.0
_POLL_S = 2.0
# From the death of a daemon to the cluster's reaction (fencing, say).
_LATE_S = 5.0
# The precision of clocks and journals: events just before a fault belong to the one before.
_MARGIN_S = 0.5
_FENCED = r"pacemaker-fenced.*: Operation '(off|reboot)' targeting (\S+) by .*: OK"
_BOOT = "cat /proc/sys/kernel/random/boot_id"
_LOG = (
    "journalctl --quiet --no-pager -o short-precise --since=@{since:.3f}"
    " _TRANSPORT=kernel + SYSLOG_IDENTIFIER=sanctl + SYSLOG_IDENTIFIER=pacemaker-fenced"
    " + SYSLOG_IDENTIFIER=pacemaker-controld + SYSLOG_IDENTIFIER=pacemaker-execd"
    " + SYSLOG_IDENTIFIER=pacemaker-attrd + SYSLOG_IDENTIFIER=pacemaker-based"
    " + SYSLOG_IDENTIFIER=pacemaker-schedulerd + SYSLOG_IDENTIFIER=pacemakerd"
    " + SYSLOG_IDENTIFIER=corosync + SYSLOG_IDENTIFIER=multipathd + SYSLOG_IDENTIFIER=iscsid"
)

_NOT_RECOVERED = "SAN-CHAOS-001"
_ACTION_FAILED = frozenset({"SAN-HLT-040"})

PrintLine = Callable[[str], None]


@dataclass(slots=True)
class FaultResult:
    """One fault and its results: times, pauses, ledger checks, fenced nodes, problems."""

    number: int
    fault: Fault
    began_s: float
    undone_s: float = 0.0
    recovered_s: float = 0.0
    ended_s: float = 0.0
    pauses: dict[str, Pause] = field(default_factory=dict)  # by "HOST DEVICE"
    checks: dict[str, dict[str, Any]] = field(default_factory=dict)
    fenced: tuple[str, ...] = ()  # by the cluster, from its journals
    restarted: tuple[str, ...] = ()  # for any reason: another boot id than before
    serving_before: dict[str, str] = field(default_factory=dict)
    serving_after: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    need_operator: dict[str, str] = field(default_factory=dict)  # device -> why

    @property
    def is_good(self) -> bool:
        """Whether every promise held."""
        return not self.problems and not self.need_operator

    @property
    def longest_pause_s(self) -> float:
        """The longest pause of any host."""
        return max((pause.seconds for pause in self.pauses.values()), default=0.0)


class FaultRunner:
    """Injects faults into a laboratory under load, one at a time, and checks each."""

    def __init__(
        self,
        bed: LabSession,
        loads: Sequence[DeviceLedger],
        print_line: PrintLine,
        idle: Sequence[str] = (),
        beside: Sequence[Watch] = (),
        *,
        recovery_s: float = RECOVERY_DEADLINE_S,
    ) -> None:
        self.bed = bed
        self._recovery_s = recovery_s
        self.loads = loads
        self.devices = (*(load.device for load in loads), *idle)
        self.beside = beside
        self.print_line = print_line
        self.injector = FaultInjector(bed, loads[0].device, print_line)
        self._pool = ThreadPoolExecutor(max_workers=len(bed.lab.machines))
        self._consoles = ConsoleReader(
            {each.name: bed.lab.console_log(each) for each in bed.lab.machines}
        )

    def run_fault(self, number: int, fault: Fault) -> FaultResult:
        """Inject a fault, undo it, wait for the recovery, check every promise."""
        serving = self.serving()
        fault = resolve(fault, self._names(serving))
        result = FaultResult(
            number=number, fault=fault, began_s=time.time(), serving_before=serving
        )
        self.print_line(f"{number}: {describe(fault)}")
        boots = self._boots()
        watch = PrimaryWatch(self.bed)
        watch.start()
        for each in self.beside:
            each.resume()
        try:
            self._break_and_mend(result)
        except SanctlError as error:
            result.problems.append(str(error))
            if _NOT_RECOVERED in {problem.code for problem in error.problems}:
                result.need_operator = self._find_devices_that_need_an_operator()
        finally:
            watch.stop()
            for each in self.beside:
                each.pause()
        after = self._boots()
        result.restarted = tuple(node for node in boots if after.get(node) != boots[node])
        self._judge(result, watch)
        return result

    def _boots(self) -> dict[str, str]:
        """Return the boot id of each member of the cluster that answers."""
        names = [node.name for node in self.bed.cluster]
        found = self._pool.map(lambda name: self._read(name, _BOOT), names)
        return {name: boot.strip() for name, boot in zip(names, found, strict=True) if boot}

    def _break_and_mend(self, result: FaultResult) -> None:
        if isinstance(result.fault, PowerCutSeries):
            self._await_begin_of(result.fault)
        try:
            self.injector.inject(result.fault)
            # The duration is a part of the fault.
            time.sleep(result.fault.hold_s)
        finally:
            self.injector.undo(result.fault)
            result.undone_s = time.time()
        # Pacemaker has recovered from the failed action, and shows it until a cleanup.
        was_killed = isinstance(result.fault, AgentKilled)
        self.await_recovery(known=_ACTION_FAILED if was_killed else frozenset())
        result.recovered_s = time.time()
        if was_killed:
            self.bed.sh(self.bed.cluster[0].name, "crm_resource --cleanup", timeout_s=90)
        self._await_what_comes_late(result)
        ledgers.await_writing(self.loads, within_s=_WRITING_DEADLINE_S)

    def _await_begin_of(self, fault: PowerCutSeries) -> None:
        """Return at the first moment at which the cluster is healthy, after a crash if one is due.

        Raises:
            NotConverged: see `await_recovery`.
        """
        if fault.after_crash_of:
            self.bed.cut_power(fault.after_crash_of)
            self.injector.ensure_power(fault.after_crash_of)
        self.await_recovery()

    def _judge(self, result: FaultResult, watch: PrimaryWatch) -> None:
        before_check_s = time.time()
        ahead_s: dict[str, float] = {}
        for load in self.loads:
            try:
                if load.host.name not in ahead_s:
                    ahead_s[load.host.name] = self.bed.skew_s(load.host.name)
                load.ahead_s = ahead_s[load.host.name]
                load.fetch()
            except SanctlError as error:
                result.problems.append(f"{load.device}: the ledger's log cannot be read: {error}")
        # Lost writes are looked for after a problem, too, unless a device does not answer.
        if not result.problems or self._writes():
            result.checks = ledgers.check_all(self.loads)
        result.problems += [text for _, text in watch.violations]
        for load in self.loads:
            pause = load.pause_since(result.began_s - _MARGIN_S, before_check_s)
            if pause is None:
                result.problems.append(f"{load.device}: {load.host.name} got no answer at all")
                continue
            result.pauses[f"{load.host.name} {load.device}"] = pause
            if pause.errors:
                result.problems.append(
                    f"{load.device}: {load.host.name} saw {pause.errors} I/O errors"
                )
        for device, check in result.checks.items():
            if check.get("failed"):
                result.problems.append(f"{device}: the ledger cannot be checked: {check['failed']}")
            elif check["lost"]:
                result.problems.append(
                    f"{device}: {check['lost']} blocks lost: {'; '.join(check['findings'][:3])}"
                )
        if not is_one_sided(result.fault, result.restarted):
            result.problems.append(f"both sides lost nodes: {' and '.join(result.restarted)}")
        result.fenced, found = self._read_logs(
            result.began_s, is_orderly=isinstance(result.fault, Reboot)
        )
        result.problems += found
        if result.recovered_s:
            # What is not judged now is judged after the next fault.
            for each in self.beside:
                result.problems += each.judge(result.restarted)
        result.serving_after = self.serving()
        result.ended_s = time.time()
        for load in self.loads:
            load.forget_before(result.ended_s - 60)

    def _await_what_comes_late(self, result: FaultResult) -> None:
        """Wait once more if the cluster looked recovered before the fault had its effect.

        A node that lost a daemon may be fenced for that seconds later.

        Raises:
            NotConverged: see `await_recovery`.
        """
        time.sleep(_LATE_S)
        if self.find_problems():
            self.print_line("   a late effect of the fault: waiting again")
            self.await_recovery()
            result.recovered_s = time.time()

    def _writes(self) -> bool:
        try:
            ledgers.await_writing(self.loads, within_s=_SIGN_OF_LIFE_S)
        except SanctlError:
            return False
        return True

    def serving(self) -> dict[str, str]:
        """Return the node that serves each device; "none", or several with " and "."""
        views = collect.kernel_views(self.bed)
        return {
            device: " and ".join(kernel_audit.active_nodes(views, device)) or "none"
            for device in self.devices
        }

    def _find_devices_that_need_an_operator(self) -> dict[str, str]:
        """Return each device that does not recover by itself, and why; asked after the deadline."""
        found = {}
        for device, serving in self.serving().items():
            answer = self._read(
                self.bed.storage[0].name, f"sanctl device heal {device} --output json"
            )
            text = operator_need(serving, answer)
            if text:
                found[device] = text
        return found

    def await_recovery(self, *, within_s: float | None = None, known: Collection[str] = ()) -> None:
        """Wait until no node reports a problem, other than findings with the codes of `known`.

        Args:
            within_s: how long. [what the run allows for a recovery]
            known: codes of findings that may be there.

        Raises:
            NotConverged: the deadline passed; the problems are in the text.
        """
        last: list[str] = []
        within_s = self._recovery_s if within_s is None else within_s

        def has_recovered() -> bool:
            nonlocal last
            last = self.find_problems(known)
            return not last

        try:
            wait_for(
                "the recovery of the cluster", has_recovered, within_s=within_s, every_s=_POLL_S
            )
        except NotConverged as error:
            raise NotConverged(
                Problem(
                    _NOT_RECOVERED,
                    f"not recovered after {within_s:g} s: {'; '.join(last) or error}",
                )
            ) from error

    def find_problems(self, known: Collection[str] = ()) -> list[str]:
        """Return each problem of a cluster that has not recovered, but for codes in `known`."""
        members = [node.name for node in self.bed.cluster]
        reports = {
            name: report
            for name, report in zip(members, self._pool.map(self._ask, members), strict=True)
            if report is not None
        }
        storage = [node.name for node in self.bed.storage]
        replicas = dict.fromkeys(self.devices, storage)
        found = cleanliness.find_problems(reports, members=members, replicas=replicas)
        if not found:
            status = self.bed.sh(members[0], "sanctl status", timeout_s=60, ok=range(256))
            lines = (status.stdout + status.stderr).strip().splitlines()
            if not has_recovered(status.status, status.stdout, known=known):
                found.append(f"sanctl status: {' / '.join(lines[:4])}")
        return found

    def _ask(self, node: str) -> cleanliness.NodeReport | None:
        try:
            out = self.bed.sh(node, cleanliness.SCRIPT, timeout_s=_AUDIT_TIMEOUT_S).stdout
            return cleanliness.parse(out)
        except (CommandError, ValueError):
            return None

    def _names(self, serving: Mapping[str, str]) -> dict[str, str]:
        storage = [node.name for node in self.bed.storage]
        active = serving[self.loads[0].device]
        active = active if active in storage else storage[0]
        others = [name for name in storage if name != active]
        witnesses = [node.name for node in self.bed.cluster if node.role is Role.WITNESS]
        return {ACTIVE: active, STANDBY: others[0], WITNESS: (witnesses or others)[0]}

    def _read_logs(self, since_s: float, *, is_orderly: bool) -> tuple[tuple[str, ...], list[str]]:
        """Return the fenced nodes, and forbidden lines of all machines' journals and consoles."""
        fenced: set[str] = set()
        problems = []
        machines = self.bed.lab.machines
        since_s -= _MARGIN_S
        script = _LOG.format(since=since_s)
        for node, out in zip(
            machines, self._pool.map(lambda each: self._read(each.name, script), machines),
            strict=True,
        ):  # fmt: skip
            # A kernel's panic is on its console alone. A host's I/O error is in its journal, timed.
            dying = log_patterns.find(
                as_kernel_log(self._consoles.new_lines(node.name)), is_host=False
            )
            problems += [f"{node.name}: console: {line}" for line in dying[:5]]
            if out is None:
                problems.append(f"{node.name}: its journal cannot be read")
                continue
            is_host = node.role is Role.INITIATOR
            lines = lines_since(out.splitlines(), since_s)
            found = log_patterns.find(lines, is_host=is_host, is_orderly=is_orderly)
            problems += [f"{node.name}: {line}" for line in found[:5]]
            fenced |= {match[1] for match in re.findall(_FENCED, "\n".join(lines))}
        return tuple(sorted(fenced)), problems

    def _read(self, node: str, script: str) -> str | None:
        try:
            return self.bed.sh(node, script, timeout_s=60, ok=(0, 1)).stdout
        except CommandError:
            return None


def operator_need(serving: str, heal_answer: str | None) -> str:
    """Return why a device needs an operator; empty: it does not.

    Args:
        serving: the nodes that serve it, or "none".
        heal_answer: the JSON of `sanctl device heal`; None: no answer.
    """
    condition = ""
    if heal_answer:
        try:
            condition = json.loads(heal_answer)["data"]["condition"]
        except (ValueError, KeyError, TypeError):
            condition = ""
    if condition not in {"", "sound", "waiting"}:
        return f"`sanctl device heal` asks for a decision: {condition}"
    if serving == "none":
        return f"no node serves it; `sanctl device heal`: {condition or 'no answer'}"
    return ""


def nodes_by_role(bed: LabSession, *, has_site: bool = False) -> NodesByRole:
    """Return the names of a laboratory's machines by role.

    With `has_site` the last host is a second site's server, and of several hosts no initiator.
    """
    hosts = tuple(n.name for n in bed.lab.machines if n.role is Role.INITIATOR)
    return NodesByRole(
        storage=tuple(node.name for node in bed.storage),
        witnesses=tuple(n.name for n in bed.cluster if n.role is Role.WITNESS),
        hosts=(hosts[:-1] or hosts) if has_site else hosts,
        qnetd_hosts=tuple(n.name for n in bed.lab.machines if n.role is Role.QNETD),
        site_server=hosts[-1] if has_site else "",
    )
