# SPDX-License-Identifier: GPL-2.0-or-later
"""What a test has left in a laboratory that others use after it."""

from __future__ import annotations

from tests.support import left_behind

BEFORE = left_behind.parse(
    "n1", "== files\n/srv/sanctl/main/devices:\n\n== loops\n== mapper\nsanctl-disk1\n"
)


def after(**sections: str) -> left_behind.State:
    return BEFORE | {f"n1 {name}": lines.split() for name, lines in sections.items()}


def test_a_script_s_output_is_read_by_its_sections() -> None:
    assert BEFORE == {
        "n1 files": ["/srv/sanctl/main/devices:"],
        "n1 loops": [],
        "n1 mapper": ["sanctl-disk1"],
    }


def test_nothing_is_left() -> None:
    assert left_behind.difference(BEFORE, after()) == ""


def test_what_is_left_and_what_is_gone_is_named() -> None:
    left = after(mapper="sanctl-disk1 sanctl-vol1-gate")
    assert left_behind.difference(BEFORE, left) == "n1 mapper: 'sanctl-vol1-gate' is left"
    gone = after(mapper="")
    assert left_behind.difference(BEFORE, gone) == "n1 mapper: 'sanctl-disk1' is gone"


def test_what_could_not_be_looked_at_is_no_state_that_fits() -> None:
    less = {kind: lines for kind, lines in BEFORE.items() if kind != "n1 mapper"}
    assert left_behind.difference(BEFORE, less) == "n1 mapper: 'sanctl-disk1' is gone"
