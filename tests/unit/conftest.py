# SPDX-License-Identifier: GPL-2.0-or-later
"""Settings for the unit tests: nothing is written through to a disk."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _no_fsync() -> Iterator[None]:
    """Only look whether the descriptor is open: what fsync keeps is shown in the laboratory.

    Beside a laboratory, thousands of fsyncs are most of the time of these tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield
