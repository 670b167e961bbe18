# SPDX-License-Identifier: GPL-2.0-or-later
"""A running laboratory: run commands on its nodes over ssh, cut power, wait with a deadline."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from sanctl.errors import CommandError, NotConverged, Problem
from sanctl.lab.machines import lab_state, node_power
from sanctl.lab.machines.lab_state import Lab
from sanctl.lab.machines.spec import NodeSpec, Role
from sanctl.system.runner import CommandResult, LocalRunner

_POLL_S = 0.5

Found = TypeVar("Found")


class LabSession:
    """A laboratory that is up: a test bed.

    Variables of this type are called `bed`, because `session` would be taken for an iSCSI session.
    """

    def __init__(self, name: str) -> None:
        self.lab: Lab = lab_state.load(name)
        self._runner = LocalRunner()

    @property
    def storage(self) -> tuple[NodeSpec, ...]:
        """The nodes that hold data."""
        return tuple(node for node in self.lab.machines if node.role is Role.STORAGE)

    @property
    def cluster(self) -> tuple[NodeSpec, ...]:
        """All members of the cluster."""
        return self.lab.spec.cluster_nodes

    def node(self, name: str) -> NodeSpec:
        """Return a node by name."""
        return self.lab.spec.node(name)

    def sh(
        self,
        node: str,
        script: str,
        *,
        timeout_s: float = 60.0,
        ok: Sequence[int] = (0,),
        stdin: str | None = None,
    ) -> CommandResult:
        """Run a shell script on a node.

        Raises:
            CommandError: it failed, or took too long.
        """
        argv = self.lab.ssh_argv(self.node(node), script)
        return self._runner.run(argv, timeout_s=timeout_s, ok=ok, stdin=stdin)

    def read_bytes(self, node: str, path: str) -> bytes:
        """Return a file of a node."""
        argv = self.lab.ssh_argv(self.node(node), f"cat '{path}'")
        return subprocess.run(argv, check=True, capture_output=True, timeout=120).stdout

    @contextlib.contextmanager
    def stream(self, node: str, script: str) -> Iterator[subprocess.Popen[str]]:
        """Run a script on a node for as long as the block lasts; its output can be read."""
        argv = self.lab.ssh_argv(self.node(node), script)
        with subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.terminate()

    def cut_power(self, node: str) -> float:
        """Cut a node's power and return the time at which it was cut.

        Called directly: the start of a `sanctl lab power` would blur the time of the cut.
        """
        # Its first kill ends the guest's kernel; the return only says that nothing is left.
        cut_s = time.time()
        node_power.power_off(self.lab, self.node(node))
        return cut_s

    def ensure_power(self, node: str) -> None:
        """Switch a node on, unless fencing has done so already."""
        node_power.power_on(self.lab, self.node(node), post_delay_s=self.lab.spec.post_delay_s)

    def has_power(self, node: str) -> bool:
        """Whether a node has power; after a crash fencing switches it on again."""
        return node_power.power(self.lab, self.node(node)) is node_power.Power.ON

    def powered_since_s(self, node: str) -> float | None:
        """Return when a node that has power was switched on, None if it has none."""
        try:
            since_s = (self.lab.node_directory(self.node(node)) / "pid").stat().st_mtime
        except FileNotFoundError:
            return None
        return since_s if self.has_power(node) else None

    def skew_s(self, node: str) -> float:
        """Return how far a node's clock is ahead of this machine's; 0 within the error of it.

        Of three measurements the one with the shortest round trip counts; a difference of less than
        half that round trip is the time of the way there and back, and no skew.
        """
        best = (float("inf"), 0.0)
        for _ in range(3):
            sent_s = time.time()
            node_s = float(self.sh(node, "date +%s.%N", timeout_s=15).stdout)
            received_s = time.time()
            best = min(best, (received_s - sent_s, node_s - (sent_s + received_s) / 2))
        round_trip, skew = best
        return skew if abs(skew) > round_trip / 2 else 0.0


def sanctl_argv(*arguments: str) -> list[str]:
    """Return the command line of this environment's own sanctl."""
    return [str(Path(sys.executable).with_name("sanctl")), *arguments]


def run_sanctl(*arguments: str, timeout_s: float) -> None:
    """Run sanctl on this machine, its output where ours goes.

    Raises:
        CommandError: it failed; its own output says why.
    """
    try:
        done = subprocess.run(
            sanctl_argv(*arguments), check=False, timeout=timeout_s, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(
            Problem("SAN-CMD-002", f"sanctl {' '.join(arguments)}: not done in {timeout_s:g} s")
        ) from error
    if done.returncode:
        raise CommandError(
            Problem("SAN-CMD-003", f"sanctl {' '.join(arguments)}: status {done.returncode}")
        )


def wait_for(
    what: str, look: Callable[[], Found | None], *, within_s: float, every_s: float = _POLL_S
) -> Found:
    """Call `look` until it returns a true value, and return that value.

    A command that fails meanwhile (a node is booting, a path is away) counts as a false value.

    Raises:
        NotConverged: the deadline passed; the text has the last value or error.
    """
    deadline = time.monotonic() + within_s
    last = "nothing"
    while True:
        try:
            found = look()
        except (CommandError, NotConverged) as error:
            last = str(error)
        else:
            if found:
                return found
            last = repr(found)
        if time.monotonic() > deadline:
            raise NotConverged(
                Problem("SAN-DEMO-001", f"waited {within_s:g} s for {what}; last seen: {last}")
            )
        time.sleep(every_s)
