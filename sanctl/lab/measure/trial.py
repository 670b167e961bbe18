# SPDX-License-Identifier: GPL-2.0-or-later
"""The result of one measured failover, and the verdict on several against their goals. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from sanctl.lab.measure.ledger_latency import Pause
from sanctl.lab.measure.timeline import Event, Stage

#: The longest pause that is accepted under a steady load, in seconds.
CRASH_PAUSE_GOAL_S = 12.0
MOVE_PAUSE_GOAL_S = 3.0


class TrialKind(StrEnum):
    """The two ways in which a device changes its node."""

    CRASH = "crash"
    MOVE = "planned move"

    @property
    def goal_s(self) -> float:
        """The longest pause that this kind may cost."""
        return CRASH_PAUSE_GOAL_S if self is TrialKind.CRASH else MOVE_PAUSE_GOAL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """The host's iSCSI sessions around a failover."""

    ids_before: dict[str, str]  # by portal
    ids_after: dict[str, str]
    survivor_logins_before: int  # as the surviving node's target counts them
    survivor_logins_after: int

    @property
    def kept(self) -> bool:
        """Whether no session was replaced, and the survivor accepted no new login."""
        return (
            self.ids_before == self.ids_after
            and self.survivor_logins_before == self.survivor_logins_after
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resync:
    """The resync of the replica on a node that has returned."""

    copied_bytes: int
    written_bytes: int  # by the host while it was away
    activity_log_bytes: int
    device_bytes: int
    seconds: float

    @property
    def limit_bytes(self) -> int:
        """The most that the resync may copy."""
        return min(self.device_bytes, self.written_bytes + self.activity_log_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One failover of the device under the ledger."""

    kind: TrialKind
    device: str
    from_node: str
    to_node: str
    began_s: float
    ended_s: float
    pause: Pause
    stages: tuple[Stage, ...]
    agent_steps: tuple[tuple[str, str, float], ...]
    events: tuple[Event, ...]
    sessions: Sessions
    is_fenced: bool | None = None  # None: not checked for this kind
    resync: Resync | None = None
    violations: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the trial as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim of the verdict: its text, the measurement, and whether it held."""

    text: str
    measured: str
    is_held: bool


def judge(trials: Sequence[Trial], checks: Sequence[dict[str, Any]]) -> list[Claim]:
    """Return the verdict on all trials and on the ledgers that ran under them.

    The pause is judged by its median, everything else by the worst run: four runs without a lost
    write do not make up for one with.
    """
    claims: list[Claim] = []
    for kind in TrialKind:
        runs = [trial for trial in trials if trial.kind is kind]
        if not runs:
            continue
        pauses = [trial.pause.seconds for trial in runs]
        median = statistics.median(pauses)
        count = f", median of {len(runs)}" if len(runs) > 1 else ""
        claims.append(
            Claim(
                text=f"{kind}: pause at most {kind.goal_s:g} s",
                measured=f"{median:.2f} s{count} (longest {max(pauses):.2f} s)"
                if count
                else f"{median:.2f} s",
                is_held=median <= kind.goal_s,
            )
        )
        kept = sum(trial.sessions.kept for trial in runs)
        claims.append(
            Claim(
                text=f"{kind}: same sessions, no new login to the node that takes over",
                measured=f"{kept} of {len(runs)}",
                is_held=kept == len(runs),
            )
        )
        if kind is TrialKind.CRASH:
            fenced = sum(bool(trial.is_fenced) for trial in runs)
            claims.append(
                Claim(
                    text="crash: the lost node was fenced before the takeover",
                    measured=f"{fenced} of {len(runs)}",
                    is_held=fenced == len(runs),
                )
            )
    claims.extend(_judge_resyncs(trials))
    claims.extend(_judge_data(trials, checks))
    return claims


def _judge_resyncs(trials: Sequence[Trial]) -> list[Claim]:
    crashes = [trial for trial in trials if trial.kind is TrialKind.CRASH]
    if not crashes:
        return []
    known = [trial.resync for trial in crashes if trial.resync is not None]
    worst = max(known, key=lambda each: each.copied_bytes - each.limit_bytes, default=None)
    return [
        Claim(
            text="return: resync of no more than was written meanwhile + the activity log",
            measured="no resync was seen"
            if worst is None
            else f"{mib(worst.copied_bytes)} of at most {mib(worst.limit_bytes)}"
            f" (device {mib(worst.device_bytes)}) in {worst.seconds:.1f} s",
            is_held=len(known) == len(crashes)
            and all(each.copied_bytes <= each.limit_bytes for each in known),
        )
    ]


def _judge_data(trials: Sequence[Trial], checks: Sequence[dict[str, Any]]) -> list[Claim]:
    acknowledged = sum(check["acknowledged"] for check in checks)
    lost = sum(check["lost"] for check in checks)
    errors = sum(check["errors"] for check in checks)
    broken = [text for trial in trials for text in trial.violations]
    return [
        Claim(
            text="0 acknowledged writes lost",
            measured=f"{lost} of {acknowledged}",
            is_held=bool(checks) and lost == 0 and acknowledged > 0,
        ),
        Claim(
            text="0 I/O errors at the host",
            measured=str(errors),
            is_held=bool(checks) and errors == 0,
        ),
        Claim(
            text="never two nodes that serve the device",
            measured="; ".join(broken) or "none seen",
            is_held=not broken,
        ),
    ]


def mib(count: int) -> str:
    """Return a number of bytes in MiB."""
    return f"{count / 2**20:.1f} MiB"
