# SPDX-License-Identifier: GPL-2.0-or-later
"""What a node publishes of hanging requests, and how it is read: also from another release."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.hung_io import HungCause, HungIo, hung_io, hung_word, parse_hung
from sanctl.model.packed_states import pack, unpack

CAUSE, SINCE_S = HungCause.FORGOTTEN, 1_764_150_000


@pytest.mark.parametrize(
    ("names", "word", "who"),
    [
        (None, "forgotten:1764150000:?", ""),
        ((), "forgotten:1764150000:-", ""),
        (("vm1",), "forgotten:1764150000:vm1", "vm1"),
        (("vm2", "vm1"), "forgotten:1764150000:vm1,vm2", "vm1 and vm2"),
        (tuple("abcd"), "forgotten:1764150000:a,b,c,d", "a, b, c and d"),
        (tuple("abcde"), "forgotten:1764150000:a,b,c+2", "a, b, c and 2 more"),
    ],
)
def test_a_word_says_the_first_names(names: tuple[str, ...] | None, word: str, who: str) -> None:
    hung = hung_io(CAUSE, SINCE_S, names)
    assert (hung_word(hung), hung.who) == (word, who)
    assert parse_hung(word) == hung
    # It fits into the state that a node publishes of its replicas.
    assert unpack(pack({"vm9": f"disk=UpToDate hung={word}"})) == {
        "vm9": f"disk=UpToDate hung={word}"
    }


@pytest.mark.parametrize(
    "word",
    ["", "forgotten", "forgotten:1", "forgotten:1:", "forgotten:x:a", "forgotten:1:a+x",
     "gone:1:a", f"forgotten:{1 << 60}:a", f"forgotten:{'9' * 5000}:a"],
)  # fmt: skip
def test_another_word_says_nothing(word: str) -> None:
    assert parse_hung(word) is None


@given(st.text())
def test_no_word_is_an_error(text: str) -> None:
    found = parse_hung(text)
    if found is not None:
        datetime.fromtimestamp(found.since_s, UTC)
        assert isinstance(found, HungIo)
