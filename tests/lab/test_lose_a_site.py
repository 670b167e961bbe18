# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands of the tutorial about a lost site, run in order; their output is as it shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sanctl.lab.harness import failover
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.harness.scenario import Scenario, await_members_online
from tests.support import tutorial
from tests.support.doc_samples import ROOT, consoles

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

PAGE = ROOT / "docs" / "tutorial" / "lose-a-site.md"
#: The laboratory is there already, and other tests need it after this one.
_DONE_BY_THE_FIXTURE = {
    "make setup",
    ". .venv/bin/activate",
    "sanctl lab up",
    "sanctl lab destroy",
}
#: All nodes boot in between, on a machine that may be busy.
_PATIENCE_S = 400.0
#: A busy machine may not make the restore point within half a second; and each node says every ten
#: seconds who is logged in, as the page says.
_AGAIN_FOR = ("SAN-SNAP-007", "SAN-DEV-023")
_AUTHORIZED = "/root/.ssh/authorized_keys"
_NO_DISKS = """
for each in $(dmsetup ls --target multipath | cut -f 1); do
    dmsetup message $each 0 fail_if_no_path
done
iscsiadm -m session -u; iscsiadm -m node -o delete; multipath -F; ! ls /dev/mapper/3600*
"""


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    """Return a laboratory whose pools are XFS."""
    return xfs_bed


@pytest.fixture
def reader(bed: LabSession) -> Iterator[dict[str, str]]:
    """The environment in which the reader types; what the tutorial leaves is taken away."""
    scenario = Scenario(bed, Initiator(bed, "i1"))
    bed.sh("i1", f"cp -a {_AUTHORIZED} /var/tmp/tutorial-keys")
    # The page speaks of each disk there is, as on a new host; other tests' may have left maps.
    bed.sh("i1", _NO_DISKS, ok=range(256), timeout_s=120)
    yield tutorial.environment_of(bed)
    for node in ("n1", "n2", "n3"):
        bed.ensure_power(node)
    # Not for a healthy cluster: where the tutorial ended early vol1 may be taken over still.
    await_members_online(bed)
    bed.sh("i1", "! mountpoint -q /mnt || umount /mnt", ok=range(256), timeout_s=60)
    for name in ("vol1-dr", "vol1"):
        if scenario.exists(name):
            scenario.host.logout(f"{scenario.iqn_prefix()}.{name}")
            scenario.sanctl(
                "device",
                "delete",
                name,
                "--yes",
                "--accept",
                "SAN-DEV-023",
                "--with-points",
                timeout_s=240,
            )
    bed.sh("n3", "sanctl site remove far --yes --accept SAN-SITE-039", timeout_s=60, ok=range(256))
    for node in ("n1", "n2"):
        bed.sh(node, "rm -f /etc/sanctl/site_key /etc/sanctl/site_key.pub")
    failover.await_healthy(bed, "n3")
    bed.sh(
        "i1",
        f"mv /var/tmp/tutorial-keys {_AUTHORIZED}; umount /srv/copies; rm -f /var/tmp/site.img",
        timeout_s=60,
        ok=range(256),
    )


def test_the_tutorial(bed: LabSession, reader: dict[str, str]) -> None:
    typed = 0
    for sample in consoles(PAGE):
        if sample.command in _DONE_BY_THE_FIXTURE:
            continue
        print(f"{sample}: {sample.command}", flush=True)
        if sample.where:
            tutorial.type_on_host(bed, sample)
        else:
            tutorial.type_here(
                sample, reader, bed.lab.name, patience_s=_PATIENCE_S, again_for=_AGAIN_FOR
            )
        typed += 1
    assert typed >= 35, "the page has lost its samples"
