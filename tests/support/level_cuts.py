# SPDX-License-Identifier: GPL-2.0-or-later
"""A power cut in the middle of a change of the number of replicas: the moments, and the end.

The command runs on a node that keeps its power, or on the one that loses it; each node's CIB, its
resource file and DRBD say how far the change has come.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from sanctl.drivers import drbdadm
from sanctl.errors import CommandError, NotConverged
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.measure.status_findings import has_recovered
from tests.support.drbd9_devices import DEADLINE_S, ReplicatedDevice, storage_of
from tests.support.replica_change_steps import files

#: Has a replica before and after each change, and is the one that serves in none of them.
KEEPS_POWER = "n2"
UNIT = "levels-change"
_SLOW = ("--rate-min", "1M", "--rate-max", "1M")
_FAST = ("--rate-min", "32M", "--rate-max", "network")
_POLL_S = 0.1
# Of `sanctl status`, or of a command that has ended early.
_NAMED = re.compile(
    r"'((?:sanctl device (?:replicas|complete)|crm_resource --cleanup --resource)\b[^']*)'"
)


class Moment(StrEnum):
    """How far a change has come when the power is cut."""

    LISTED = "in the CIB, not in the node's resource file"
    FILLING = "a resync has begun"
    ENDING = "DRBD has ended its part, the command has not"


class Change(NamedTuple):
    """One more replica, or one less: always the last node's."""

    before: int
    after: int

    def __str__(self) -> str:
        return f"{self.before} to {self.after}"

    @property
    def adds(self) -> bool:
        """Whether a replica is added."""
        return self.after > self.before

    @property
    def node(self) -> str:
        """The node whose replica is added or dropped."""
        return f"n{max(self.before, self.after)}"

    @property
    def moments(self) -> tuple[Moment, ...]:
        """The moments there are: nothing is resynced for a replica that goes."""
        return tuple(each for each in Moment if self.adds or each is not Moment.FILLING)

    def words(self, device: str) -> tuple[str, ...]:
        """The command, without `sanctl`."""
        option = "--add" if self.adds else "--drop"
        return ("device", "replicas", device, str(self.after), option, self.node)

    def lacks(self, bed: LabSession) -> str:
        """What the laboratory lacks for it; empty: nothing."""
        have, needed = len(storage_of(bed.lab.spec)), max(self.before, self.after)
        if have >= needed:
            return ""
        return f"{needed} replicas need {needed} storage nodes; laboratory {bed.lab.name}: {have}"


def members(count: int) -> tuple[str, ...]:
    """The nodes of so many replicas."""
    return tuple(f"n{number}" for number in range(1, count + 1))


def listed(device: ReplicatedDevice) -> tuple[tuple[str, ...], int]:
    """The nodes that the CIB lists for a device, and how many replicas it is to have."""
    xml = device.bed.sh(
        KEEPS_POWER, f"cibadmin -Q --xpath \"//primitive[@id='{device.name}']\"", timeout_s=20
    ).stdout
    pairs = dict(re.findall(r'<nvpair [^>]*\bname="(nodes|replicas)" value="([^"]*)"', xml))
    return tuple(pairs["nodes"].split()), int(pairs["replicas"])


def limit_rate(device: ReplicatedDevice, *, slow: bool) -> None:
    """Have a resync take a minute or two, or no longer than it needs."""
    words = " ".join(("sanctl device sync", device.name, *(_SLOW if slow else _FAST)))
    wait_for(
        "the resync rate to be set",
        lambda: not device.bed.sh(KEEPS_POWER, words, ok=range(256), timeout_s=150).status,
        within_s=DEADLINE_S,
        every_s=3.0,
    )


def names(device: ReplicatedDevice, node: str, other: str) -> bool:
    """Whether the resource file on a node names another one; without a file: no."""
    path = f"{drbdadm.RESOURCE_FILES}/{device.name}.res"
    return device.bed.sh(node, f"grep -q ' on {other} ' {path}", ok=range(3)).status == 0


@contextlib.contextmanager
def held_at(device: ReplicatedDevice, victim: str, moment: Moment) -> Iterator[None]:
    """Have Pacemaker begin no action on a node, where its resource file is to stay as it is."""
    bed = device.bed
    if moment is Moment.LISTED:
        bed.sh(victim, "pkill -STOP -x pacemaker-execd")
    try:
        yield
    except BaseException:  # The moment did not come; else the node has lost its power.
        with contextlib.suppress(CommandError):
            bed.sh(victim, "pkill -CONT -x pacemaker-execd", ok=range(256), timeout_s=20)
        raise


