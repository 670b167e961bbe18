# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs faults one after the other, and audits everything after each."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from sanctl.errors import CommandError, NotConverged, Problem, SanctlError
from sanctl.lab.chaos import loads as ledgers
from sanctl.lab.chaos.consoles import Consoles, as_journal
from sanctl.lab.chaos.fault import (
    ACTIVE,
    STANDBY,
    WITNESS,
    AgentKilled,
    Fault,
    Reboot,
    describe,
    is_one_sided,
    resolve,
)
from sanctl.lab.chaos.fault_choice import Shape
from sanctl.lab.chaos.inflict import Inflicter
from sanctl.lab.chaos.loads import Load
from sanctl.lab.chaos.watch import Watch
from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import Bed, wait_for
from sanctl.lab.machines.spec import Role
from sanctl.lab.measure import audit, cleanliness, log_patterns
from sanctl.lab.measure.ledger_latency import Pause

#: A crash, the fence, a boot and a resync take about a minute on two quiet processors.
WHOLE_DEADLINE_S = 300.0
_WRITING_DEADLINE_S = 120.0
_AUDIT_TIMEOUT_S = 60.0
_SIGN_OF_LIFE_S = 20.0
_POLL_S = 2.0
# Between the death of a daemon and what the cluster makes of it.
_LATE_S = 5.0
# Clocks and journals are this exact; what a step left just before the next is not its fault.
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

# What `sanctl status` finds and is degraded by, each with its code; notes are not.
_CODE = re.compile(r"^  (?:critical|warning): .*\((SAN-[A-Z]+-\d{3})\)$", re.MULTILINE)
_ACTION_FAILED = frozenset({"SAN-HLT-040"})

Tell = Callable[[str], None]


