# SPDX-License-Identifier: GPL-2.0-or-later
"""A host that tries to log in to a device all the time, and reads all of it once it is let in."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from collections.abc import Iterator, Sequence

from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession

#: Logs in wherever it is let in, and prints the digest of what it can read there.
_EAGER = """
set -o pipefail
for portal in {portals}; do iscsiadm -m node -T {target} -p $portal -o new >/dev/null; done
while :; do
    for portal in {portals}; do
        timeout 6 iscsiadm -m node -T {target} -p $portal --login >/dev/null 2>&1
        path=/dev/disk/by-path/ip-$portal:3260-iscsi-{target}-lun-0
        [ -e $path ] || continue
        read=$(timeout 20 dd if=$path bs=1M iflag=direct 2>/dev/null | sha256sum) || continue
        echo ${{read%% *}}
    done
    sleep 0.2
done
"""


@contextlib.contextmanager
def eager_host(
    bed: LabSession, host: Initiator, target: str, portals: Sequence[str], *, within_s: int = 500
) -> Iterator[subprocess.Popen[str]]:
    """Have the host i1 try to log in for as long as the block lasts, and `within_s` at most."""
    script = _EAGER.format(portals=" ".join(portals), target=target)
    try:
        with bed.stream("i1", f"timeout {within_s} bash -c {shlex.quote(script)}") as process:
            yield process
    finally:
        host.sh("pkill -f '[r]ead=.*sha256sum'; pkill -x iscsiadm; sleep 1")
        host.logout(target)


def first_seen(process: subprocess.Popen[str]) -> str:
    """Return the digest of the first data that the host has been given."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
