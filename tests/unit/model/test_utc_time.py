# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest

from sanctl.model.utc_time import utc_text


@pytest.mark.parametrize(
    ("moment_s", "text"),
    [
        (0, "1970-01-01 00:00"),
        (1_795_842_899, "2026-11-28 05:14"),
        (1_795_842_900, "2026-11-28 05:15"),
    ],
)
def test_a_moment_is_named_to_the_minute(moment_s: int, text: str) -> None:
    assert utc_text(moment_s) == text
