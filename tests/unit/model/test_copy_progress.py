# SPDX-License-Identifier: GPL-2.0-or-later
"""What a node publishes of a copy: what is written is read, and nothing else."""

from __future__ import annotations

import pytest

from sanctl.model.copy_progress import (
    COMPARING,
    ENDED,
    SENDING,
    WAITING,
    CopyProgress,
    CopyStep,
)

PROGRESS = CopyProgress("7" * 16, CopyStep(SENDING, 25, 100), 1000, 1030)


def test_read_as_written() -> None:
    assert CopyProgress.parse(str(PROGRESS)) == PROGRESS
    assert PROGRESS.percent == 25
    assert PROGRESS._replace(step=CopyStep(COMPARING, 300, 100)).percent == 100
    assert PROGRESS._replace(step=CopyStep(SENDING, 0, 0)).percent == 100, "nothing has changed"
    assert PROGRESS._replace(step=CopyStep(WAITING, 0, 100)).percent is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        ENDED,
        f"{PROGRESS} 1",
        str(PROGRESS).replace("sending", "packing"),
        str(PROGRESS).replace("25", "-25"),
        str(PROGRESS)[1:],
    ],
)
def test_of_another_release(text: str) -> None:
    assert CopyProgress.parse(text) is None
