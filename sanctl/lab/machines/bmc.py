# SPDX-License-Identifier: GPL-2.0-or-later
"""A node's virtual BMC: answers IPMI 2.0 (lanplus) and switches the node's power.

Runs as `python -m sanctl.lab.machines.bmc LAB NODE [ADDRESS]` inside the lab's network, so that
the stock `fence_ipmilan` fences nodes exactly as in a rack. `off` is answered when no process of
the node is left. A second one with ADDRESS is a second fencing device for the same power switch.
"""

from __future__ import annotations

import sys
import time

from pyghmi.ipmi.bmc import Bmc

from sanctl.errors import SanctlError
from sanctl.lab.machines import lab_state, node_power
from sanctl.lab.machines.spec import NodeSpec

IPMI_PORT = 623
# IPMI completion codes.
_OK = 0x00
_UNSPECIFIED = 0xFF


class NodeBmc(Bmc):  # type: ignore[misc]  # pyghmi has no types
    """Power of one node over IPMI."""

    def __init__(self, lab: lab_state.Lab, node: NodeSpec, address: str) -> None:
        self.lab = lab
        self.node = node
        super().__init__({lab_state.BMC_USER: lab.bmc_password()}, port=IPMI_PORT, address=address)

    def get_power_state(self) -> str:
        """Answer `chassis power status`."""
        return node_power.power(self.lab, self.node).value

    def power_off(self) -> int:
        """Cut the power; answered when it is cut."""
        return self._do("off", on=False)

    def power_shutdown(self) -> int:
        """Cut the power: no guest here reacts to the ACPI button of a soft shutdown."""
        return self._do("off (soft)", on=False)

    def power_on(self) -> int:
        """Switch the power on; the node boots after its POST."""
        return self._do("on", off=False)

    def power_cycle(self) -> int:
        """Cut and give."""
        return self._do("cycle")

    def power_reset(self) -> int:
        """Cut and give."""
        return self._do("reset")

    def _do(self, what: str, *, off: bool = True, on: bool = True) -> int:
        begin = time.monotonic()
        try:
            if off:
                node_power.power_off(self.lab, self.node)
            if on:
                node_power.power_on(self.lab, self.node, post_delay_s=self.lab.spec.post_delay_s)
        except SanctlError as error:
            _say(f"power {what} of {self.node.name} failed: {error}")
            return _UNSPECIFIED
        _say(f"power {what} of {self.node.name}: {time.monotonic() - begin:.2f} s")
        return _OK


def _say(line: str) -> None:
    stamp = time.strftime("%H:%M:%S")
    print(f"{stamp} {line}", file=sys.stderr, flush=True)  # noqa: T201 - its log is its stderr


def main() -> None:
    """Serve until killed."""
    lab = lab_state.load(sys.argv[1])
    node = lab.spec.node(sys.argv[2])
    address = sys.argv[3] if len(sys.argv) > 3 else node.bmc_address
    bmc = NodeBmc(lab, node, address)
    _say(f"BMC of {node.name} at {address}:{IPMI_PORT}")
    bmc.listen()


if __name__ == "__main__":
    main()