@dataclass(slots=True)
class Step:
    """One fault and what came of it."""

    number: int
    fault: Fault
    began_s: float
    undone_s: float = 0.0
    whole_s: float = 0.0
    ended_s: float = 0.0
    pauses: dict[str, Pause] = field(default_factory=dict)  # by "HOST DEVICE"
    checks: dict[str, dict[str, Any]] = field(default_factory=dict)
    fenced: tuple[str, ...] = ()  # by the cluster, as it says itself
    restarted: tuple[str, ...] = ()  # by whatever: another boot than before
    serving_before: dict[str, str] = field(default_factory=dict)
    serving_after: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether every promise held."""
        return not self.problems

    @property
    def longest_pause_s(self) -> float:
        """The longest pause any host saw."""
        return max((pause.seconds for pause in self.pauses.values()), default=0.0)


class Bench:
    """A laboratory under load that can be broken."""

    def __init__(self, bed: Bed, loads: Sequence[Load], tell: Tell) -> None:
        self.bed = bed
        self.loads = loads
        self.tell = tell
        self.inflicter = Inflicter(bed, loads[0].device, tell)
        self._pool = ThreadPoolExecutor(max_workers=len(bed.lab.machines))
        self._consoles = Consoles(
            {each.name: bed.lab.console_log(each) for each in bed.lab.machines}
        )

    @property
    def shape(self) -> Shape:
        """What there is to break."""
        return shape_of(self.bed)

    def run_step(self, number: int, fault: Fault) -> Step:
        """Break something, undo it, wait until all is whole, and judge what happened meanwhile."""
        serving = self.serving()
        fault = resolve(fault, self._names(serving))
        step = Step(number=number, fault=fault, began_s=time.time(), serving_before=serving)
        self.tell(f"{number}: {describe(fault)}")
        boots = self._boots()
        watch = Watch(self.bed)
        watch.start()
        try:
            self._break_and_mend(step)
        except SanctlError as error:
            step.problems.append(str(error))
        finally:
            watch.stop()
        after = self._boots()
        step.restarted = tuple(node for node in boots if after.get(node) != boots[node])
        self._judge(step, watch)
        return step

    def _boots(self) -> dict[str, str]:
        """Return which boot each member of the cluster is in; of those that answer."""
        names = [node.name for node in self.bed.cluster]
        told = self._pool.map(lambda name: self._read(name, _BOOT), names)
        return {name: boot.strip() for name, boot in zip(names, told, strict=True) if boot}

    def _break_and_mend(self, step: Step) -> None:
        try:
            self.inflicter.inflict(step.fault)
            # How long a fault lasts is a part of it.
            time.sleep(step.fault.hold_s)
        finally:
            self.inflicter.undo(step.fault)
            step.undone_s = time.time()
        # Pacemaker has got over it, and shows it until it is told that somebody has seen it.
        was_killed = isinstance(step.fault, AgentKilled)
        self.await_whole(known=_ACTION_FAILED if was_killed else frozenset())
        step.whole_s = time.time()
        if was_killed:
            self.bed.sh(self.bed.cluster[0].name, "crm_resource --cleanup", timeout_s=90)
        self._await_what_comes_late(step)
        ledgers.await_writing(self.loads, within_s=_WRITING_DEADLINE_S)

    def _judge(self, step: Step, watch: Watch) -> None:
        for load in self.loads:
            try:
                load.fetch()
            except SanctlError as error:
                step.problems.append(f"{load.device}: the ledger's log cannot be read: {error}")
        before_check_s = time.time()
        # A problem is no reason not to look for lost writes; a device that gives no answer is.
        if not step.problems or self._writes():
            step.checks = ledgers.check_all(self.loads)
        step.problems += [text for _, text in watch.violations]
        for load in self.loads:
            pause = load.pause_since(step.began_s - _MARGIN_S, before_check_s)
            if pause is None:
                step.problems.append(f"{load.device}: {load.host.name} got no answer at all")
                continue
            step.pauses[f"{load.host.name} {load.device}"] = pause
            if pause.errors:
                step.problems.append(
                    f"{load.device}: {load.host.name} saw {pause.errors} I/O errors"
                )
        for device, check in step.checks.items():
            if check.get("failed"):
                step.problems.append(f"{device}: the ledger cannot be checked: {check['failed']}")
            elif check["lost"]:
                step.problems.append(
                    f"{device}: {check['lost']} blocks lost: {'; '.join(check['findings'][:3])}"
                )
        if not is_one_sided(step.fault, step.restarted):
            step.problems.append(f"both sides lost nodes: {' and '.join(step.restarted)}")
        step.fenced, found = self._read_logs(
            step.began_s, is_orderly=isinstance(step.fault, Reboot)
        )
        step.problems += found
        step.serving_after = self.serving()
        step.ended_s = time.time()
        for load in self.loads:
            load.forget_before(step.ended_s - 60)

    def _await_what_comes_late(self, step: Step) -> None:
        """Wait again where all had looked whole before a fault had shown what it does.

        A node that lost a daemon may be fenced for that seconds later.

        Raises:
            NotConverged: see `await_whole`.
        """
        time.sleep(_LATE_S)
        if self.complaints():
            self.tell("   it was whole too early: waiting again")
            self.await_whole()
            step.whole_s = time.time()

    def _writes(self) -> bool:
        try:
            ledgers.await_writing(self.loads, within_s=_SIGN_OF_LIFE_S)
        except SanctlError:
            return False
        return True

    def serving(self) -> dict[str, str]:
        """Return the node that serves each of the bench's devices, or what else is the case."""
        views = collect.views(self.bed)
        return {
            load.device: " and ".join(audit.active_nodes(views, load.device)) or "nobody"
            for load in self.loads
        }

    def await_whole(
        self, *, within_s: float = WHOLE_DEADLINE_S, known: Collection[str] = ()
    ) -> None:
        """Wait until no node has anything to complain about, other than the codes of `known`.

        Raises:
            NotConverged: the deadline passed; tells what is missing.
        """
        last: list[str] = []

        def is_whole() -> bool:
            nonlocal last
            last = self.complaints(known)
            return not last

        try:
            wait_for("a whole cluster", is_whole, within_s=within_s, every_s=_POLL_S)
        except NotConverged as error:
            raise NotConverged(
                Problem(
                    "SAN-CHAOS-001",
                    f"not whole after {within_s:g} s: {'; '.join(last) or error}",
                )
            ) from error

    def complaints(self, known: Collection[str] = ()) -> list[str]:
        """Return what keeps the cluster from being whole, but for findings with these codes."""
        members = [node.name for node in self.bed.cluster]
        reports = {
            name: report
            for name, report in zip(members, self._pool.map(self._ask, members), strict=True)
            if report is not None
        }
        storage = [node.name for node in self.bed.storage]
        replicas = {load.device: storage for load in self.loads}
        found = cleanliness.complaints(reports, members=members, replicas=replicas)
        if not found:
            told = self.bed.sh(members[0], "sanctl status", timeout_s=60, ok=range(256))
            lines = (told.stdout + told.stderr).strip().splitlines()
            codes = set(_CODE.findall(told.stdout))
            if told.status and not (told.status == 1 and codes and codes <= set(known)):
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
        """Return who was fenced, and forbidden lines, from all machines' journals and consoles."""
        fenced: set[str] = set()
        problems = []
        machines = self.bed.lab.machines
        script = _LOG.format(since=since_s - _MARGIN_S)
        for node, out in zip(
            machines, self._pool.map(lambda each: self._read(each.name, script), machines),
            strict=True,
        ):  # fmt: skip
            # What killed a kernel is in no journal. An I/O error of a host is, with its time.
            dying = log_patterns.find(as_journal(self._consoles.news(node.name)), is_host=False)
            problems += [f"{node.name}: console: {line}" for line in dying[:5]]
            if out is None:
                problems.append(f"{node.name}: its journal cannot be read")
                continue
            is_host = node.role is Role.INITIATOR
            found = log_patterns.find(out.splitlines(), is_host=is_host, is_orderly=is_orderly)
            problems += [f"{node.name}: {line}" for line in found[:5]]
            fenced |= {match[1] for match in re.findall(_FENCED, out)}
        return tuple(sorted(fenced)), problems

    def _read(self, node: str, script: str) -> str | None:
        try:
            return self.bed.sh(node, script, timeout_s=60, ok=(0, 1)).stdout
        except CommandError:
            return None


def shape_of(bed: Bed) -> Shape:
    """Return what there is to break in a laboratory."""
    return Shape(
        storage=tuple(node.name for node in bed.storage),
        witnesses=tuple(n.name for n in bed.cluster if n.role is Role.WITNESS),
        hosts=tuple(n.name for n in bed.lab.machines if n.role is Role.INITIATOR),
        voters=tuple(n.name for n in bed.lab.machines if n.role is Role.QNETD),
    )
