# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `python -m sanctl.safety`: explores, prints a counterexample or the rules.

Ends with 0 where no counterexample is found, 1 where one is, with the shortest way there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from sanctl.safety.broken_reservations import BROKEN_RESERVATIONS
from sanctl.safety.broken_rules import BROKEN_RULES
from sanctl.safety.exploration import LATE_TARGET, MARKED_DISKLESS, explore_cluster
from sanctl.safety.lone_marks import LoneMarks, explore_lone_marks
from sanctl.safety.reservation_world import reservations_text
from sanctl.safety.reservations import ReservationRules, explore_repair, explore_reservations
from sanctl.safety.rules import SHIPPED, Rules
from sanctl.safety.search import Counterexample, Exploration, S
from sanctl.safety.sharing import BROKEN_SHARING, SharingRules, explore_sharing, sharing_text
from sanctl.safety.world import NAMES, World, world_text

_DESCRIPTION = """\
Explores the rules against split brain and lost writes: one device with two replicas, on nodes a and
b; with three nodes a witness votes, with --quorum-device a device that has no CIB. Every
interleaving of faults (power loss, cuts of the sync and heartbeat networks, a killed handler),
repairs, writes and the steps of DRBD, Corosync, Pacemaker, the fence-peer and before-resync-source
handlers and the device agent is visited. In every state at most one node serves, with every
acknowledged write, and the replicas have not diverged; and from every state repair alone leads back
to a healthy cluster.

With --devices 2 a second model is explored: two devices of one node whose handlers share a change
of the CIB. With --reservations a third: persistent reservations over failovers.
"""
_EPILOG = """\
Ends with 0 where no state breaks an invariant, with 1 and the shortest way to such a state where
one does. Every change of sanctl is explored with one fault; two faults take minutes. What is
modelled, what is not, and which commit was explored how far: docs/explanation/safety-model.md.
"""


def trace_text(found: Counterexample[World]) -> str:
    """Return a counterexample as text: each event, and the world after it."""
    return _trace_text(found, world_text)


def _trace_text(found: Counterexample[S], text_of: Callable[[S], str]) -> str:
    width = max(len(step) for step in ("", *found.steps))
    lines = [f"{'':3} {'at first':{width}}  {text_of(found.states[0])}"]
    lines += [
        f"{number:3} {step:{width}}  {text_of(state)}"
        for number, (step, state) in enumerate(zip(found.steps, found.states[1:], strict=True), 1)
    ]
    return "\n".join([*lines, f"=> {found.what}"])


def broken_rules_table() -> str:
    """Return the table of docs/explanation/safety-model.md: each rule, and the harm without it."""
    lines = [
        "| rule | without it, shortest way there |",
        "| --- | --- |",
    ]
    lines += [
        f"| {variant.rule} | `{variant.name}`: "
        f"{variant.finds}; {variant.steps} events, {variant.faults} faults, "
        f"{variant.nodes} nodes{' and a quorum device' if variant.has_device else ''}"
        f"{'' if variant.lost_disk is None else f', the disk of {NAMES[variant.lost_disk]} lost'}"
        f"{', a resync that began without a mark' if variant.is_unmarked else ''} |"
        for variant in BROKEN_RULES
    ]
    return "\n".join(lines)


def broken_sharing_table() -> str:
    """Return the table of the same page for two devices that share a change of the CIB."""
    lines = [
        "| rule | without it, shortest way there |",
        "| --- | --- |",
    ]
    lines += [
        f"| {variant.rule} | `{variant.name}`: {variant.finds}; {variant.steps} events |"
        for variant in BROKEN_SHARING
    ]
    return "\n".join(lines)


