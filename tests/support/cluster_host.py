# SPDX-License-Identifier: GPL-2.0-or-later
"""What two hosts of a cluster do with a disk that they share: registrations, defence, heartbeats.

Windows and ESXi send these sequences; here sg3_utils and Python programs send them.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import await_members_online
from tests.support import arbitration_runner, heartbeat_runner, offload_runner
from tests.support.two_hosts import TwoHosts

#: Each host's key: eight bytes, of which Windows has the same four in all.
KEYS = (0x5AD10A0B4D534657, 0x7BE20C0D4D534657)
#: Write Exclusive, Registrants Only.
TYPE = "--prout-type=5"
TYPE_TEXT = "Write Exclusive, registrants only"
#: Where sanctl is called: a witness, which no test of these takes down.
WHERE = "n3"
SERVED_S, BACK_S, ENDS_S = 180.0, 400.0, 320.0
#: What a clustered disk's challenger gives its owner to defend it: two rounds of three seconds.
CHALLENGER_WAITS_S = 6.0
#: Where the slots of heartbeats begin, one block each; where the writes in flight go, in bytes.
SLOTS_BLOCK, PAGES_AT = (8 << 20) // offload_runner.BLOCK_BYTES, 16 << 20
#: What a host asks of a disk before it uses offloads and tells its paths apart.
_OFFERS = (
    "sg_inq --hex --len=36 {0}; sg_vpd --page=0 {0}; sg_vpd --page=sn {0}; sg_vpd --page=bl {0};"
    " sg_vpd --page=bdc {0}; sg_vpd --page=lbpv {0}; sg_vpd --page=di {0} | grep -i 0x6"
)


class ClusterHosts(TwoHosts):
    """Two hosts with a disk of which one node serves the paths."""

    @property
    def active(self) -> str:
        """The node that serves, as the kernels say."""
        return collect.active_node(self.scenario.bed, self.device)

    @property
    def standby(self) -> str:
        """The other node."""
        return other(self.active)

    def move(self) -> str:
        """Move the disk to the other node, and return that once it serves."""
        node = self.standby
        self.scenario.sanctl("device", "move", self.device, "--to", node, node=WHERE, timeout_s=120)
        wait_for(f"{node} to serve", lambda: self.active == node, within_s=SERVED_S)
        return node

    def await_whole(self) -> None:
        """Wait for both replicas and all paths, by which both hosts are told the same keys."""
        bed = self.scenario.bed
        await_members_online(bed)
        wait_for(
            "both replicas",
            lambda: collect.is_in_sync(bed, self.active, self.device),
            within_s=BACK_S,
        )
        paths = [(host, node) for host in (0, 1) for node in ("n1", "n2")]
        wait_for(
            "the same keys by all paths",
            lambda: len({tuple(self.keys(*path)) for path in paths}) == 1,
            within_s=BACK_S,
            every_s=1.0,
        )

    def register_by_every_path(self, host: int) -> None:
        """REGISTER AND IGNORE EXISTING KEY by both paths at once, the standby's first."""
        command = f"sg_persist --no-inquiry --out --register-ignore --param-sark={KEYS[host]:x}"
        script = (
            f"{command} {self.disk(host, self.standby)} & {command} {self.disk(host, self.active)};"
            " active=$?; wait $!; echo $? $active"
        )

        def register() -> bool:
            told = self.host.sh(f"({script}) 2>&1 | tail -n 1", timeout_s=120).split()
            print(f"host {host} registers: standby {told[0]}, active {told[-1]}")
            return told == ["0", "0"]

        # A session that ends meanwhile, or a unit attention: hosts ask again.
        wait_for(f"host {host}'s registrations", register, within_s=90, every_s=3.0)

    def preempt(self, host: int, *, how: str = "preempt") -> None:
        """Take the other host's registration, and the reservation if that holds it."""
        node = self.active
        options = f"--{how} --param-rk={KEYS[host]:x} --param-sark={KEYS[1 - host]:x} {TYPE}"
        # One that was made before a session ended is a conflict when it is asked again.
        assert self.out(host, node, options) == 0 or KEYS[1 - host] not in self.keys(host, node)

    def assert_shut_out(self, loser: int) -> None:
        """The loser writes by no path, and the winner does."""
        node = self.active
        wait_for(
            f"a write of host {1 - loser}",
            lambda: self.write(1 - loser, node) == "written",
            within_s=SERVED_S,
        )
        assert self.is_refused(loser, node)
        assert self.write(loser, other(node)) != "written", "it is a standby"

    # The owner's defence, and writes that are in flight.

    def start_arbitration(self, host: int, what: str) -> None:
        """Have a host `defend` the disk, or `write` to it."""
        paths = {node: self.disk(host, node) for node in ("n1", "n2")}
        if what == "defend":
            arguments = [f"{node}={disk}" for node, disk in paths.items()]
        else:
            arguments = [str(PAGES_AT), *paths.values()]
        program = f"/run/{self._unit(host)}.py"
        source = Path(arbitration_runner.__file__).read_text()
        self.scenario.bed.sh(self.host.name, f"cat >{program}", stdin=source)
        self.host.sh(
            f"rm -f {self._log(host)}; systemd-run --quiet --collect --unit={self._unit(host)}"
            f" python3 {program} {what} {self._log(host)} {' '.join(arguments)}"
        )

    def stop_arbitration(self, host: int) -> None:
        """End what a host does all the while: its machine hangs."""
        self.host.sh(f"systemctl stop {self._unit(host)}; true", timeout_s=150)

    def end_programs(self, host: int) -> None:
        """End the owner's defence, writes that are in flight, and heartbeats."""
        self.stop_arbitration(host)
        self.kill_heartbeats(host)

    def rounds(self, host: int) -> list[dict[str, Any]]:
        """Return what the owner has read, one for each round."""
        out = self.host.sh(f"touch {self._log(host)}; cat {self._log(host)}")
        return [json.loads(line) for line in out.splitlines(keepends=True) if line.endswith("\n")]

    def await_rounds(self, host: int, node: str) -> None:
        """Wait until the owner has read by a node's path twice more."""
        before = len(self.rounds(host))
        wait_for(
            f"reads by the path of {node}",
            lambda: [each["node"] for each in self.rounds(host)[before:]].count(node) >= 2,
            within_s=SERVED_S,
            every_s=1.0,
        )

    def in_flight(self, host: int, node: str) -> list[tuple[int, int, str]]:
        """Return of each thread by a path: its tries, what was acknowledged, the last error."""
        threads, at = arbitration_runner.THREADS, ("n1", "n2").index(node)
        told = json.loads(self.host.sh(f"cat {self._log(host)}"))
        return [tuple(each) for each in told[at * threads : (at + 1) * threads]]

    def pages(self, host: int, node: str) -> list[int]:
        """Read what the threads by a node's path have written, by that path of a host."""
        size, threads = arbitration_runner.PAGE_BYTES, arbitration_runner.THREADS
        first = PAGES_AT // size + threads * ("n1", "n2").index(node)
        numbers = "int.from_bytes(data[at:at + 8], 'big') for at in range(0, len(data), 4096)"
        out = self.host.sh(
            f"dd if={self.disk(host, node)} bs={size} skip={first} count={threads} iflag=direct"
            " status=none | python3 -c"
            f' "import sys; data = sys.stdin.buffer.read(); print(*[{numbers}])"'
        )
        return [int(each) for each in out.split()]

    # Heartbeats.

    def start_heartbeats(self, host: int, *, period_s: float) -> None:
        """Have a host take its slot, and send heartbeats."""
        folder, bed = f"/run/{self.device}", self.scenario.bed
        for file in (offload_runner.__file__, heartbeat_runner.__file__):
            path = Path(file)
            bed.sh(
                self.host.name,
                f"mkdir -p {folder}/tests/support; cat >{folder}/tests/support/{path.name}",
                stdin=path.read_text(),
            )
        disks = " ".join(self.disk(host, node) for node in ("n1", "n2"))
        self.host.sh(
            f"rm -f {self._beats(host)} {self._beats(host)}.stop; systemd-run --quiet --collect"
            f" --unit={self._beats_unit(host)} -p WorkingDirectory={folder}"
            f" python3 -m tests.support.heartbeat_runner {owner(host)} {SLOTS_BLOCK + host}"
            f" {period_s} {self._beats(host)} {disks}"
        )
        self.await_heartbeats(host)

    def heartbeats(self, host: int) -> heartbeat_runner.State:
        """Return the state of a host's heartbeats."""
        return heartbeat_runner.State(**json.loads(self.host.sh(f"cat {self._beats(host)}")))

    def await_heartbeats(self, host: int, node: str = "") -> None:
        """Wait for three more heartbeats of a host, by the path of a node if one is given."""

        def count() -> int:
            state = self.heartbeats(host)
            return state.by_path[("n1", "n2").index(node)] if node else state.acknowledged

        before = wait_for("a heartbeat", lambda: count() + 1, within_s=SERVED_S) - 1
        wait_for(
            f"heartbeats of host {host} {node}",
            lambda: count() >= before + 3,
            within_s=SERVED_S,
            every_s=1.0,
        )

    def stop_heartbeats(self, host: int) -> None:
        """End a host's heartbeats once the one under way is answered."""
        unit = self._beats_unit(host)
        self.host.sh(f"touch {self._beats(host)}.stop")
        wait_for(
            "the last heartbeat",
            lambda: (
                self.scenario.bed.sh(
                    self.host.name, f"systemctl is-active --quiet {unit}", ok=range(256)
                ).status
            ),
            within_s=ENDS_S,
        )

    def kill_heartbeats(self, host: int) -> None:
        """End a host's heartbeats wherever they are."""
        self.host.sh(f"systemctl stop {self._beats_unit(host)}; true", timeout_s=150)

    def slot(self, of: int) -> str:
        """Read a host's slot by the other's path to the node that serves."""
        return self.host.sh(
            f"dd if={self.disk(1 - of, self.active)} bs={offload_runner.BLOCK_BYTES}"
            f" skip={SLOTS_BLOCK + of} count=1 iflag=direct status=none | tr -d '\\0'"
        )

    def compare_and_write(self, host: int, of: int, old: bytes, new: bytes) -> int:
        """Send COMPARE AND WRITE to the slot of a host; return the tool's status."""
        file = f"/run/{self.device}.images"
        self.scenario.bed.sh(self.host.name, f"cat >{file}", stdin=(old + new).decode())
        for _ in range(3):
            status = self.scenario.bed.sh(
                self.host.name,
                f"sg_compare_and_write --in={file} --lba={SLOTS_BLOCK + of} --num=1"
                f" --xferlen={len(old + new)} --quiet {self.disk(host, self.active)}",
                ok=range(256),
            ).status
            if status != 6:
                break
            time.sleep(0.2)
        return status

    def offers(self) -> set[str]:
        """Return what the paths say that the disk is and offers: one text if all say the same."""
        return {
            self.host.sh(_OFFERS.format(self.disk(host, node)))
            for host in (0, 1)
            for node in ("n1", "n2")
        }

    def _beats(self, host: int) -> str:
        return f"/run/beats-{self.device}-{host}.json"

    def _beats_unit(self, host: int) -> str:
        return f"beats-{self.device}-{host}"


def owner(host: int) -> str:
    """Return the name that a host writes to its slot."""
    return f"esx{host}"


def other(node: str) -> str:
    """Return the other of the two nodes with a replica."""
    return "n2" if node == "n1" else "n1"
