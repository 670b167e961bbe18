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
# Classic BPF (linux/bpf_common.h): load word, load half word, jump if equal, jump if >=, return.
_LOAD_WORD, _LOAD_HALF, _JUMP_EQUAL, _JUMP_ABOVE, _RETURN = 0x20, 0x28, 0x15, 0x35, 0x06
_SOURCE_MAC = 6
_RANDOM = 0xFFFFF038  # SKF_AD_OFF + SKF_AD_RANDOM
_DROP, _NEXT_FILTER = 2, 0xFFFFFFFF  # TC_ACT_SHOT, TC_ACT_UNSPEC


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cut:
    """Packets that `source` sends to `target` on a network are dropped, all or a part."""

    network: Network
    source: str
    target: str
    loss_pct: float = 100.0


def partition(network: Network, sides: Sequence[Iterable[str]]) -> frozenset[Cut]:
    """Return the cuts between the sides of a partition, in both directions."""
    return frozenset(
        Cut(network=network, source=source, target=target)
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


def bytecode(source: NodeSpec, network: Network, loss_pct: float) -> str:
    """Return the program that drops a sender's packets, as `tc ... bpf bytecode` takes it."""
    mac = int(source.mac(network).replace(":", ""), 16)
    is_total = loss_pct >= 100
    # Jumps count the instructions to leave out: `drop` and `next` are the last two.
    program = [
        (_LOAD_WORD, 0, 0, _SOURCE_MAC),
        (_JUMP_EQUAL, 0, 3 if is_total else 5, mac >> 16),
        (_LOAD_HALF, 0, 0, _SOURCE_MAC + 4),
        (_JUMP_EQUAL, 0, 1 if is_total else 3, mac & 0xFFFF),
    ]
    if not is_total:
        program += [
            (_LOAD_WORD, 0, 0, _RANDOM),
            (_JUMP_ABOVE, 1, 0, round(loss_pct / 100 * 2**32)),
        ]
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
            f'"{bytecode(spec.node(cut.source), cut.network, cut.loss_pct)}"'
            for number, cut in enumerate(here, start=1)
        ]
    return "\n".join(lines) + "\n"


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
        }
        for cut in sorted(cuts)
    ]
    write_atomically(str(_file(lab)), json.dumps(data, indent=2) + "\n")
