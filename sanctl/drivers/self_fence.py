# SPDX-License-Identifier: GPL-2.0-or-later
"""The reboot of this node at once, like a power cut, after a journal line with the reason."""

from __future__ import annotations

import contextlib

from sanctl.errors import SanctlError
from sanctl.system import journal
from sanctl.system.runner import Runner

_TRIGGER = "/proc/sysrq-trigger"


def reboot(runner: Runner, reason: str, *, device: str) -> None:
    """Reboot without stopping, syncing or unmounting anything, as any of these may hang.

    Returns only if the kernel did not reboot; the caller tries again.
    """
    text = f"self-fence: {reason}; rebooting"
    # First: nothing has to take it, and no process has to be started for it.
    journal.write_to_kernel_log(text, priority=journal.CRITICAL)
    # CRITICAL, because journald writes that to disk at once; and an explicit sync, because this is
    # the last line of this boot. It is not waited for longer, and a node without memory for a
    # process is to end all the same.
    journal.write(text, priority=journal.CRITICAL, device=device, action="self-fence")
    with contextlib.suppress(SanctlError, OSError):
        runner.run(["journalctl", "--sync"], timeout_s=3.0)
    with contextlib.suppress(OSError), open(_TRIGGER, "w", encoding="ascii") as trigger:
        trigger.write("b")
    # A kernel without sysrq: the reboot system call, still without stopping anything.
    with contextlib.suppress(SanctlError, OSError):
        runner.run(["systemctl", "reboot", "--force", "--force"], timeout_s=10.0)