def await_moment(device: ReplicatedDevice, change: Change, moment: Moment) -> None:
    """Wait until the change has come as far as that."""
    bed = device.bed
    wait_for(
        f"the CIB to list {change.after} replicas",
        lambda: listed(device) == (members(change.after), change.after),
        within_s=120,
        every_s=_POLL_S,
    )

    def events() -> str:
        shown = f"drbdsetup events2 --now --statistics {device.name}"
        return bed.sh(change.node, shown, ok=range(255), timeout_s=20).stdout

    def is_reached() -> bool:
        if not change.adds:
            return f"name:{device.name}" not in events()
        if moment is Moment.FILLING:
            return bool(re.search(r"replication:SyncTarget .*out-of-sync:[1-9]", events()))
        return bool(re.search(r" device .*\bdisk:UpToDate", events()))

    if moment is not Moment.LISTED:
        wait_for(f"{moment}", is_reached, within_s=DEADLINE_S, every_s=_POLL_S)


def is_under_way(bed: LabSession, node: str) -> bool:
    """Whether the command runs."""
    state = bed.sh(node, f"systemctl is-active {UNIT}", ok=range(256)).stdout.strip()
    return state in {"active", "activating", "deactivating"}


def said(bed: LabSession, node: str, since_s: float) -> str:
    """What the command has said on a node; a node that was off has not kept it."""
    return bed.sh(
        node, f"journalctl -q --no-pager -o cat -u {UNIT} --since=@{since_s:.0f}", ok=(0, 1)
    ).stdout


def is_settled(device: ReplicatedDevice, change: Change) -> bool:
    """Whether the level is one of the two, each replica is whole, and nothing else is left."""
    nodes, count = listed(device)
    assert nodes in {members(change.before), members(change.after)}, nodes
    assert count in {change.before, change.after}, count
    device.nodes = nodes
    others = [node for node in storage_of(device.bed.lab.spec) if node not in nodes]
    return len(nodes) == count and device.is_whole() and not any(_left(device, n) for n in others)


def _left(device: ReplicatedDevice, node: str) -> bool:
    """Whether a node without a replica has anything of the device."""
    # Status 255 is ssh's: the node boots, and what it has is not known.
    shown = device.bed.sh(node, f"drbdsetup status {device.name}", ok=range(255)).status == 0
    nodes = device.bed.sh(KEEPS_POWER, "cibadmin -Q -o nodes", timeout_s=20).stdout
    note = f'name="sanctl-delete-{device.name}"'
    return shown or f"{device.name}." in files(device.bed, node) or note in nodes


def is_healthy(bed: LabSession) -> bool:
    """Whether `sanctl status` has nothing that a fault does not leave for a day."""
    answer = bed.sh(KEEPS_POWER, "sanctl status", timeout_s=60, ok=(0, 1))
    return has_recovered(answer.status, answer.stdout)


def await_by_itself_or_as_told(
    bed: LabSession, what: str, look: Callable[[], bool], change: Change, messages: str
) -> None:
    """Wait for something; where it does not come, type what the messages name, and nothing else."""
    try:
        wait_for(what, look, within_s=DEADLINE_S, every_s=2.0)
    except NotConverged as error:
        told = _named_commands(bed, change, messages)
        print(f"  not by itself: {error}; told: {told}")
        assert told, f"{what}: not by itself, and no command is named: {error}"
        for command in told:
            bed.sh(KEEPS_POWER, command, timeout_s=400)
        wait_for(f"{what}, after {told}", partial(look), within_s=DEADLINE_S, every_s=2.0)


def _named_commands(bed: LabSession, change: Change, messages: str) -> list[str]:
    """The commands that the messages name to go on; not those that take the change back."""
    shown = bed.sh(KEEPS_POWER, "sanctl status --output json", timeout_s=60, ok=(0, 1)).stdout
    findings = json.loads(shown)["data"]["findings"]
    texts = [messages, *(f"{each['what']} {each['do']}" for each in findings)]
    print("".join(f"    {text}\n" for text in texts))
    # A promotion before a standby has told that it lacks its majority fails, which stays told.
    goes_on = re.compile(rf"crm_resource|sanctl device (complete$|replicas \S+ {change.after}\b)")
    found = dict.fromkeys(each for text in texts for each in _NAMED.findall(text))
    return [each for each in found if goes_on.match(each)]
