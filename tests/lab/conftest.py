# SPDX-License-Identifier: GPL-2.0-or-later
"""Audits the kernels after every test of tests/lab."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _audited(audited: None) -> None:
    """See tests/support/laboratory.py."""
