# SPDX-License-Identifier: GPL-2.0-or-later
"""What would be lost with the cluster, as one page of HTML for an auditor.

It refers to nothing outside: the chart is SVG in it. All names are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from sanctl.cli.views.rpo import (
    RpoReport,
    age_text,
    folder_text,
    lost_text,
    met_text,
    moment_text,
    place_text,
    restore_text,
    source_text,
)
from sanctl.plan.site.copy_ages import course, worst_s
from sanctl.plan.site.rpo import DeviceLoss, Elsewhere

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 760, 170, 90, 24, 10
#: So many intervals old a copy by schedule is late (plan/site/schedule.py).
_LATE_INTERVALS = 3
_STYLE = """
body { font: 15px/1.45 sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em; color: #111 }
table { border-collapse: collapse; margin: .5em 0 1.5em; width: 100% }
th, td { border-bottom: 1px solid #bbb; padding: .3em .6em .3em 0; text-align: left;
 vertical-align: top }
h2 { margin-top: 2em } .no { font-weight: bold; color: #a00 } .note { color: #444 }
svg { max-width: 100%; height: auto } svg text { font: 11px sans-serif }
.axis { stroke: #888 } .age { stroke: #06c; stroke-width: 1.5; fill: none }
.limit { stroke: #a00; stroke-dasharray: 6 4 }
"""
_COLUMNS = (
    "device",
    "would be lost",
    "met now",
    "newest (UTC)",
    "age",
    "worst gap",
    "last restore",
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def rpo_page(report: RpoReport) -> str:
    """Return the page."""
    title = f"Recovery point and recovery time of cluster {report.cluster or 'without a name'}"
    demand = (
        "What schedules of copies demand"
        if report.within_s is None
        else f"The newest copy or backup of each device may be {age_text(report.within_s)} old"
    )
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f"<p>{moment_text(int(report.now_s))} UTC. {escape(demand)}.</p>",
        *(f'<p class="no">{escape(gap)}</p>' for gap in report.gaps),
        _table(
            _COLUMNS,
            [_summary(loss, report.now_s) for loss in report.devices],
        ),
        *(part for loss in report.devices for part in _device(loss, report)),
    ]
    if report.others:
        parts += [
            "<h2>Restores from copies of other devices</h2>",
            _table(
                ("copied device", "last restore", "from"),
                [
                    tuple(map(escape, (folder_text(e), restore_text(e), source_text(e))))
                    for e in report.others
                ],
            ),
        ]
    return "\n".join([*parts, *_notes(), "</body></html>"])


def _summary(loss: DeviceLoss, now_s: float) -> tuple[str, ...]:
    newest = max(
        (each for each in loss.elsewhere if each.made_s is not None),
        key=lambda each: each.made_s or 0,
        default=None,
    )
    gaps = [gap for each in loss.elsewhere if (gap := worst_s(each.ages)) is not None]
    return (
        escape(loss.device),
        lost_text(loss),
        _marked(met_text(loss)),
        moment_text(newest.made_s if newest else None),
        age_text(newest.age_s(now_s) if newest else None),
        age_text(max(gaps, default=None)),
        restore_text(loss.restored),
    )


def _device(loss: DeviceLoss, report: RpoReport) -> Iterator[str]:
    yield f"<h2>{escape(loss.device)}</h2>"
    record = loss.restored
    source = f", from {source_text(record)}" if record else ""
    yield f"<p>Last restore test: {escape(restore_text(record) + source)}</p>"
    if not loss.elsewhere:
        yield "<p>Nothing of it is elsewhere.</p>"
        return
    yield _table(
        ("where", "newest", "of (UTC)", "age", "due every", "worst of the kept copies", "kept"),
        [
            (
                escape(place_text(each)),
                escape(each.name or "none"),
                moment_text(each.made_s),
                age_text(each.age_s(report.now_s))
                + (' <span class="no">late</span>' if each.is_late else ""),
                age_text(each.every_s),
                age_text(worst_s(each.ages)),
                str(len(each.ages)) if each.ages else "-",
            )
            for each in loss.elsewhere
        ],
    )
    for each in loss.elsewhere:
        if each.ages:
            yield _chart(each, report)


def _chart(each: Elsewhere, report: RpoReport) -> str:
    """Return how the age of the newest copy has gone, as SVG."""
    points = course(each.ages, report.now_s)
    limit_s, limit = report.within_s, "demanded"
    if limit_s is None and each.every_s is not None:
        limit_s, limit = _LATE_INTERVALS * each.every_s, "late from here"
    begin_s, end_s = points[0][0], points[-1][0]
    top_s = max(1, *(age for _, age in points), limit_s or 0) * 1.1
    right, floor = _WIDTH - 10, _HEIGHT - _BOTTOM

    def x(moment_s: int) -> float:
        return _LEFT + (moment_s - begin_s) / max(1, end_s - begin_s) * (right - _LEFT)

    def y(age_s: float) -> float:
        return floor - age_s / top_s * (floor - _TOP)

    line = " ".join(f"{x(moment_s):.1f},{y(age_s):.1f}" for moment_s, age_s in points)
    highest_s = max(age for _, age in points)
    label = f"Age of the newest copy of {each.place} over time; at most {age_text(highest_s)}"
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">',
        f"<title>{escape(label)}</title>",
        f'<line class="axis" x1="{_LEFT}" y1="{floor}" x2="{right}" y2="{floor}"/>',
        f'<line class="axis" x1="{_LEFT}" y1="{_TOP}" x2="{_LEFT}" y2="{floor}"/>',
        f'<polyline class="age" points="{line}"/>',
        _label(_LEFT - 6, y(0), "0", "end"),
        _label(_LEFT - 6, y(highest_s) + 4, age_text(highest_s), "end"),
        _label(_LEFT, _HEIGHT - 8, moment_text(begin_s), "start"),
        _label(right, _HEIGHT - 8, moment_text(end_s), "end"),
    ]
    if limit_s is not None:
        at = f"{y(limit_s):.1f}"
        parts.append(f'<line class="limit" x1="{_LEFT}" y1="{at}" x2="{right}" y2="{at}"/>')
        text = f"{limit}: {age_text(limit_s)}"
        parts.append(_label(right, y(limit_s) - 3, text, "end"))
    return "\n".join([*parts, "</svg>"])


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; the cells are HTML."""
    head = "".join(f"<th>{escape(each)}</th>" for each in columns)
    body = "\n".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"


def _marked(met: str) -> str:
    return f'<span class="no">{met}</span>' if met == "no" else met


def _notes() -> tuple[str, ...]:
    return (
        '<p class="note">A copy counts once its digest was found equal to its restore point\'s. '
        "Worst gap: how old the newest kept copy was at most, just before the next one counted; of "
        "copies that were removed in between nothing is known, so the gap was that or less. "
        "Before the first kept copy nothing is known. Restore: from the order to the device with "
        "the copy's digest, to which hosts are let in; on this cluster alone. "
        "'-' where met: nothing is demanded.</p>",
    )
