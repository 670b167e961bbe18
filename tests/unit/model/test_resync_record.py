# SPDX-License-Identifier: GPL-2.0-or-later
"""What agents write about resyncs and verifies is what commands read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.resync_record import (
    DONE,
    FAST,
    ResyncRecord,
    RunningSync,
    format_running,
    parse_running,
)
from sanctl.model.verify_result import (
    DIFFERS,
    PUBLISHED_RANGES,
    VerifyRequest,
    VerifyResult,
    parse_published,
)

_NUMBER = st.integers(0, 1 << 50)
_WORDS = st.from_regex(r"[a-z0-9%]+( [a-z0-9%]+){0,5}", fullmatch=True)
_RUNNING = st.builds(
    RunningSync,
    device=st.from_regex(r"[a-z][a-z0-9-]{0,9}", fullmatch=True),
    kind=st.sampled_from(["fast", "full", "verify"]),
    waits=_WORDS | st.just(""),
    left_kib=_NUMBER,
    total_kib=_NUMBER,
    rate_kib_s=_NUMBER,
    began_s=_NUMBER,
)


@given(
    st.builds(
        ResyncRecord,
        kind=st.sampled_from(["fast", "full"]),
        why=_WORDS,
        stage=st.sampled_from(["running", "widening", "done"]),
        began_s=_NUMBER,
        ended_s=_NUMBER,
        changed_kib=_NUMBER,
        received_kib=_NUMBER,
    )
)
def test_a_resync_is_one_word(latest: ResyncRecord) -> None:
    assert " " not in str(latest)
    assert ResyncRecord.parse(str(latest)) == latest


@given(st.lists(_RUNNING, max_size=4).map(tuple))
def test_what_runs_is_one_line(entries: tuple[RunningSync, ...]) -> None:
    assert parse_running(format_running(entries)) == entries


@pytest.mark.parametrize("text", ["", "fast", "a,b,c,d,e,f,g", "a,b,c,1,2,3,4,5", ";;,"])
def test_what_does_not_read_is_nothing(text: str) -> None:
    assert ResyncRecord.parse(text) is None or text.count(",") == 6
    assert parse_running(text) == ()
    assert VerifyResult.parse(text) is None


def test_time_left_is_told_only_where_it_can_be() -> None:
    going = RunningSync("vm1", FAST, "", 1000, 4000, 300, 1)
    assert going.left_s == 4
    assert going.done_percent == 75.0
    assert going._replace(rate_kib_s=0).left_s is None
    assert going._replace(waits="for vm2").left_s is None
    assert going._replace(total_kib=0).done_percent == 100.0
    assert going._replace(left_kib=5000).done_percent == 0.0


def test_an_old_note_with_no_end() -> None:
    assert str(ResyncRecord(FAST, "6% is marked", DONE, 5)) == "fast,6%+is+marked,done,5,0,0,0"


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("12", VerifyRequest(12, is_repair=False)),
        ("12:repair", VerifyRequest(12, is_repair=True)),
        ("", None),
        ("12:", None),
        ("x:repair", None),
        ("12:repairs", None),
    ],
)
def test_orders(text: str, order: VerifyRequest | None) -> None:
    assert VerifyRequest.parse(text) == order
    assert order is None or str(order) == text


def test_a_verify_is_written_whole_and_shown_in_part() -> None:
    ranges = tuple(f"{4096 * n}+4096" for n in range(40))
    told = VerifyResult(7, DIFFERS, 1, 2, 160, ranges)
    assert VerifyResult.parse(str(told)) == told
    assert " " not in told.published
    shown = parse_published(told.published)
    assert shown == told._replace(ranges=ranges[:PUBLISHED_RANGES])
    assert VerifyResult.parse(str(told._replace(ranges=()))) == told._replace(ranges=())
