# SPDX-License-Identifier: GPL-2.0-or-later
"""Binds system.journal to one device and one agent action, and adds the step's duration."""

from __future__ import annotations

from sanctl.system import journal


class DeviceLog:
    """Writes lines of one action, each with the device's name before it.

    Args:
        action: the field SANCTL_ACTION.
        priority: of a line that is given none of its own.
        about: the subject, between the device's name and the text.
    """

    def __init__(self, action: str, *, priority: int = journal.NOTICE, about: str = "") -> None:
        self._action, self._priority, self._about = action, priority, about

    def __call__(
        self,
        device: str,
        text: str,
        *,
        step: str = "",
        priority: int | None = None,
        duration_s: float | None = None,
    ) -> None:
        """Write one line.

        Args:
            device: the device's name, empty for a line about all of them.
            text: what happened.
            step: the field SANCTL_STEP.
            priority: syslog priority.
            duration_s: how long it took.
        """
        journal.write(
            "".join(f"{each}: " for each in (device, self._about) if each) + text,
            priority=self._priority if priority is None else priority,
            device=device,
            action=self._action,
            step=step,
            duration_ms=None if duration_s is None else round(duration_s * 1000),
        )
