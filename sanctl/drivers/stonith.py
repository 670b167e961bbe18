# SPDX-License-Identifier: GPL-2.0-or-later
"""Fencing devices: list, ask one, fence a node now or confirm that it is off (stonith_admin(8))."""

from __future__ import annotations

from typing import Protocol

from sanctl.errors import CommandError
from sanctl.parse.xml_output import parse_xml
from sanctl.system.runner import Runner

# The fence agent gives up on a BMC that does not answer after login_timeout, 5 s, tried twice.
_ASK_TIMEOUT_S = 40.0
_AGENTS = "/usr/sbin"


class StonithPort(Protocol):
    """What sanctl/ops needs of the fencer."""

    def registered(self) -> tuple[str, ...]:
        """Return the fencing devices that this node may use.

        Raises:
            CommandError: the fencer did not answer.
        """
        ...

    def ask(self, device: str) -> str:
        """Have this node ask a fencing device for its status; return why that failed, or nothing.

        No power is switched: the device's own monitor asks the same.
        """
        ...

    def fence(self, node: str, *, ways: int, timeout_s: float) -> None:
        """Fence a node, and return when that is confirmed.

        Raises:
            CommandError: the node is not known to have been fenced.
        """
        ...

    def confirm_off(self, node: str) -> None:
        """Tell the cluster that a node is off: it counts as fenced, and nothing is switched.

        Raises:
            CommandError: the fencer has not taken it, or is not known to have.
        """
        ...


class Stonith:
    """The fencer of this node."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def registered(self) -> tuple[str, ...]:
        """See StonithPort.registered."""
        # 1: there are none (Pacemaker 2.1).
        done = self._runner.run(
            ["stonith_admin", "--list-registered", "--output-as=xml"],
            timeout_s=_ASK_TIMEOUT_S,
            ok=(0, 1),
        )
        root = parse_xml(done.stdout, "stonith_admin")
        return tuple(sorted(item.text or "" for item in root.iter("item")))

    def ask(self, device: str) -> str:
        """See StonithPort.ask.

        This runs the fence agent as the fencer does (FenceAgentAPI: options on standard input).
        `stonith_admin --query` asks only on the node that runs the device's monitor: on all others
        it succeeds without output, whatever the state of the device (Pacemaker 3.0.0).
        """
        try:
            agent, options = self._of(device)
            lines = "".join(f"{name}={value}\n" for name, value in options.items())
            self._runner.run(
                [f"{_AGENTS}/{agent}"], stdin=f"{lines}action=monitor\n", timeout_s=_ASK_TIMEOUT_S
            )
        except CommandError as error:
            return error.problems[0].text
        return ""

    def _of(self, device: str) -> tuple[str, dict[str, str]]:
        """Return a fencing device's agent and the options that it is run with."""
        answer = self._runner.run(
            ["cibadmin", "--query", "--xpath", f"//primitive[@id='{device}']"],
            timeout_s=_ASK_TIMEOUT_S,
        )
        primitive = parse_xml(answer.stdout, "cibadmin")
        pairs = primitive.iterfind("instance_attributes/nvpair")
        options = {pair.get("name", ""): pair.get("value", "") for pair in pairs}
        # Options named `pcmk_...` are Pacemaker's own: no agent knows them.
        return primitive.get("type", ""), {
            name: value for name, value in options.items() if not name.startswith("pcmk_")
        }

    def fence(self, node: str, *, ways: int, timeout_s: float) -> None:
        """See StonithPort.fence."""
        # The option is the time for each device; the fencer adds a fifth for all of them.
        each_s = timeout_s / (1.2 * max(1, ways))
        self._runner.run(
            ["stonith_admin", "--reboot", node, f"--timeout={each_s:.0f}"],
            timeout_s=timeout_s + 10.0,
        )

    def confirm_off(self, node: str) -> None:
        """See StonithPort.confirm_off."""
        self._runner.run(["stonith_admin", "--confirm", node], timeout_s=_ASK_TIMEOUT_S)
