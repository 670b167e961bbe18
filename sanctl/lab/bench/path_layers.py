# SPDX-License-Identifier: GPL-2.0-or-later
"""The four layers that `sanctl bench path` measures: made, checked, compared and removed again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from sanctl.lab.bench import path_config
from sanctl.lab.bench.path_config import Export
from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scenario, require
from sanctl.lab.machines.spec import Network
from sanctl.lab.measure import fio_result, path_figures
from sanctl.lab.measure.path_figures import BY_HAND, LIO, OURS, RAW, Cell, Figures

_DEADLINE_S = 300.0
_EXPORTS = (path_config.LIO_EXPORT, path_config.BY_HAND_EXPORT)


class Place(NamedTuple):
    """Where fio runs for a layer: a machine, and the block device on it."""

    machine: str
    path: str


class Layers:
    """The four layers, on the first two storage nodes of a laboratory."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self.bed = scenario.bed
        self._host = scenario.host
        self._nodes = self.bed.storage[:2]
        require(len(self._nodes) == 2, "the lab has one storage node; two replicas need two")
        self.home = self._nodes[0].name
        self._portal = self._nodes[0].address(Network.ISCSI)
        self._places: dict[str, Place] = {}

    def set_up(self, up: ExitStack, print_line: Callable[[str], None]) -> None:
        """Make all layers, and write every block once; what `up` closes removes them again."""
        up.callback(self.tear_down)
        # What a run has left that was killed.
        self._remove_by_hand()
        target = self._scenario.create(
            path_config.NAME,
            f"{path_config.SIZE_MIB}M",
            prefer=self.home,
            nodes=[node.name for node in self._nodes],
        )
        print_line("sanctl's device is created")
        for node in self._nodes:
            self._make_files(node.name, (0, 1) if node.name == self.home else (1,))
        self._connect_drbd()
        for export in _EXPORTS:
            self._sh(path_config.export_script(export, self._portal, self._host.iqn))
        print_line("the layers by hand are made")
        self._places = {
            RAW: Place(self.home, path_config.RAW_LOOP),
            LIO: Place(self._host.name, self._login(path_config.LIO_EXPORT)),
            BY_HAND: Place(self._host.name, self._login(path_config.BY_HAND_EXPORT)),
            OURS: Place(
                self._host.name,
                self._host.login(
                    target, self._scenario.portals([node.name for node in self._nodes])
                ),
            ),
        }
        for layer in (LIO, BY_HAND, OURS):
            self._fill(self._places[layer])
        wait_for("all replicas in sync", self._is_replicated, within_s=_DEADLINE_S)
        print_line("every block is written")

    def _sh(self, script: str, node: str = "") -> None:
        self.bed.sh(node or self.home, f"set -e\n{script}", timeout_s=_DEADLINE_S)

    def _make_files(self, node: str, numbers: tuple[int, ...]) -> None:
        self._sh(path_config.attach_script(numbers), node)
        self.bed.sh(
            node,
            f"cat >{path_config.RESOURCE_FILE}",
            stdin=path_config.resource_file(self._nodes),
        )
        name = path_config.RESOURCE
        self._sh(f"drbdadm create-md --force {name} >/dev/null 2>&1\ndrbdadm up {name}", node)

    def _connect_drbd(self) -> None:
        """Have the replicas begin in sync, without a resync, and promote one."""
        name = path_config.RESOURCE
        wait_for(
            f"the replicas of {name} to be connected",
            lambda: self.bed.sh(self.home, f"drbdadm cstate {name}").stdout.startswith("Connected"),
            within_s=60,
        )
        self._sh(
            f"drbdsetup new-current-uuid --clear-bitmap {path_config.MINOR}\ndrbdadm primary {name}"
        )

    def _login(self, export: Export) -> str:
        """Log the host in to a target made by hand; return its disk."""
        self._host.sh(
            f"iscsiadm -m discovery -t sendtargets -p {self._portal} >/dev/null"
            f" && iscsiadm -m node -T {export.iqn} -p {self._portal} --login >/dev/null",
            timeout_s=120,
        )
        link = f"/dev/disk/by-path/ip-{self._portal}:3260-iscsi-{export.iqn}-lun-0"
        wait_for(
            f"{link} on {self._host.name}",
            lambda: not self.bed.sh(self._host.name, f"test -b {link}", ok=(0, 1)).status,
            within_s=60,
        )
        # fio would take the link's name for several, as a colon is between two files.
        return self._host.sh(f"readlink -e {link}").strip()

    def _fill(self, place: Place) -> None:
        self.bed.sh(
            place.machine,
            f"dd if=/dev/urandom of={place.path} bs=1M count={path_config.REGION_MIB}"
            " oflag=direct conv=fsync 2>/dev/null",
            timeout_s=_DEADLINE_S,
        )

    def _is_replicated(self) -> bool:
        return all(
            collect.is_in_sync(self.bed, self.home, name)
            for name in (path_config.NAME, path_config.RESOURCE)
        )

    def check(self) -> None:
        """Check that what was measured is what was meant.

        Raises:
            CommandError: a replica is not in sync, or the device is served by another node.
        """
        require(self._is_replicated(), "a replica is no longer in sync: less was done than meant")
        serving = collect.active_node(self.bed, path_config.NAME)
        require(serving == self.home, f"{serving} serves {path_config.NAME}, no longer {self.home}")

    def measure(self, layer: str, cell: Cell, seconds: int) -> Figures:
        """Run fio on a layer."""
        place = self._places[layer]
        mix = f" --rwmixread={path_figures.MIXED_READ_PERCENT}" if cell.kind == "mixed" else ""
        text = self.bed.sh(
            place.machine,
            f"fio --name=path --filename={place.path} --allow_file_create=0 --direct=1"
            f" --ioengine=libaio --rw={path_figures.KINDS[cell.kind]}{mix} --bs={cell.block_bytes}"
            f" --iodepth={cell.depth} --size={path_config.REGION_MIB}M --time_based"
            f" --runtime={seconds} --randrepeat=1 {fio_result.OUTPUT_OPTIONS}",
            timeout_s=seconds + 120,
        ).stdout
        return path_figures.parse(text)

    def differences(self) -> list[str]:
        """Return the settings in which sanctl and the hand-made stack differ, as they run."""
        shown = [
            path_figures.drbd_options(
                self.bed.sh(self.home, f"drbdsetup show --show-defaults {name}").stdout
            )
            for name in (path_config.NAME, path_config.RESOURCE)
        ]
        found = path_figures.differences("DRBD:", shown[0], shown[1])
        ours = f"/sys/kernel/config/target/core/iblock_*/sanctl-{path_config.NAME}"
        found += path_figures.differences(
            "LIO:",
            self._settings(self.home, f"{ours}/attrib"),
            self._settings(self.home, f"{path_config.BY_HAND_EXPORT.backstore}/attrib"),
        )
        queues = [
            self._settings(
                self._host.name,
                f"/sys/block/$(basename $(readlink -f {self._places[layer].path}))/queue",
            )
            for layer in (OURS, BY_HAND)
        ]
        return found + path_figures.differences("host's disk:", queues[0], queues[1])

    def files(self) -> dict[str, str]:
        """Return by file name what the layers by hand are made of."""
        return {
            "drbd.res": path_config.resource_file(self._nodes),
            **{
                f"{export.name}.sh": path_config.export_script(export, self._portal, self._host.iqn)
                for export in _EXPORTS
            },
        }

    def _settings(self, machine: str, folder: str) -> dict[str, str]:
        return path_figures.settings(
            self.bed.sh(machine, f"cd {folder} && grep -s . *", ok=range(3)).stdout
        )

    def tear_down(self) -> None:
        """Remove all of it again, or what there is of it; a step that fails keeps none from going.

        Raises:
            SanctlError: something was not removed.
        """
        with ExitStack() as steps:
            steps.callback(self._remove_by_hand)
            steps.callback(self._delete_device)

    def _delete_device(self) -> None:
        # A creation that was interrupted here goes on there: what it makes comes late.
        wait_for("the creation to end", self._is_nothing_created, within_s=_DEADLINE_S)
        if self._scenario.exists(path_config.NAME):
            self._scenario.delete(path_config.NAME)

    def _is_nothing_created(self) -> bool:
        # Brackets: the pattern is not to find the shell that it is run by.
        script = f"pgrep -f '[d]evice create {path_config.NAME}'"
        return self.bed.sh(self.home, script, ok=(0, 1)).status == 1

    def _remove_by_hand(self) -> None:
        """Remove sessions, then targets, then what they stood on."""
        with ExitStack() as steps:  # the last one first
            for node in self._nodes:
                steps.callback(self._remove_files, node.name)
            for export in _EXPORTS:
                steps.callback(self._unexport, export)
            for export in _EXPORTS:
                steps.callback(self._host.logout, export.iqn)

    def _unexport(self, export: Export) -> None:
        script = path_config.unexport_script(export)
        self.bed.sh(self.home, script, timeout_s=120, ok=range(256))

    def _remove_files(self, node: str) -> None:
        self.bed.sh(node, path_config.detach_script(), timeout_s=120, ok=range(256))

        def is_gone() -> bool:
            return not self.bed.sh(node, path_config.remains_script()).stdout.strip()

        wait_for(f"what was made by hand on {node} to be gone", is_gone, within_s=30)
