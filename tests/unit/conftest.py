# SPDX-License-Identifier: GPL-2.0-or-later
"""What no unit test reaches: the Corosync of the machine that the tests run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sanctl.drivers import quorum_library


@pytest.fixture(autouse=True, scope="session")
def _no_corosync() -> Iterator[None]:
    """Have each test's own corosync-quorumtool asked instead."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quorum_library, "load", lambda: None)
        yield
