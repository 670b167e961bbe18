# SPDX-License-Identifier: GPL-2.0-or-later
"""Loads the kernel modules of the data path."""

from __future__ import annotations

from sanctl.drivers import drbd_kernel
from sanctl.system.files import is_folder
from sanctl.system.runner import Runner


def load(runner: Runner) -> None:
    """Load the kernel modules of the data path that are not loaded yet.

    Raises:
        CommandError: the kernel lacks one of them; `sanctl doctor` names it.
    """
    present = drbd_kernel.is_loaded() and all(
        is_folder(f"/sys/module/{name}") for name in ("loop", "dm_mod", "target_core_iblock")
    )
    if not present or not is_folder("/sys/kernel/config/target/iscsi"):
        runner.run(
            [
                "modprobe",
                "--all",
                "drbd",
                "loop",
                "dm_mod",
                "target_core_iblock",
                "iscsi_target_mod",
            ],
            timeout_s=30.0,
        )
