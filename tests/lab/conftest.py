"""Every test of this folder is audited."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _audited(audited: None) -> None:
    """See tests/laboratory.py."""
