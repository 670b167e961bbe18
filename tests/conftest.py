# SPDX-License-Identifier: GPL-2.0-or-later
"""Settings for all tests."""

from __future__ import annotations

from hypothesis import settings

# A machine that also runs a laboratory is no stop-watch: how long one example takes says nothing.
settings.register_profile("sanctl", deadline=None)
settings.load_profile("sanctl")

pytest_plugins = [
    "tests.support.run_recorder",
    "tests.support.laboratory",
    "tests.support.rotation",
]
