# SPDX-License-Identifier: GPL-2.0-or-later
"""What drbdadm itself makes of the resource files: it has to read them, and mean the same."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.resource_files import (
    COPIES,
    GLOBAL,
    environment,
    is_read_as_meant,
    resource_file,
)

_DRBDADM = shutil.which("drbdadm", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


@pytest.mark.skipif(_DRBDADM is None, reason="no drbdadm on this machine (Debian: drbd-utils)")
@pytest.mark.parametrize(("generation", "copies"), COPIES)
def test_drbdadm_reads_it(generation: int, copies: int, tmp_path: Path) -> None:
    assert _DRBDADM is not None
    path = tmp_path / "vol1.res"
    path.write_text(GLOBAL + resource_file(generation, copies))
    path.chmod(0o600)
    done = subprocess.run(
        [_DRBDADM, "--config-file", str(path), "dump", "all"],
        env={**os.environ, **environment(generation)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    is_read_as_meant(done.stdout, generation, copies)
