# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest

from sanctl.model.name_list import in_words


@pytest.mark.parametrize(
    ("names", "text"),
    [([], ""), (["n1"], "n1"), (["n1", "n2"], "n1 and n2"), (["a", "b", "c"], "a, b and c")],
)
def test_the_last_name_alone_is_after_an_and(names: list[str], text: str) -> None:
    assert in_words(names) == text
