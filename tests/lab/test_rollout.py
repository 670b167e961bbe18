# SPDX-License-Identifier: GPL-2.0-or-later
"""The playbook a second time changes nothing; secrets are root's; rtslib reads our targets."""

from __future__ import annotations

import json

import pytest

from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import rollout


def test_a_second_run_changes_nothing(bed: LabSession) -> None:
    assert rollout.run(bed.lab) == 0


def test_check_mode_runs_through_and_finds_nothing_to_do(bed: LabSession) -> None:
    assert rollout.run(bed.lab, arguments=("--check", "--diff")) == 0


@pytest.mark.quick
def test_secrets_are_for_root_alone(bed: LabSession) -> None:
    for node in bed.cluster:
        modes = bed.sh(
            node.name,
            "stat -c '%a %U %n' /etc/sanctl/drbd.secret /etc/corosync/authkey /etc/sanctl/fence/*",
        ).stdout
        for line in modes.splitlines():
            mode, owner, name = line.split()
            assert (int(mode, 8) & 0o077, owner) == (0, "root"), name
        secret = bed.sh(node.name, "cat /etc/sanctl/drbd.secret").stdout.strip()
        assert secret
        reported = bed.sh(
            node.name,
            f"journalctl -b | grep -cF '{secret}'; cibadmin --query | grep -cF '{secret}'",
            ok=(0, 1),
        ).stdout.split()
        assert reported == ["0", "0"]


_RTSLIB = """
import json
import rtslib_fb

print(json.dumps([
    [
        tpg.parent_target.wwn,
        tpg.tag,
        tpg.enable,
        [acl.node_wwn for acl in tpg.node_acls],
        [[lun.lun, lun.storage_object.name, lun.alua_tg_pt_gp_name] for lun in tpg.luns],
    ]
    for target in rtslib_fb.RTSRoot().targets
    for tpg in target.tpgs
    if target.wwn.endswith(".rtsview")
]))
"""


def test_rtslib_reads_what_the_agents_wrote(scenario: Scenario) -> None:
    """A second opinion on our own configfs driver, by the library that the field uses."""
    scenario.create("rtsview", "64M", prefer="n2")
    try:
        for number, node in enumerate(("n1", "n2"), start=1):
            shown = scenario.bed.sh(node, "python3 -", stdin=_RTSLIB).stdout
            iqn, initiators = f"{scenario.iqn_prefix()}.rtsview", [scenario.host.iqn]
            own, listed = sorted(json.loads(shown), key=lambda tpg: tpg[1] != number)
            luns = [[0, "sanctl-rtsview", f"sanctl-{number}"]]
            assert own == [iqn, number, True, initiators, luns]
            # Of the other node: discovery names it, and nobody can log in to it.
            assert listed == [iqn, 3 - number, False, initiators, []]
    finally:
        scenario.sanctl(
            "device", "delete", "rtsview", "--yes", "--accept", "SAN-DEV-023", timeout_s=120
        )
