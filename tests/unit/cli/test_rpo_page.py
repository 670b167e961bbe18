# SPDX-License-Identifier: GPL-2.0-or-later
"""The page for an auditor: whole in itself, well-formed, and no name in it is markup."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from sanctl.cli.views.rpo import RpoReport
from sanctl.cli.views.rpo_page import rpo_page
from sanctl.errors import Problem
from sanctl.plan.site.copy_ages import CopyAge
from sanctl.plan.site.rpo import DeviceLoss, Elsewhere
from tests.unit.model.test_site_restore import RECORD

NOW = 1_800_000_000
AGES = (
    CopyAge("p1", NOW - 3600, NOW - 3500, None),
    CopyAge("p2", NOW - 1800, NOW - 1700, 1900),
)
COPY = Elsewhere("copy", "far", "p2", NOW - 1800, 900, is_late=False, ages=AGES)
BACKUP = Elsewhere("backup", "nas", "web@p.1", NOW - 900, None, is_late=False)
WEB = DeviceLoss("web", (COPY, BACKUP), 900, is_met=True, restored=RECORD)
LATE = DeviceLoss("db", (COPY._replace(is_late=True, ages=()),), 1800, is_met=False)
NOTHING = DeviceLoss("tmp", (), None, is_met=None)


def page(*devices: DeviceLoss, within_s: int | None = None, name: str = "san1") -> str:
    problem = Problem("SAN-SITE-005", "<no answer>")
    return rpo_page(
        RpoReport(name, NOW, within_s, devices, (RECORD,), {"tape": problem}, {"far": problem})
    )


class Balance(HTMLParser):
    """Collects what is wrong with the nesting of elements."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def test_all_is_on_it_and_nothing_outside() -> None:
    text = page(WEB, LATE, NOTHING)
    for part in (
        "cluster san1",
        "2027-01-15 08:00:00 UTC",
        "the last 0:15:00",
        "1970-01-01, 12 min for 10 GiB",
        "never tested here",
        "0:31:40",
        "late from here: 0:45:00",
        "Nothing of it is elsewhere",
        "site far does not say what it keeps: SAN-SITE-005",
        "repository tape is not counted",
    ):
        assert part in text, part
    assert not re.search(r"https?:|src=|href=|url\(|<script|<link|<img", text)
    checked = Balance()
    checked.feed(text)
    assert checked.open == [] and checked.wrong == []


@pytest.mark.parametrize("within_s", [None, 600, 10**6])
def test_the_chart_stays_in_its_frame(within_s: int | None) -> None:
    text = page(WEB, within_s=within_s)
    (svg,) = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    drawing = ET.fromstring(svg)
    line = drawing.find("polyline")
    assert line is not None
    points = [tuple(map(float, each.split(","))) for each in line.get("points", "").split()]
    assert len(points) == 4 and all(0 <= x <= 760 and 0 <= y <= 170 for x, y in points)
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    # The age grows upwards: the highest is just before the second copy.
    assert min(points, key=lambda each: each[1])[1] in {points[1][1], points[3][1]}
    limit = drawing.find("line[@class='limit']")
    assert limit is not None and 0 <= float(limit.get("y1", "-1")) <= 170


def test_one_copy_and_no_demand() -> None:
    one = COPY._replace(ages=(CopyAge("p", NOW, NOW, None),), every_s=None)
    text = page(DeviceLoss("web", (one,), 0, is_met=None))
    assert "<polyline" in text and 'class="limit"' not in text and "nan" not in text


def test_names_are_no_markup() -> None:
    evil = "<script>alert(1)</script>\"'&"
    bad = COPY._replace(place=evil, name=evil)
    text = page(
        DeviceLoss(evil, (bad,), 1, is_met=False, restored=RECORD._replace(into=evil)), name=evil
    )
    assert "<script" not in text and "<no answer>" not in text and '"\'&"' not in text
    checked = Balance()
    checked.feed(text)
    assert checked.open == [] and checked.wrong == []
