# SPDX-License-Identifier: GPL-2.0-or-later
"""Reboots this node at once, as a power cut would, with a line in the journal that says why."""

from __future__ import annotations

import contextlib

from sanctl.errors import SanctlError
from sanctl.system import journal
from sanctl.system.runner import Runner

_TRIGGER = "/proc/sysrq-trigger"


def reboot(runner: Runner, reason: str, *, device: str) -> None:
    """Reboot without stopping, syncing or unmounting anything: that is what hangs.

    Returns only if the kernel did not do it; whoever called tries again.
    """
    text = f"self-fence: {reason}; rebooting"
    # CRITICAL, because journald writes that to disk at once; and asked for, because this is the
    # last that anybody hears.
    journal.write(text, priority=journal.CRITICAL, device=device, action="self-fence")
    with contextlib.suppress(SanctlError):
        runner.run(["journalctl", "--sync"], timeout_s=3.0)
    with contextlib.suppress(OSError), open("/dev/kmsg", "w", encoding="utf-8") as kernel_log:
        kernel_log.write(f"<2>sanctl: {text}\n")
    with contextlib.suppress(OSError), open(_TRIGGER, "w", encoding="ascii") as trigger:
        trigger.write("b")
    # A kernel without sysrq: the reboot system call, still without stopping anything.
    with contextlib.suppress(SanctlError):
        runner.run(["systemctl", "reboot", "--force", "--force"], timeout_s=10.0)
