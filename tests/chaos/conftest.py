# SPDX-License-Identifier: GPL-2.0-or-later
"""Every test of this folder is audited, besides what the bench does itself."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _audited(audited: None) -> None:
    """See tests/support/laboratory.py."""
