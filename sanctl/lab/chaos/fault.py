# SPDX-License-Identifier: GPL-2.0-or-later
"""Every kind of fault as a value (new kinds go here): power, partition, disk, clock, daemon.

Where a fault names a node it may also say `active` or `standby`: the node that serves the bench's
first device when the fault's turn comes, and the one that does not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

ACTIVE, STANDBY, WITNESS = "active", "standby", "witness"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCut:
    """Some nodes lose power at the same moment; it comes back after `hold_s` if not by fencing."""

    nodes: tuple[str, ...]
    hold_s: float = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCutSeries:
    """Power cuts one after the other, begun right after the cluster was seen healthy.

    Attributes:
        cuts: the nodes in the order of the cuts. A node that is to be cut again gets its power back
            at once, so that the next cut hits it while it is switched off, boots or joins.
        gaps_s: the time before each cut but the first.
        power_on: the order in which the nodes get their power back, those not fenced until then.
        power_on_gap_s: the time between one node's power and the next one's; 0: all at once.
        after_crash_of: a node that is cut, comes back and is resynced before the series begins;
            empty: the series begins at once.
        hold_s: the time between the last cut and the return of power.
    """

    cuts: tuple[str, ...]
    gaps_s: tuple[float, ...]
    power_on: tuple[str, ...]
    power_on_gap_s: float = 0.0
    after_crash_of: str = ""
    hold_s: float = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """On some networks nothing passes between the nodes of `side` and all other machines.

    With `is_corosync_only` Corosync's packets alone are lost: the cluster loses nodes that DRBD and
    the hosts still reach.
    """

    networks: tuple[str, ...]
    side: tuple[str, ...]
    hold_s: float = 12.0
    is_corosync_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OneWayLoss:
    """What one node sends to another is lost, or part of it; the other direction is whole."""

    network: str
    source: str
    target: str
    loss_pct: float = 100.0
    hold_s: float = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLink:
    """All packets that a node sends on a network are delayed."""

    network: str
    node: str
    delay_ms: float
    hold_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonKilled:
    """A daemon is killed with SIGKILL."""

    node: str
    daemon: str
    hold_s: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BadDisk:
    """The disk under a node's pool misbehaves, as one of `sanctl lab disk` names it."""

    node: str
    does: str
    hold_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesystemFull:
    """A filesystem of a node has no free block: the pool, or root."""

    node: str
    place: str
    hold_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsFull:
    """The pools of several nodes have no free block while hosts write to new places.

    Attributes:
        nodes: the nodes.
        hosts: the initiators that write.
        at_mib: the place on each device that the hosts write to, away from the ledgers' blocks.
        hold_s: how long nothing is freed.
    """

    nodes: tuple[str, ...]
    hosts: tuple[str, ...]
    at_mib: int = 64
    hold_s: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockJump:
    """A node's clock is set wrong."""

    node: str
    seconds: int
    hold_s: float = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentKilled:
    """The agent is killed after a step of the actions that move the first device."""

    step: str
    hold_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CutDuringMove:
    """The first device is moved, and the sync link goes `after_s` after that was asked for.

    0: the link is cut before the move is asked for.
    """

    after_s: float
    hold_s: float = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reboot:
    """`systemctl reboot` is run on a node."""

    node: str
    hold_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DuringResync:
    """A node loses power and comes back; a second fault hits while its replica is resynced."""

    node: str
    then: PowerCut | Partition
    hold_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteLinkCut:
    """Nothing passes between some storage nodes and the server of the second site."""

    nodes: tuple[str, ...]
    server: str
    hold_s: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFull:
    """The filesystem of the second site has no free block."""

    server: str
    hold_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyKilled:
    """A copy to the second site is begun, and one end of it is killed with SIGKILL.

    Attributes:
        end: `sender`, the process group on the node that makes the copy, or `receiver`, at the
            site.
        after_s: the time from the begin of the copy.
        hold_s: as of all faults.
    """

    end: str
    after_s: float
    hold_s: float = 5.0


Fault = (
    PowerCut
    | PowerCutSeries
    | Partition
    | OneWayLoss
    | SlowLink
    | DaemonKilled
    | BadDisk
    | FilesystemFull
    | PoolsFull
    | ClockJump
    | AgentKilled
    | CutDuringMove
    | Reboot
    | DuringResync
    | SiteLinkCut
    | SiteFull
    | CopyKilled
)


