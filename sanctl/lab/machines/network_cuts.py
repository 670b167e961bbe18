# SPDX-License-Identifier: GPL-2.0-or-later
"""Partitions and lossy directions between nodes, as BPF packet filters on their taps.

A filter sits on the receiver's tap and drops by the sender's MAC: any pair of nodes and either
direction can be cut by itself. This machine's own address is never cut, so ssh to the nodes, and
the nodes' way to the BMCs, stay open on a partitioned network, as on a management network.

The filters are classic BPF programs, because that is what every kernel's `tc` understands
without netem, act_gact or an nft program: a lab's host may be any machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from sanctl.errors import CommandError, Problem, UsageError
from sanctl.lab.machines.lab_state import Lab, locked
from sanctl.lab.machines.spec import LabSpec, Network, NodeSpec
from sanctl.system.files import write_atomically
from sanctl.system.runner import Runner

_TIMEOUT_S = 30.0
# Classic BPF (linux/bpf_common.h): load word, half word, byte; jump if equal, if >=; return.
_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE, _JUMP_EQUAL, _JUMP_ABOVE, _RETURN = (
    0x20,
    0x28,
    0x30,
    0x15,
    0x35,
    0x06,
)
# Where these are in a frame of IPv4 over Ethernet.
_SOURCE_MAC, _ETHERTYPE, _PROTOCOL = 6, 12, 14 + 9
_IPV4, _UDP = 0x0800, 17
_RANDOM = 0xFFFFF038  # SKF_AD_OFF + SKF_AD_RANDOM
_DROP, _NEXT_FILTER = 2, 0xFFFFFFFF  # TC_ACT_SHOT, TC_ACT_UNSPEC


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cut:
    """Packets that `source` sends to `target` on a network are dropped, all or a part.

    With `is_udp_only` those of Corosync alone: DRBD and iSCSI, which use TCP, go on.
    """

    network: Network
    source: str
    target: str
    loss_pct: float = 100.0
    is_udp_only: bool = False


def partition(
    network: Network, sides: Sequence[Iterable[str]], *, is_udp_only: bool = False
) -> frozenset[Cut]:
    """Return the cuts between the sides of a partition, in both directions."""
    return frozenset(
        Cut(network=network, source=source, target=target, is_udp_only=is_udp_only)
        for one, other in combinations([tuple(side) for side in sides], 2)
        for a in one
        for b in other
        for source, target in ((a, b), (b, a))
    )


def parse_sides(arguments: Sequence[str], spec: LabSpec, network: Network) -> list[list[str]]:
    """Read `n1 -- n2,n3`: the sides of a partition; a node that is not named reaches both.

    Raises:
        UsageError: a node is unknown, not on that network, named twice, or there is one side only.
    """
    sides = [[name for name in side.split(",") if name] for side in arguments if side != "--"]
    names = [name for side in sides for name in side]
    for name in names:
        if network not in spec.node(name).networks:
            raise UsageError(Problem("SAN-LAB-005", f"{name} is not on network {network}"))
    if len(sides) < 2 or not all(sides) or len(names) != len(set(names)):
        raise UsageError(
            Problem(
                "SAN-LAB-007",
                "a partition has two sides or more, and a node is on one of them",
                "sanctl lab partition sync n1 -- n2,n3",
            )
        )
    return sides


def bytecode(
    source: NodeSpec, network: Network, loss_pct: float, *, is_udp_only: bool = False
) -> str:
    """Return the program that drops a sender's packets, as `tc ... bpf bytecode` takes it."""
    mac = int(source.mac(network).replace(":", ""), 16)
    wanted = [(_LOAD_WORD, _SOURCE_MAC, mac >> 16), (_LOAD_HALF, _SOURCE_MAC + 4, mac & 0xFFFF)]
    if is_udp_only:
        wanted += [(_LOAD_HALF, _ETHERTYPE, _IPV4), (_LOAD_BYTE, _PROTOCOL, _UDP)]
    dice = [
        (_LOAD_WORD, 0, 0, _RANDOM),
        (_JUMP_ABOVE, 1, 0, round(loss_pct / 100 * 2**32)),
    ]
    after = 0 if loss_pct >= 100 else len(dice)
    program = []
    for number, (load_code, offset, value) in enumerate(wanted, start=1):
        # Jumps count the instructions to leave out: `drop` and `next` are the last two.
        to_next = 2 * (len(wanted) - number) + after + 1
        program += [(load_code, 0, 0, offset), (_JUMP_EQUAL, 0, to_next, value)]
    program += dice[:after]
    program += [(_RETURN, 0, 0, _DROP), (_RETURN, 0, 0, _NEXT_FILTER)]
    return f"{len(program)}," + ",".join(
        f"{code} {if_true} {if_false} {k}" for code, if_true, if_false, k in program
    )


