# SPDX-License-Identifier: GPL-2.0-or-later
"""The audit of the kernels sees every broken invariant."""

from __future__ import annotations

import pytest

from sanctl.lab.measure.kernel_audit import active_nodes, parse_view, violations

ACTIVE = """\
role vol0 Primary
disk vol0 UpToDate
table vol0 linear 0
alua vol0 sanctl-1 0
lun vol0 sanctl-1 1
"""
STANDBY = """\
role vol0 Secondary
disk vol0 UpToDate
table vol0 error 0
alua vol0 sanctl-2 2
lun vol0 sanctl-2 1
listed vol0 1 0
"""


def test_a_healthy_pair_breaks_nothing() -> None:
    views = {"n1": parse_view(ACTIVE), "n2": parse_view(STANDBY)}
    assert violations(views) == []
    assert active_nodes(views, "vol0") == ["n1"]


def test_a_node_without_devices_says_nothing() -> None:
    assert violations({"n1": parse_view("")}) == []


@pytest.mark.parametrize(
    ("old", "new", "broken"),
    [
        ("role vol0 Secondary", "role vol0 Primary", "vol0: Primary on n1 and n2"),
        ("sanctl-2 2", "sanctl-2 0", "vol0: Active/Optimized on n1 and n2"),
        ("sanctl-2 2", "sanctl-2 0", "vol0: Active/Optimized on n2, which is Secondary"),
        (
            "lun vol0 sanctl-2 1",
            "lun vol0 default_tg_pt_gp 1",
            "vol0: Active/Optimized on n1 and n2",
        ),
        (
            "table vol0 error 0",
            "table vol0 linear 0",
            "vol0: n2 is Secondary, yet its gate leads onto a linear table",
        ),
        ("listed vol0 1 0", "lun vol0 sanctl-2 0", "vol0: n2 has LUNs in 2 TPGs"),
        ("listed vol0 1 0", "listed vol0 1 1", "vol0: n2 has enabled the TPG 1, which has no LUN"),
        (
            "listed vol0 1 0",
            "readable vol0 iqn.i1",
            "vol0: n2 shows the CHAP secret of iqn.i1 to every user",
        ),
    ],
    ids=[
        "two-primaries",
        "two-active",
        "active-secondary",
        "default-group",
        "linear-standby",
        "foreign-lun",
        "foreign-enabled",
        "readable-secret",
    ],
)
def test_a_broken_invariant_is_named(old: str, new: str, broken: str) -> None:
    assert old in STANDBY
    views = {"n1": parse_view(ACTIVE), "n2": parse_view(STANDBY.replace(old, new))}
    assert broken in violations(views)


def test_a_disabled_portal_is_not_active() -> None:
    closed = STANDBY.replace("sanctl-2 2", "sanctl-2 0").replace("sanctl-2 1\n", "sanctl-2 0\n")
    assert violations({"n1": parse_view(ACTIVE), "n2": parse_view(closed)}) == []


def test_a_line_it_does_not_know_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not understand"):
        parse_view("alua vol0 sanctl-1")
