# SPDX-License-Identifier: GPL-2.0-or-later
"""Has Pacemaker forget the records of probes for which a change would restart replicas.

After `crm_resource --cleanup` or `--refresh` it has such records of replicas that run
(sanctl/parse/probe_history.py). To delete them from the CIB is of no use: with Pacemaker 3.0 a
change of the CIB's status by cibadmin has the DC elected anew, and each node then writes the
records again that its controller still has. The scheduler has the controller forget them, and the
CIB, where a failure has expired (lib/pengine/unpack.c: check_operation_expiry): the resource has a
`failure-timeout`, and the node a fail count that is older. So for some seconds the device gets
both. Nothing else expires meanwhile: the `failure-timeout` is longer than it is in force, and no
device gets one of which Pacemaker knows a failure.
"""

from __future__ import annotations

import contextlib
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime

from sanctl.drivers.pacemaker import PacemakerPort, StaleCib
from sanctl.errors import CommandError
from sanctl.model.cib_change import (
    Change,
    ClearParameter,
    RemoveDevice,
    SetFailureExpiry,
    SetNodes,
    SetParameter,
)
from sanctl.model.names import DeviceName
from sanctl.parse.cib import parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.parse.probe_history import ProbeRecord, has_own_meta, is_being_probed, probe_records
from sanctl.render.cib import render_patchset
from sanctl.system.clock import Clock

#: How old a failure has to be to expire, and how long any may. The first is longer, by what the
#: clocks of two nodes may differ: so none expires that happens meanwhile.
EXPIRES_AFTER_S, _IN_FORCE_S = 30, 20.0
# Of a younger record the DC's clock may say that it has not expired.
_MARGIN_S = 2.0
_PROBES_S, _GIVE_UP_S = 15.0, 100.0
_ASK_AGAIN_S, _POLL_S = 5.0, 0.5
_MONITOR = "monitor_0"


def changed_devices(changes: Collection[Change]) -> tuple[DeviceName, ...]:
    """Return the devices whose parameters these changes change, in their order."""
    removed = {each.name for each in changes if isinstance(each, RemoveDevice)}
    names = [
        each.name
        for each in changes
        if isinstance(each, SetParameter | ClearParameter | SetNodes) and each.name not in removed
    ]
    return tuple(dict.fromkeys(names))


def would_restart(root: ET.Element, names: Collection[DeviceName]) -> bool:
    """Whether a change of these devices now may restart a replica that runs."""
    return is_being_probed(root, names) or bool(probe_records(root, names))


def forget_probes(
    pacemaker: PacemakerPort,
    clock: Clock,
    report: Callable[[str], None],
    names: Sequence[DeviceName],
) -> None:
    """Wait for probes of these devices, and have Pacemaker forget what it has recorded of them.

    Where that does not succeed in time the next change of the device restarts replicas, as it
    would have without this.

    Raises:
        Refused: no quorum.
        Unreachable: Pacemaker does not answer here.
    """
    _Forgetting(pacemaker, clock, report, names).run()


class _Forgetting:
    def __init__(
        self,
        pacemaker: PacemakerPort,
        clock: Clock,
        report: Callable[[str], None],
        names: Sequence[DeviceName],
    ) -> None:
        self._pacemaker, self._clock, self._names = pacemaker, clock, names
        self._report = report
        self._in_force_until_s = clock.monotonic_s()
        self._asked: set[tuple[str, str]] = set()

    def run(self) -> None:
        began_s = self._clock.monotonic_s()
        self._await_probes(began_s + _PROBES_S)
        asked = 0
        while (found := self._look()) is not None:
            root, records = found
            age_s = self._clock.wall_s() - max(each.changed_s for each in records)
            waited_s = self._clock.monotonic_s() - began_s
            if waited_s >= _GIVE_UP_S:
                break
            if age_s < EXPIRES_AFTER_S + _MARGIN_S and waited_s < EXPIRES_AFTER_S + _MARGIN_S:
                names = ", ".join(sorted({each.device.value for each in records}))
                self._report(
                    f"waiting until Pacemaker can forget the last cleanup of {names}: without "
                    "that it would restart replicas"
                )
                self._clock.sleep(_POLL_S)
                continue
            asked += 1
            try:
                self._ask(root, records, asked)
            except StaleCib:
                self._clock.sleep(_POLL_S)
            except CommandError:
                break
            else:
                self._await_forgotten()
        self._withdraw()

    def _await_probes(self, until_s: float) -> None:
        while self._clock.monotonic_s() < until_s:
            if not is_being_probed(parse_document(self._pacemaker.query()), self._names):
                return
            self._report("waiting for Pacemaker to find out what runs")
            self._clock.sleep(_POLL_S)

    def _look(self) -> tuple[ET.Element, tuple[ProbeRecord, ...]] | None:
        """Return the CIB, and the records that may be forgotten; None without any."""
        root = parse_document(self._pacemaker.query())
        mon = parse_crm_mon(self._pacemaker.monitor())
        records = tuple(
            each
            for each in probe_records(root, self._names)
            # A failure that nobody has looked at would be forgotten with it.
            if not mon.failures_of(each.device) and has_own_meta(root, each.device)
        )
        return (root, records) if records else None

    def _ask(self, root: ET.Element, records: tuple[ProbeRecord, ...], number: int) -> None:
        now_s = self._clock.monotonic_s()
        if now_s + _ASK_AGAIN_S > self._in_force_until_s:
            until = datetime.fromtimestamp(self._clock.wall_s() + _IN_FORCE_S, UTC)
            text = until.strftime("%Y-%m-%d %H:%M:%SZ")
            devices = dict.fromkeys(each.device for each in records)
            changes = [
                SetFailureExpiry(name=name, after_s=EXPIRES_AFTER_S, until=text) for name in devices
            ]
            self._pacemaker.patch(render_patchset(root, changes))
            self._in_force_until_s = now_s + _IN_FORCE_S
        for each in records:
            self._asked.add((each.node, each.device.value))
            # The time first: a count without one counts as new. Another number than before, so
            # that the scheduler looks again.
            for kind, value in (("last-failure", "1"), ("fail-count", str(number))):
                attribute = f"{kind}-{each.device}#{_MONITOR}"
                self._pacemaker.set_transient_attribute(each.node, attribute, value)

    def _await_forgotten(self) -> None:
        until_s = self._clock.monotonic_s() + _ASK_AGAIN_S
        while self._clock.monotonic_s() < until_s:
            root = parse_document(self._pacemaker.query())
            left = {(each.node, each.device.value) for each in probe_records(root, self._names)}
            self._asked &= left
            if not self._asked:
                return
            self._clock.sleep(_POLL_S)

    def _withdraw(self) -> None:
        """Take back fail counts that the scheduler may not have removed."""
        for node, device in sorted(self._asked):
            for kind in ("fail-count", "last-failure"):
                with contextlib.suppress(CommandError):
                    attribute = f"{kind}-{device}#{_MONITOR}"
                    self._pacemaker.set_transient_attribute(node, attribute, None)
