# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks at the clock, and waits, so that everything above can be tested without waiting."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Time as the code above sees it."""

    def monotonic_s(self) -> float:
        """Seconds of a clock that never goes back."""
        ...

    def wall_s(self) -> float:
        """Seconds since 1970 as this node believes."""
        ...

    def sleep(self, duration_s: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's own clock."""

    def monotonic_s(self) -> float:
        """See Clock.monotonic_s."""
        return time.monotonic()

    def wall_s(self) -> float:
        """See Clock.wall_s."""
        return time.time()

    def sleep(self, duration_s: float) -> None:
        """See Clock.sleep."""
        time.sleep(duration_s)