def broken_reservations_table() -> str:
    """Return the table of the same page for persistent reservations."""
    lines = [
        "| rule | without it, shortest way there |",
        "| --- | --- |",
    ]
    lines += [
        f"| {variant.rule} | `{variant.name}`: {variant.finds}; {variant.steps} events |"
        for variant in BROKEN_RESERVATIONS
    ]
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    """Explore, or print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m sanctl.safety",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--nodes",
        type=int,
        choices=(2, 3),
        default=3,
        help="2: the heartbeat strategy; 3: node-majority with a witness (default: %(default)s)",
    )
    parser.add_argument(
        "--quorum-device",
        action="store_true",
        help="with --nodes 2: node-majority with a quorum device that has a vote and no CIB",
    )
    parser.add_argument(
        "--faults",
        type=int,
        default=1,
        help="how many faults may happen in one history (default: %(default)s)",
    )
    parser.add_argument(
        "--rules",
        choices=(
            "shipped",
            *(variant.name for variant in BROKEN_RULES),
            *(variant.name for variant in BROKEN_SHARING),
            *(variant.name for variant in BROKEN_RESERVATIONS),
        ),
        default="shipped",
        metavar="NAME",
        help="the rules as shipped, or with one of them broken, by its name in --table "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--devices",
        type=int,
        choices=(1, 2),
        default=1,
        help="2: two devices of one node whose handlers share a change of the CIB; --nodes and "
        "--faults do not apply (default: %(default)s)",
    )
    parser.add_argument(
        "--reservations",
        action="store_true",
        help="persistent reservations of two replicas; --nodes and --faults do not apply",
    )
    parser.add_argument(
        "--lone-marks",
        action="store_true",
        help="look closer at marks whose writers could not keep their quorum",
    )
    parser.add_argument(
        "--lost-disk",
        choices=("active", "standby"),
        help="DRBD has dropped the disk of that replica at an error, and the replica is marked",
    )
    parser.add_argument(
        "--unmarked-resync",
        choices=tuple(LATE_TARGET),
        help="a resync began without a mark, its source in that role, and its end comes before the "
        "mark that a monitor sets",
    )
    parser.add_argument(
        "--progress",
        action="store_true",
        help="say on standard error, after each depth, how many states there are so far",
    )
    parser.add_argument(
        "--table", action="store_true", help="print each rule and what happens without it"
    )
    options = parser.parse_args(argv)
    if options.table:
        tables = (broken_rules_table(), broken_sharing_table(), broken_reservations_table())
        sys.stdout.write("\n\n".join(tables) + "\n")
        return 0
    reserved = {"shipped": ReservationRules()}
    reserved |= {each.name: each.rules for each in BROKEN_RESERVATIONS}
    if options.reservations != (options.rules in reserved) and options.rules != "shipped":
        parser.error(f"--rules {options.rules} does not go with or without --reservations")
    if options.reservations:
        if options.devices == 2 or options.quorum_device:
            parser.error("--reservations goes without --devices 2 and --quorum-device")
        return _explore_reservations(reserved[options.rules], options.rules)
    sharing = {"shipped": SharingRules()} | {each.name: each.rules for each in BROKEN_SHARING}
    if (options.devices == 2) != (options.rules in sharing) and options.rules != "shipped":
        parser.error(f"--rules {options.rules} belongs to --devices {3 - options.devices}")
    if options.quorum_device and (options.nodes, options.devices) != (2, 1):
        parser.error("--quorum-device belongs to --nodes 2 and --devices 1")
    if options.devices == 2:
        begin = time.process_time()
        shared = explore_sharing(sharing[options.rules])
        return _report(shared, f"{options.rules}, 2 devices", begin, sharing_text)
    known: dict[str, Rules] = {"shipped": SHIPPED}
    known |= {variant.name: variant.rules for variant in BROKEN_RULES}
    if options.lost_disk and (options.rules != "shipped" or options.lone_marks):
        parser.error("--lost-disk belongs to the rules as shipped, without --lone-marks")
    if options.unmarked_resync and (
        options.rules != "shipped" or options.lone_marks or options.lost_disk
    ):
        parser.error("--unmarked-resync goes with --nodes, --faults and --quorum-device alone")
    lost = None if options.lost_disk is None else int(options.lost_disk == "standby")
    lost_disks = {variant.name: variant.lost_disk for variant in BROKEN_RULES} | {"shipped": lost}
    begins: tuple[str, ...] = () if lost is None else MARKED_DISKLESS[lost]
    if options.unmarked_resync:
        begins = LATE_TARGET[options.unmarked_resync]
    unmarked = {variant.name for variant in BROKEN_RULES if variant.is_unmarked}
    begin = time.process_time()
    if options.lone_marks:
        lone = explore_lone_marks(
            known[options.rules],
            options.nodes,
            options.faults,
            has_device=options.quorum_device,
        )
        return _report_lone_marks(lone, f"{options.rules}, {options.nodes} nodes", begin)
    result: Exploration[World] = explore_cluster(
        known[options.rules],
        options.nodes,
        options.faults,
        has_device=options.quorum_device,
        lost_disk=lost_disks[options.rules],
        is_unmarked=bool(options.unmarked_resync) or options.rules in unmarked,
        begins=begins,
        progress=_progress if options.progress else None,
    )
    device = " and a quorum device" if options.quorum_device else ""
    disk = "" if lost is None else f", the disk of the {options.lost_disk} replica lost"
    late = f", a late mark of the {options.unmarked_resync}" if options.unmarked_resync else ""
    about = f"{options.rules}, {options.nodes} nodes{device}, {options.faults} faults{disk}{late}"
    return _report(result, about, begin, world_text)


def _progress(depth: int, states: int, transitions: int) -> None:
    sys.stderr.write(
        f"all states {depth} events away: {states} states, {transitions} transitions, "
        f"{time.process_time():.0f} s CPU\n"
    )
    sys.stderr.flush()


def _report_lone_marks(lone: LoneMarks, about: str, begin_s: float) -> int:
    sys.stdout.write(f"{about}: a lone mark is in every CIB in {lone.everybodys} states\n")
    worst = _report(lone.exploration, "what comes of them", begin_s, world_text)
    return worst or _report(
        lone.ends,
        "how they end, all repaired",
        begin_s,
        lambda world: world_text(world) if world else "",
    )


def _explore_reservations(rules: ReservationRules, name: str) -> int:
    begin = time.process_time()
    result = explore_reservations(rules)
    worst = _report(result, f"{name}, reservations, 2 nodes", begin, reservations_text)
    if worst:
        return worst
    return _report(
        explore_repair(rules),
        "what repair alone leads to",
        begin,
        lambda state: reservations_text(state) if state else "",
    )


def _report(result: Exploration[S], about: str, begin_s: float, text_of: Callable[[S], str]) -> int:
    """Print what an exploration found; return the exit status."""
    sys.stdout.write(
        f"{about}: {result.states} states, "
        f"{result.transitions} transitions, {result.depth} events deep, "
        f"{time.process_time() - begin_s:.1f} s CPU\n"
    )
    if result.found is None:
        sys.stdout.write("no counterexample found\n")
        return 0
    sys.stdout.write(_trace_text(result.found, text_of) + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