def filter_commands(spec: LabSpec, cuts: Iterable[Cut], taps: Iterable[str]) -> str:
    """Return the `tc -batch` lines that leave exactly these cuts on the given taps."""
    wanted = sorted(cuts)
    lines = []
    for tap in sorted(taps):
        lines += [f"qdisc replace dev {tap} clsact", f"filter del dev {tap} egress"]
        here = [cut for cut in wanted if spec.node(cut.target).tap(cut.network) == tap]
        lines += [
            f"filter add dev {tap} egress protocol all pref {number} bpf da bytecode "
            f'"{_bytecode_of(spec, cut)}"'
            for number, cut in enumerate(here, start=1)
        ]
    return "\n".join(lines) + "\n"


def _bytecode_of(spec: LabSpec, cut: Cut) -> str:
    source = spec.node(cut.source)
    return bytecode(source, cut.network, cut.loss_pct, is_udp_only=cut.is_udp_only)


def load(lab: Lab) -> frozenset[Cut]:
    """Return the cuts in force."""
    try:
        data = json.loads(_file(lab).read_text())
    except FileNotFoundError:
        return frozenset()
    return frozenset(
        Cut(
            network=Network(each["network"]),
            source=each["source"],
            target=each["target"],
            loss_pct=each["loss_pct"],
            is_udp_only=each.get("is_udp_only", False),
        )
        for each in data
    )


def change(
    lab: Lab, runner: Runner, *, add: Iterable[Cut] = (), remove: Iterable[Cut] = ()
) -> frozenset[Cut]:
    """Add cuts and take others away; return those in force.

    A cut that is added replaces one of the same direction.

    Raises:
        CommandError: this machine's kernel has no packet filters for its taps.
    """
    with locked(lab.run_directory / "cuts.lock"):
        before = load(lab)
        added, removed = tuple(add), {_direction(cut) for cut in remove}
        replaced = removed | {_direction(cut) for cut in added}
        after = frozenset({*(c for c in before if _direction(c) not in replaced), *added})
        touched = {_tap(lab, cut) for cut in (before ^ after)}
        if touched:
            # Written first: `heal` must know every cut that may be in force.
            _write(lab, before | after)
            # Exit status 1 also when there was no filter to delete.
            runner.run(
                lab.enter("tc", "-force", "-batch", "-"),
                stdin=filter_commands(lab.spec, after, touched),
                timeout_s=_TIMEOUT_S,
                ok=(0, 1),
            )
            _prove(lab, runner, after, touched)
            _write(lab, after)
        return after


def _prove(lab: Lab, runner: Runner, cuts: frozenset[Cut], taps: Iterable[str]) -> None:
    """Count the filters in the kernel: `tc -force` goes on after an error."""
    for tap in taps:
        shown = runner.run(
            lab.enter("tc", "filter", "show", "dev", tap, "egress"), timeout_s=_TIMEOUT_S
        ).stdout
        wanted = sum(_tap(lab, cut) == tap for cut in cuts)
        found = shown.count("direct-action")
        if found != wanted:
            raise CommandError(
                Problem(
                    "SAN-LAB-008",
                    f"{tap} has {found} packet filters instead of {wanted}",
                    "the kernel of this machine needs sch_ingress and cls_bpf",
                )
            )


def _direction(cut: Cut) -> tuple[Network, str, str]:
    return cut.network, cut.source, cut.target


def _tap(lab: Lab, cut: Cut) -> str:
    return lab.spec.node(cut.target).tap(cut.network)


def _file(lab: Lab) -> Path:
    return lab.run_directory / "cuts.json"


def _write(lab: Lab, cuts: frozenset[Cut]) -> None:
    data = [
        {
            "network": cut.network.value,
            "source": cut.source,
            "target": cut.target,
            "loss_pct": cut.loss_pct,
            "is_udp_only": cut.is_udp_only,
        }
        for cut in sorted(cuts)
    ]
    write_atomically(str(_file(lab)), json.dumps(data, indent=2) + "\n")
