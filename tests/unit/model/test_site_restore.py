# SPDX-License-Identifier: GPL-2.0-or-later
"""The note of a restore from a copy: what is written is read, and nothing else."""

from __future__ import annotations

import pytest

from sanctl.model.site_restore import RESTORED_PREFIX, RestoreRecord

RECORD = RestoreRecord("web", "b" * 32, "far", "to-far-1", "web-test", 1000, 1720, 10 << 30)


def test_read_as_written() -> None:
    assert RestoreRecord.parse(RECORD.id, RECORD.value) == RECORD
    assert RECORD.folder == f"web.{'b' * 32}" and RECORD.duration_s == 720
    assert RECORD._replace(ended_s=999).duration_s is None, "the clocks disagree"


@pytest.mark.parametrize(
    ("identifier", "value"),
    [
        (f"sanctl-copy.web.{'b' * 32}", RECORD.value),
        (f"web.{'b' * 32}", RECORD.value),
        (f"{RESTORED_PREFIX}web.far", RECORD.value),
        (f"{RESTORED_PREFIX}web.{'b' * 31}", RECORD.value),
        (RECORD.id, f"{RECORD.value} 1"),
        (RECORD.id, RECORD.value.replace("1720", "-1")),
        (RECORD.id, RECORD.value.replace("far ", "Far ")),
        (RECORD.id, ""),
    ],
)
def test_of_another_release(identifier: str, value: str) -> None:
    assert RestoreRecord.parse(identifier, value) is None
