# SPDX-License-Identifier: GPL-2.0-or-later
"""drbdadm on a node parses the resource files, those for DRBD 9 too; no kernel is involved."""

from __future__ import annotations

import shlex

import pytest

from sanctl.lab.harness.lab_session import LabSession
from tests.support.resource_files import (
    COPIES,
    GLOBAL,
    environment,
    is_read_as_meant,
    resource_file,
)


@pytest.mark.parametrize(("generation", "copies"), COPIES)
def test_drbdadm_reads_it(bed: LabSession, generation: int, copies: int) -> None:
    settings = shlex.join(f"{key}={value}" for key, value in environment(generation).items())
    done = bed.sh(
        bed.storage[0].name,
        f"file=$(mktemp); cat >$file; {settings} drbdadm --config-file $file dump all; status=$?;"
        " rm $file; exit $status",
        stdin=GLOBAL + resource_file(generation, copies),
    )
    is_read_as_meant(done.stdout, generation, copies)
