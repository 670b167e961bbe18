# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the safety model: `python -m sanctl.safety --help`.

Ends with 0 where nothing is found, 1 where something is, with the shortest way there.
"""

from __future__ import annotations

import argparse
import sys
import time

from sanctl.safety.broken_rules import BROKEN_RULES, explore_cluster
from sanctl.safety.rules import SHIPPED, Rules
from sanctl.safety.search import Counterexample, Exploration
from sanctl.safety.world import World, world_text


def trace_text(found: Counterexample[World]) -> str:
    """Return a counterexample for a reader: each event, and the world after it."""
    width = max(len(step) for step in ("", *found.steps))
    lines = [f"{'':3} {'at first':{width}}  {world_text(found.states[0])}"]
    lines += [
        f"{number:3} {step:{width}}  {world_text(state)}"
        for number, (step, state) in enumerate(zip(found.steps, found.states[1:], strict=True), 1)
    ]
    return "\n".join([*lines, f"=> {found.what}"])


def broken_rules_table() -> str:
    """Return the table of the documentation: each rule, and what is found without it."""
    lines = [
        "| rule | without it, shortest way there |",
        "| --- | --- |",
    ]
    lines += [
        f"| {variant.rule} | `{variant.name}`: "
        f"{variant.finds}; {variant.steps} events, {variant.faults} faults, "
        f"{variant.nodes} nodes |"
        for variant in BROKEN_RULES
    ]
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    """Explore, or print the table."""
    parser = argparse.ArgumentParser(prog="python -m sanctl.safety", description=__doc__)
    parser.add_argument("--nodes", type=int, choices=(2, 3), default=3)
    parser.add_argument("--faults", type=int, default=1, help="how many faults may happen")
    parser.add_argument(
        "--rules",
        choices=("shipped", *(variant.name for variant in BROKEN_RULES)),
        default="shipped",
        help="what is shipped, or one of its rules broken",
    )
    parser.add_argument("--table", action="store_true", help="print the table of broken rules")
    options = parser.parse_args(argv)
    if options.table:
        sys.stdout.write(broken_rules_table() + "\n")
        return 0
    known: dict[str, Rules] = {"shipped": SHIPPED}
    known |= {variant.name: variant.rules for variant in BROKEN_RULES}
    begin = time.process_time()
    result: Exploration[World] = explore_cluster(
        known[options.rules], options.nodes, options.faults
    )
    sys.stdout.write(
        f"{options.rules}, {options.nodes} nodes, {options.faults} faults: {result.states} states, "
        f"{result.transitions} transitions, {result.depth} events deep, "
        f"{time.process_time() - begin:.1f} s CPU\n"
    )
    if result.found is None:
        sys.stdout.write("nothing found\n")
        return 0
    sys.stdout.write(trace_text(result.found) + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