def describe(fault: Fault) -> str:
    """Return the text by which reports name a fault."""
    match fault:
        case PowerCut(nodes=nodes):
            return f"power cut of {_and(nodes)}"
        case PowerCutSeries():
            return _describe_series(fault)
        case Partition(networks=networks, side=side, is_corosync_only=is_corosync_only):
            what = "Corosync of " if is_corosync_only else ""
            return f"{_and(networks)}: {what}{_and(side)} cut off from all others"
        case OneWayLoss(network=network, source=source, target=target, loss_pct=loss):
            how = "nothing" if loss >= 100 else f"{100 - loss:g} %"
            return f"{network}: {how} of what {source} sends reaches {target}"
        case SlowLink(network=network, node=node, delay_ms=delay):
            return f"{network}: what {node} sends is {delay:g} ms late"
        case DaemonKilled(node=node, daemon=daemon):
            return f"kill -9 of {daemon} on {node}"
        case BadDisk(node=node, does=does):
            return f"disk of {node}: {does}"
        case FilesystemFull(node=node, place=place):
            return f"{place} full on {node}"
        case PoolsFull(nodes=nodes, at_mib=at_mib):
            return f"pools full on {_and(nodes)} while hosts write at {at_mib} MiB"
        case ClockJump(node=node, seconds=seconds):
            return f"clock of {node} off by {seconds:+d} s"
        case AgentKilled(step=step):
            return f"agent killed after step {step} of a move"
        case CutDuringMove(after_s=0):
            return "move while the sync link is cut"
        case CutDuringMove(after_s=after_s):
            return f"sync link cut {after_s:g} s after a move was asked for"
        case Reboot(node=node):
            return f"reboot typed on {node}"
        case DuringResync(node=node, then=then):
            return f"while {node} is resynced after a power cut: {describe(then)}"
        case SiteLinkCut(nodes=nodes, server=server):
            return f"iscsi: {_and(nodes)} cut off from {server}, the second site"
        case SiteFull(server=server):
            return f"second site on {server} full"
        case CopyKilled(end=end, after_s=after_s):
            return f"kill -9 of the {end} of a copy, {after_s:g} s after its begin"


def resolve(fault: Fault, names: Mapping[str, str]) -> Fault:
    """Return a fault with `active`, `standby` and `witness` replaced by nodes."""
    changed: dict[str, Any] = {}
    for field in fields(fault):
        value = getattr(fault, field.name)
        if isinstance(value, str):
            changed[field.name] = names.get(value, value)
        elif isinstance(value, tuple):
            changed[field.name] = tuple(names.get(each, each) for each in value)
        elif isinstance(value, PowerCut | Partition):
            changed[field.name] = resolve(value, names)
    return replace(fault, **changed)


def nodes_of(fault: Fault) -> tuple[str, ...]:
    """Return the nodes that a fault hits."""
    match fault:
        case PowerCut(nodes=nodes) | PoolsFull(nodes=nodes):
            return nodes
        case SiteLinkCut(nodes=nodes, server=server):
            return (*nodes, server)
        case SiteFull(server=server):
            return (server,)
        case PowerCutSeries(cuts=cuts, after_crash_of=""):
            return cuts
        case PowerCutSeries(cuts=cuts, after_crash_of=node):
            return (node, *cuts)
        case Partition(side=side):
            return side
        case OneWayLoss(source=source, target=target):
            return (source, target)
        case AgentKilled() | CutDuringMove() | CopyKilled():
            return ()
        case DuringResync(node=node, then=then):
            return (node, *nodes_of(then))
        case _:
            return (fault.node,)


def is_one_sided(fault: Fault, restarted: Collection[str]) -> bool:
    """Whether at most one side of a partition lost nodes: the winner of a fencing race stays up."""
    if not isinstance(fault, Partition):
        return True
    inside = set(restarted) & set(fault.side)
    return not inside or inside == set(restarted)


def as_json(fault: Fault) -> dict[str, Any]:
    """Return a fault as plain values, with its kind."""
    return {"kind": type(fault).__name__, **asdict(fault)}


def _describe_series(fault: PowerCutSeries) -> str:
    first, *later = fault.cuts
    text = f"power cuts of {first}"
    for node, gap_s in zip(later, fault.gaps_s, strict=True):
        text += f", {gap_s:g} s later {node}"
    text += f"; power back after {fault.hold_s:g} s"
    if fault.power_on_gap_s:
        text += f", {fault.power_on_gap_s:g} s apart: {', '.join(fault.power_on)}"
    if fault.after_crash_of:
        return f"right after the recovery from a crash of {fault.after_crash_of}: {text}"
    return text


def _and(names: tuple[str, ...]) -> str:
    return " and ".join(names)
