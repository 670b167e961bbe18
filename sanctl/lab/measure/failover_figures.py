# SPDX-License-Identifier: GPL-2.0-or-later
"""Crashes of a node that serves many devices: medians, ratio to one device, judgement, chart.

Pure, but for the chart.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sanctl.lab.measure import cpu_cost
from sanctl.lab.measure.cpu_cost import NodeCpu

#: With up to so many devices the last one may wait that many times as long as one alone.
GOALS = ((20, 2.0), (50, 3.0))
_COLOURS = ("#bfdbfe", "#60a5fa", "#1d4ed8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """The crash of a node that served some devices.

    Attributes:
        pauses_s: for each device how long its host had no answer, sorted.
        whole_s: after how long all replicas were in sync again and none marked.
        errors: requests of the host that failed.
        is_another_fenced: whether another node of the cluster rebooted, or gave no answer at the
            end.
        cib_changes: changes of the CIB's configuration until then; None: the survivor rebooted.
        cib_cpu_s: processor time of the survivor's pacemaker-based until then; None: the same.
        cpu: what the processors of each node that did not reboot did until then.
        problem: what did not happen in time; empty where all did.
    """

    pauses_s: tuple[float, ...]
    whole_s: float
    errors: int
    is_another_fenced: bool
    cib_changes: int | None
    cib_cpu_s: float | None
    cpu: Mapping[str, NodeCpu]
    problem: str

    @property
    def devices(self) -> int:
        """How many devices the node served."""
        return len(self.pauses_s)

    @property
    def is_good(self) -> bool:
        """Whether all was whole again by itself, with no request failed and nobody else fenced."""
        return not (self.is_another_fenced or self.errors or self.problem)


def cpu_of_survivors(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, NodeCpu]:
    """Return what the nodes did that have not rebooted in between.

    Args:
        before: for each node its boot id, then what `cpu_cost.CPU_SCRIPT` printed.
        after: the same later; empty for a node that gave no answer.
    """
    found = {}
    for node, early in before.items():
        (boot, *early_figures), late = early.split(), after.get(node, "").split()
        if late[:1] == [boot]:
            found[node] = cpu_cost.cpu_between(" ".join(early_figures), " ".join(late[1:]))
    return found


def goal_of(devices: int) -> float | None:
    """Return how many times one device's pause the last of some may wait; None: no goal."""
    if devices == 1:
        return None
    return next((goal for most, goal in GOALS if devices <= most), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The crashes with one number of devices: medians of the crashes, in seconds.

    Attributes:
        devices: the number.
        crashes: how many crashes there were with it.
        first_s: the pause of the device that was served first.
        median_s: the median pause of the devices.
        last_s: the pause of the device that was served last.
        slowest_s: the longest pause of all; no median.
        whole_s: until all was whole; None: once it was not in time.
        one_s: the pause of a device alone, in the same run; None: there was no such crash.
    """

    devices: int
    crashes: int
    first_s: float
    median_s: float
    last_s: float
    slowest_s: float
    whole_s: float | None
    one_s: float | None

    @property
    def goal(self) -> float | None:
        """What the ratio may be; None: no goal."""
        return goal_of(self.devices)

    @property
    def ratio(self) -> float | None:
        """The last pause by that of one device; None: there is none to compare with."""
        return self.last_s / self.one_s if self.one_s else None

    @property
    def is_missed(self) -> bool:
        """Whether there is a goal, and the ratio is more."""
        return self.goal is not None and self.ratio is not None and self.ratio > self.goal

    @property
    def judgement(self) -> str:
        """The goal and whether it was reached, as text; empty where there is no goal."""
        if self.goal is None:
            return ""
        if self.ratio is None:
            return f"{self.goal:g}: not judged"
        return f"{self.goal:g}: {'missed' if self.is_missed else 'reached'}"


def summaries(crashes: Sequence[Crash]) -> list[Summary]:
    """Return a summary for each number of devices, the lowest first."""
    alone = [crash.pauses_s[0] for crash in crashes if crash.devices == 1]
    one_s = statistics.median(alone) if alone else None
    found = []
    for count in sorted({crash.devices for crash in crashes}):
        those = [crash for crash in crashes if crash.devices == count]
        found.append(
            Summary(
                devices=count,
                crashes=len(those),
                first_s=statistics.median(crash.pauses_s[0] for crash in those),
                median_s=statistics.median(statistics.median(crash.pauses_s) for crash in those),
                last_s=statistics.median(crash.pauses_s[-1] for crash in those),
                slowest_s=max(crash.pauses_s[-1] for crash in those),
                whole_s=None
                if any(crash.problem for crash in those)
                else statistics.median(crash.whole_s for crash in those),
                one_s=one_s,
            )
        )
    return found


def limit_warnings(counts: Sequence[int], limit: int | None) -> list[str]:
    """Return what stands against the goals before anything is created.

    Args:
        counts: numbers of devices of the run.
        limit: the CIB's node-action-limit; None: it has none.
    """
    if limit is None:
        found = [
            "warning: the CIB has no node-action-limit: Pacemaker begins two actions at once for"
            " each processor, and other devices fail over in later steps"
        ]
    else:
        found = [
            f"warning: node-action-limit is {limit}: of {count} devices {count - limit} fail over"
            " in a second step; a laboratory with more memory has a higher limit (one for each"
            " 32 MiB of its nodes, up to 64)"
            for count in sorted(set(counts))
            if count > limit
        ]
    if 1 not in counts and any(goal_of(count) is not None for count in counts):
        found.append("warning: nothing is judged without crashes of one device: --devices 1,...")
    return found


def draw(found: Sequence[Summary], crashes: Sequence[Crash], stem: Path) -> tuple[Path, Path]:
    """Write the chart as STEM.svg and STEM.png: bars for medians, a point for each pause."""
    # Imported here: it takes a second, which only a crash that is over should cost.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (pauses, whole) = plt.subplots(
        1, 2, figsize=(4 + 2.5 * len(found), 4.5), layout="constrained", width_ratios=(3, 1)
    )
    figure.suptitle("The node that serves all devices loses power")
    width = 0.27
    for place, each in enumerate(found):
        values = (each.first_s, each.median_s, each.last_s)
        for step, (value, colour) in enumerate(zip(values, _COLOURS, strict=True)):
            bar = pauses.bar(place + (step - 1) * width, value, width, color=colour)
            pauses.bar_label(bar, [f"{value:.1f}"], padding=2, fontsize=8)
        dots = [pause for crash in crashes if crash.devices == each.devices
                for pause in crash.pauses_s]  # fmt: skip
        pauses.scatter([place + 1.7 * width] * len(dots), dots, s=8, color="#334155", zorder=3)
        if each.goal is not None and each.one_s is not None:
            pauses.hlines(each.goal * each.one_s, place - 0.45, place + 0.5, color="#dc2626",
                          linestyles="dashed")  # fmt: skip
    pauses.set_xticks(range(len(found)), [_label(each) for each in found])
    pauses.set_ylabel("time without an answer, s")
    pauses.set_title("first, median and last device; dashed: the goal of the last", fontsize=9)
    pauses.margins(y=0.15)
    bars = whole.bar([str(each.devices) for each in found], [each.whole_s or 0.0 for each in found],
                     0.6, color="#94a3b8")  # fmt: skip
    whole.bar_label(
        bars, ["never" if each.whole_s is None else f"{each.whole_s:.0f}" for each in found]
    )
    whole.set_title("until all were whole", fontsize=9)
    whole.set_xlabel("devices")
    whole.set_ylabel("s")
    svg, png = stem.with_suffix(".svg"), stem.with_suffix(".png")
    figure.savefig(svg)
    figure.savefig(png, dpi=110)
    plt.close(figure)
    return svg, png


def _label(each: Summary) -> str:
    ratio = "" if each.ratio is None or each.devices == 1 else f"\n{each.ratio:.1f} times one"
    return f"{each.devices} device{'s' if each.devices > 1 else ''}{ratio}"
