# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands that are run beside faults: their moments, what came of each, how many."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from sanctl.lab.measure.attempts import (
    NO_ANSWER,
    UNNAMED_S,
    Tally,
    left_over,
    moments,
    read_outcome,
    worst_age_s,
)


def told(data: object, *codes: str) -> str:
    problems = [{"code": code, "text": f"because of {code}", "hint": ""} for code in codes]
    return json.dumps({"schema": 1, "status": "x", "data": data, "problems": problems})


def test_a_seed_repeats_its_moments_and_two_things_have_different_ones() -> None:
    first = list(islice(moments(7, 10.0, "points"), 500))
    assert first == list(islice(moments(7, 10.0, "points"), 500))
    assert first != list(islice(moments(8, 10.0, "points"), 500))
    assert first != list(islice(moments(7, 10.0, "copies"), 500))
    assert 8 < sum(first) / len(first) < 12
    assert 0 <= min(first) < 1 and 20 < max(first) <= 40


def test_what_was_done_has_its_data() -> None:
    outcome = read_outcome(0, told({"file": "x"}), "")
    assert (outcome.code, outcome.data, outcome.bug) == ("", {"file": "x"}, "")


def test_a_refusal_has_its_first_code_and_is_no_bug() -> None:
    outcome = read_outcome(4, told(None, "SAN-SNAP-005", "SAN-X-001"), "SAN-SNAP-005: ...")
    assert (outcome.code, outcome.text) == ("SAN-SNAP-005", "because of SAN-SNAP-005")
    assert not outcome.bug
    # As setsid(1) says of a process that was killed; but this one has answered.
    assert read_outcome(9, told(None, "SAN-CIB-001"), "").code == "SAN-CIB-001"


@pytest.mark.parametrize("status", [-9, 9, 124, 137, 143, 255])
def test_a_command_whose_node_went_has_no_answer(status: int) -> None:
    outcome = read_outcome(status, '{"schema": 1, "da', "Connection closed")
    assert (outcome.code, outcome.text, outcome.bug) == (NO_ANSWER, "Connection closed", "")


@pytest.mark.parametrize(("status", "stdout"), [(127, ""), (0, ""), (1, "[]"), (5, '{"data": 1}')])
def test_any_other_end_without_a_code_is_counted_by_its_status(status: int, stdout: str) -> None:
    assert read_outcome(status, stdout, "").code == f"status {status}"


@pytest.mark.parametrize(
    ("status", "stdout", "stderr"),
    [
        (70, "", "SAN-BUG-001: boom"),
        (70, told(None, "SAN-BUG-001"), ""),
        (5, told(None, "SAN-BUG-002"), ""),
        (1, "", "Traceback (most recent call last):\n  x\nValueError: y"),
        (0, told({}), "Traceback (most recent call last):\nOSError"),
    ],
)
def test_an_error_of_its_own_is_a_bug(status: int, stdout: str, stderr: str) -> None:
    assert read_outcome(status, stdout, stderr).bug


def test_ends_are_counted_by_code_and_bugs_are_wrong() -> None:
    tally = Tally()
    assert tally.refused_text() == "none"
    for status, stdout in (
        (0, told({})),
        (4, told(None, "SAN-A-001")),
        (70, told(None, "SAN-BUG-001")),
        (4, told(None, "SAN-A-001")),
    ):
        tally.count(read_outcome(status, stdout, ""), "it")
    assert tally.done == 1
    assert tally.refused_text() == "SAN-A-001 2, SAN-BUG-001 1"
    (wrong,) = tally.wrong
    assert wrong.startswith("it: an error in sanctl itself (status 70): SAN-BUG-001 because")


@pytest.mark.parametrize(
    ("copies", "until_s", "age_s"),
    [
        ([], 100.0, 100.0),
        ([(10.0, 15.0)], 20.0, 15.0),
        ([(10.0, 15.0), (70.0, 78.0)], 80.0, 68.0),
        ([(10.0, 15.0), (70.0, 78.0)], 200.0, 130.0),
    ],
)
def test_the_age_is_from_the_begin_of_a_copy_until_the_next_is_proven(
    copies: list[tuple[float, float]], until_s: float, age_s: float
) -> None:
    assert worst_age_s(copies, 0.0, until_s) == age_s


def test_a_file_of_no_restore_point_is_left_over() -> None:
    named, young, old = ("n1", "v.u.aa"), ("n1", "v.u.bb.taking"), ("n2", "v.u.cc.taking")
    seen = {named: 0.0, young: UNNAMED_S, old: 0.0}
    now_s = UNNAMED_S + 1
    first, second = left_over([named, young, old], set(), seen, now_s)
    assert first == "n1: v.u.aa is the file of no restore point"
    assert second.startswith("n2: v.u.cc.taking became no restore point")
    assert left_over([named, young, old], {"aa", "bb", "cc"}, seen, now_s) == []
    assert left_over([old], set(), {}, now_s) == []
