# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out the faults of a second site: its link, its filesystem, both ends of a copy."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from sanctl.errors import CommandError, NotConverged
from sanctl.lab.chaos.fault import CopyKilled, SiteFull, SiteLinkCut
from sanctl.lab.chaos.site_watch import GROUP_FILE, SiteWatch
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.machines import network_cuts, node_faults
from sanctl.lab.machines.network_cuts import Cut
from sanctl.lab.machines.spec import Network
from sanctl.system.runner import LocalRunner

_BEGIN_S = 90.0
_FREE_S = 60.0
_TRIES = 3
_POLL_S = 0.2
# The pattern does not match the shell that looks for it.
_KILL_RECEIVER = "kill -KILL $(pgrep -f 'compile[(]d,')"
_KILL_SENDER = f"kill -KILL -$(cat {GROUP_FILE})"

SiteFault = SiteLinkCut | SiteFull | CopyKilled


class SiteFaults:
    """Injects faults of the site into one laboratory, and undoes them."""

    def __init__(
        self, bed: LabSession, watch: SiteWatch, print_line: Callable[[str], None]
    ) -> None:
        self._bed = bed
        self._watch = watch
        self._print_line = print_line
        self._runner = LocalRunner()

    def inject(self, fault: SiteFault) -> None:
        """Break something.

        Raises:
            CommandError: the lab could not do it.
        """
        match fault:
            case SiteLinkCut():
                network_cuts.change(self._bed.lab, self._runner, add=_cuts(fault))
            case SiteFull(server=server):
                script = node_faults.fill_script(self._watch.where.mount)
                self._bed.sh(server, script, timeout_s=120)
            case CopyKilled():
                self._kill(fault)

    def undo(self, fault: SiteFault) -> None:
        """Take a fault back.

        Raises:
            CommandError: the lab could not do it.
            NotConverged: the server does not answer.
        """
        match fault:
            case SiteLinkCut():
                network_cuts.change(self._bed.lab, self._runner, remove=_cuts(fault))
            case SiteFull():
                wait_for("the site to be freed", self._free, within_s=_FREE_S)
            case CopyKilled():
                pass

    def heal(self) -> None:
        """Free the site; cuts are healed with all others."""
        with suppress(CommandError):
            self._free()

    def _free(self) -> bool:
        where = self._watch.where
        self._bed.sh(where.server, node_faults.free_script(where.mount), timeout_s=30)
        return True

    def _kill(self, fault: CopyKilled) -> None:
        """Have a copy made, and kill one end of it; one that was over sooner is made again."""
        after_s = fault.after_s
        for _ in range(_TRIES):
            self._watch.act_now()
            try:
                node = wait_for(
                    "a copy to begin", self._watch.running_on, within_s=_BEGIN_S, every_s=0.1
                )
            except NotConverged:
                break
            # The moment is the fault.
            time.sleep(after_s)
            if self._hit(fault.end, node):
                return
            after_s /= 2
        self._print_line(f"   no {fault.end} was killed: no copy lasted for so long")

    def _hit(self, end: str, node: str) -> bool:
        """Kill an end as soon as it is there; return whether it was before the copy was over."""
        where, script = (
            (node, _KILL_SENDER) if end == "sender" else (self._watch.where.server, _KILL_RECEIVER)
        )
        while self._watch.running_on() == node:
            with suppress(CommandError):
                if self._bed.sh(where, script, timeout_s=20, ok=range(256)).status == 0:
                    return True
            time.sleep(_POLL_S)
        return False


def _cuts(fault: SiteLinkCut) -> frozenset[Cut]:
    return network_cuts.partition(Network.ISCSI, [fault.nodes, (fault.server,)])
