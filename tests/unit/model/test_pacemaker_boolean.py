# SPDX-License-Identifier: GPL-2.0-or-later
"""The words that Pacemaker reads as true and as false."""

from __future__ import annotations

import pytest

from sanctl.model.pacemaker_boolean import is_false, is_true


@pytest.mark.parametrize("word", ["true", "TRUE", "Yes", "on", "1", "y"])
def test_words_that_are_true(word: str) -> None:
    assert is_true(word) and not is_false(word)


@pytest.mark.parametrize("word", ["false", "FALSE", "No", "off", "0", "n"])
def test_words_that_are_false(word: str) -> None:
    assert is_false(word) and not is_true(word)


@pytest.mark.parametrize("word", ["", "2", "maybe", " true"])
def test_words_that_are_neither(word: str) -> None:
    assert not is_true(word) and not is_false(word)
