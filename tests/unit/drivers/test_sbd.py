# SPDX-License-Identifier: GPL-2.0-or-later
"""How SBD runs is told by its processes."""

from __future__ import annotations

import pytest

from sanctl.drivers import sbd
from sanctl.system import files

CGROUP = "/sys/fs/cgroup/system.slice/sbd.service/cgroup.procs"
RUNS = {
    CGROUP: "7\n8\n9\n",
    "/proc/7/cmdline": "sbd: inquisitor\0\0",
    "/proc/8/cmdline": "sbd: watcher: Pacemaker\0",
}

ROOT = {"/run/sbd.pid": "7\n", "/sys/fs/cgroup/cgroup.controllers": "cpu"}


@pytest.mark.parametrize(
    ("texts", "mode"),
    [
        (RUNS, "diskless"),
        ({**RUNS, "/proc/9/cmdline": "sbd: watcher: /dev/disk/by-id/a - slot: 0\0"}, "disk"),
        ({"/sys/fs/cgroup/cgroup.controllers": "cpu"}, "off"),
        ({CGROUP: "", "/sys/fs/cgroup/cgroup.controllers": "cpu"}, "off"),
        # It has moved to the root cgroup, or has been gone for long.
        ({**ROOT, "/proc/7/cmdline": "sbd: inquisitor\0"}, ""),
        (ROOT, "off"),
        ({}, ""),
    ],
)
def test_the_mode_is_that_of_the_processes(
    monkeypatch: pytest.MonkeyPatch, texts: dict[str, str], mode: str
) -> None:
    def read(path: str) -> str:
        if path in texts:
            return texts[path]
        # The one that has just ended gives another error than one that is long gone.
        raise ProcessLookupError(3, path) if path == "/proc/9/cmdline" else FileNotFoundError(path)

    monkeypatch.setattr(files, "read_text", read)
    monkeypatch.setattr(sbd, "exists", texts.__contains__)
    assert sbd.mode() == mode
