# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs are started, and ended in time."""

from __future__ import annotations

import gc

import pytest

from sanctl.errors import CommandError
from sanctl.system.runner import LocalRunner


def test_what_gives_no_answer_is_killed_and_nothing_of_it_is_left() -> None:
    """A pipe or a process that is left complains when it is collected, in whatever runs then."""
    with pytest.raises(CommandError, match="no answer within"):
        LocalRunner().run(["sleep", "60"], timeout_s=0.05)
    with pytest.raises(CommandError, match="no answer within"):
        LocalRunner().run(["sleep", "60"], timeout_s=0.05, stdin="what it does not read\n")
    gc.collect()
