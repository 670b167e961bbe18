# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands that are run again and again beside faults: when, what came of each, how many. Pure."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sanctl.errors import ExitStatus

#: What is counted instead of a code where a command gave none: its node died, or hung.
NO_ANSWER = "no answer"
# Of ssh(1) without a connection, of timeout(1), and of processes that were killed, as shells and
# as setsid(1) say it.
_UNANSWERED = frozenset({9, 124, 129, 130, 137, 143, 255})
_TRACEBACK = "Traceback (most recent call last)"
_BUG = "SAN-BUG-"
# An interval of many means would leave out whole faults.
_LONGEST_MEANS = 4.0
#: A node removes a copy that became no restore point once it has seen it for ten minutes; its pool
#: agent looks every ten seconds, later on a busy machine, and not while the cluster recovers.
UNNAMED_S = 900.0
_UNNAMED = ".taking"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one command.

    Attributes:
        code: the code of its first problem, or what is counted instead; empty: it was done.
        text: what it said of that.
        data: the data of its JSON, if it was done.
        bug: why it may not end like that, whatever was broken; empty: it may.
    """

    code: str
    text: str = ""
    data: Any = None
    bug: str = ""


def read_outcome(status: int, stdout: str, stderr: str) -> Outcome:
    """Read how a command with `--output json` ended."""
    problems, data = _parse(stdout)
    code, text = problems[0] if problems else ("", "")
    bug = ""
    if _TRACEBACK in stdout + stderr:
        bug = f"a traceback: {(stdout + stderr).strip().splitlines()[-1]}"
    elif status == ExitStatus.BUG or any(each.startswith(_BUG) for each, _ in problems):
        bug = f"an error in sanctl itself (status {status}): {code} {text or stderr.strip()[-300:]}"
    if status == 0 and data is not None:
        return Outcome(code="", data=data, bug=bug)
    if not code:
        code = NO_ANSWER if status < 0 or status in _UNANSWERED else f"status {status}"
        text = stderr.strip()[-300:]
    return Outcome(code=code, text=text, bug=bug)


def _parse(stdout: str) -> tuple[list[tuple[str, str]], Any]:
    try:
        told = json.loads(stdout)
        return [(each["code"], each["text"]) for each in told["problems"]], told["data"]
    except (ValueError, KeyError, TypeError):
        return [], None  # nothing, or the half of it


def moments(seed: int, mean_s: float, what: str) -> Iterator[float]:
    """Return the random intervals, in seconds, between the attempts at something; never ends.

    Args:
        seed: the seed of the run, which alone decides them.
        mean_s: their mean, but for the longest ones, which are cut.
        what: what is attempted, so that two things have different moments.
    """
    choose = random.Random(f"sanctl-chaos/{what}/{seed}")  # noqa: S311 - to be repeated, no secret
    while True:
        yield min(choose.expovariate(1 / mean_s), _LONGEST_MEANS * mean_s)


@dataclass(slots=True)
class Tally:
    """How many attempts there were, and what came of them.

    Attributes:
        done: those that were done: restore points made, copies proven.
        refused: the others, by code.
        judged: how many restore points or copies were read.
        wrong: what is wrong with them, or with how a command ended.
    """

    done: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    judged: int = 0
    wrong: list[str] = field(default_factory=list)

    def count(self, outcome: Outcome, what: str) -> None:
        """Count the end of one command."""
        if outcome.bug:
            self.wrong.append(f"{what}: {outcome.bug}")
        if outcome.code:
            self.refused[outcome.code] += 1
        else:
            self.done += 1

    def refused_text(self) -> str:
        """Return the codes with their numbers, the most frequent first."""
        return ", ".join(f"{code} {count}" for code, count in self.refused.most_common()) or "none"


def worst_age_s(copies: Sequence[tuple[float, float]], began_s: float, until_s: float) -> float:
    """Return the greatest age that the newest copy had.

    Args:
        copies: of each copy when its run began, and when it was proven; in their order.
        began_s: when copies began to be made: until the first one there is none.
        until_s: the end.
    """
    since, worst = began_s, 0.0
    for copy_began_s, proven_s in copies:
        worst = max(worst, proven_s - since)
        since = copy_began_s
    return max(worst, until_s - since)


def left_over(
    files: Collection[tuple[str, str]],
    tokens: Collection[str],
    first_seen_s: Mapping[tuple[str, str], float],
    now_s: float,
) -> list[str]:
    """Return the files of restore points that belong to none, and that no node will remove.

    Args:
        files: the nodes and names of the files, looked for after the restore points were listed.
        tokens: of the restore points in the CIB, also those that are being deleted.
        first_seen_s: since when each file was there and its node was up.
        now_s: the time.
    """
    found = []
    for node, name in sorted(files):
        is_unnamed = name.endswith(_UNNAMED)
        if name.removesuffix(_UNNAMED).rpartition(".")[2] in tokens:
            continue
        seen_for_s = now_s - first_seen_s.get((node, name), now_s)
        if not is_unnamed:
            found.append(f"{node}: {name} is the file of no restore point")
        elif seen_for_s > UNNAMED_S:
            found.append(
                f"{node}: {name} became no restore point and was not removed in {seen_for_s:.0f} s"
            )
    return found
