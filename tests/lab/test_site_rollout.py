# SPDX-License-Identifier: GPL-2.0-or-later
"""The playbook sets a second site up: nodes run the receiver alone; again changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.errors import CommandError
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import rollout
from sanctl.lab.machines.spec import Network
from tests.support.second_site import KEY, SERVER, sanctl

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

SITE, USER, NAME = "rolled", "sanctl-site", "rolled0"
IMAGE, MOUNT = "/var/tmp/rolled.img", "/srv/rolled"
PATH = f"{MOUNT}/sanctl"
RECEIVERS = "/etc/sanctl-site/receivers"
HOME = "/var/lib/sanctl-site"


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    """Return a laboratory whose pools are XFS."""
    return xfs_bed


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    return Scenario(bed, Initiator(bed, "i1"))


@pytest.fixture(scope="module")
def inventory(bed: LabSession) -> Iterator[dict[str, Any]]:
    """Return the laboratory's inventory with a second site; at the end there is none any more."""
    made = rollout.inventory_of(bed.lab)
    # As on real servers the site's is none of the hosts: one that is down ends their play.
    made["all"]["children"]["sanctl_hosts"]["hosts"] = {}
    made["all"]["children"]["sanctl_sites"] = {
        "hosts": {
            SERVER: {
                "ansible_user": "root",
                "sanctl_second_site_name": SITE,
                "sanctl_second_site_address": bed.node(SERVER).address(Network.ISCSI),
                "sanctl_second_site_path": PATH,
            }
        }
    }
    bed.sh(SERVER, f"truncate -s 512M {IMAGE} && mkfs.xfs -q {IMAGE} && mkdir -p {MOUNT}")
    yield made
    bed.sh(
        "n3", f"sanctl site remove {SITE} --yes --accept SAN-SITE-039", timeout_s=60, ok=range(256)
    )
    for node in ("n1", "n2"):
        bed.sh(node, f"rm -f {KEY} {KEY}.pub")
    bed.sh(
        SERVER,
        f"userdel {USER}; rm -rf {HOME} /etc/sanctl-site /usr/local/lib/sanctl;"
        f" umount {MOUNT}; rm -rf {IMAGE} {MOUNT}",
        timeout_s=60,
        ok=range(256),
    )


def run(bed: LabSession, inventory: dict[str, Any], *arguments: str) -> int:
    return rollout.run(bed.lab, inventory=inventory, arguments=("--tags", "site", *arguments))


def test_a_filesystem_that_is_not_mounted_is_not_filled(
    bed: LabSession, inventory: dict[str, Any]
) -> None:
    with pytest.raises(CommandError, match="is to be on a mounted XFS"):
        run(bed, inventory)
    assert bed.sh(SERVER, f"ls {MOUNT}; ls -d {HOME}", ok=range(256)).stdout == ""
    assert sanctl(bed, "n1", "site list") == []


def test_check_mode_makes_nothing(bed: LabSession, inventory: dict[str, Any]) -> None:
    bed.sh(SERVER, f"mount -o loop {IMAGE} {MOUNT}")
    assert run(bed, inventory, "--check", "--diff") > 0
    # The directory may be there before the user that is to own it.
    bed.sh(SERVER, f"mkdir {PATH}")
    assert run(bed, inventory, "--check", "--diff") > 0
    bed.sh(SERVER, f"rmdir {PATH}")
    assert bed.sh(SERVER, f"ls {MOUNT}; getent passwd {USER}", ok=range(256)).stdout == ""


def test_the_site_is_there_and_a_second_run_changes_nothing(
    bed: LabSession, inventory: dict[str, Any]
) -> None:
    assert run(bed, inventory) > 0
    (site,) = sanctl(bed, "n3", "site list")
    own = bed.sh(SERVER, "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").stdout
    assert site["name"] == SITE and site["fingerprint"] in own.split()
    assert bed.sh(SERVER, f"stat -c '%U %a' {PATH}").stdout.split() == [USER, "700"]
    assert bed.sh(SERVER, f"stat -c %U {HOME} {HOME}/.ssh/authorized_keys").stdout.split() == [
        "root",
        "root",
    ]
    secrets = []
    for node in ("n1", "n2"):
        assert bed.sh(node, f"stat -c '%U %a' {KEY}").stdout.split() == ["root", "600"]
        secrets.append(bed.sh(node, f"sed -n 2p {KEY}").stdout.strip())
    log = (bed.lab.directory / "rollout.log").read_text()
    assert not [each for each in secrets if each in log]
    assert run(bed, inventory) == 0
    assert run(bed, inventory, "--check", "--diff") == 0
    # Without the node nothing of it goes.
    assert run(bed, inventory, "--limit", SERVER) == 0
    assert run(bed, inventory, "--limit", "n1") == 0


def test_a_copy_is_made_by_either_node(scenario: Scenario, inventory: dict[str, Any]) -> None:
    del inventory
    bed = scenario.bed
    scenario.create(NAME, "64M", prefer="n1")
    try:
        for active, standby in (("n1", "n2"), ("n2", "n1")):
            bed.sh("n3", f"sanctl device move {NAME} --to {active}", timeout_s=180)

            def once(standby: str = standby) -> Any:
                done = bed.sh(
                    standby,
                    f"sanctl replicate run {NAME} --to {SITE} --output json",
                    timeout_s=400,
                    ok=range(256),
                )
                # A busy machine may not make the point within half a second.
                assert done.status == 0 or "SAN-SNAP-007" in done.stdout, done.stdout
                return json.loads(done.stdout)["data"]

            made = wait_for(f"a copy from {standby}", once, within_s=400)
            assert made["file"].startswith(f"{PATH}/{NAME}.")
    finally:
        scenario.sanctl(
            "device",
            "delete",
            NAME,
            "--yes",
            "--accept",
            "SAN-DEV-023",
            "--with-points",
            timeout_s=240,
        )


def test_the_key_runs_nothing_else(bed: LabSession, inventory: dict[str, Any]) -> None:
    del inventory
    address = bed.node(SERVER).address(Network.ISCSI)
    ssh = f"ssh -i {KEY} -o BatchMode=yes -o StrictHostKeyChecking=accept-new {USER}@{address}"
    for words in ("id", "python3 -c 'print(1)'", ""):
        done = bed.sh("n1", f'{ssh} "{words}" </dev/null', timeout_s=60, ok=range(256))
        assert done.status == 1 and "another command was asked for" in done.stderr, done
        assert "uid=" not in done.stdout
    # A receiver of another release.
    bed.sh(SERVER, f"mv {RECEIVERS} {RECEIVERS}.kept; echo {'0' * 64} >{RECEIVERS}")
    (problem,) = sanctl(bed, "n1", f"site copies {SITE}", status=5)
    assert problem["code"] == "SAN-SITE-034", problem
    bed.sh(SERVER, f"mv {RECEIVERS}.kept {RECEIVERS}")
    assert sanctl(bed, "n1", f"site copies {SITE}") is not None


def test_a_node_that_was_installed_anew_is_let_in_again(
    bed: LabSession, inventory: dict[str, Any]
) -> None:
    before = bed.sh("n2", f"cat {KEY}.pub").stdout
    bed.sh("n2", f"rm {KEY} {KEY}.pub")
    assert sanctl(bed, "n2", f"site copies {SITE}", status=4)[0]["code"] == "SAN-SITE-004"
    assert run(bed, inventory, "--limit", f"n2,{SERVER}") == 2
    assert bed.sh("n2", f"cat {KEY}.pub").stdout != before
    keys = bed.sh(SERVER, f"cat {HOME}/.ssh/authorized_keys").stdout.splitlines()
    assert len(keys) == 2 and before.split()[1] not in " ".join(keys)
    for node in ("n1", "n2"):
        sanctl(bed, node, f"site copies {SITE}")


def test_what_a_line_by_hand_says_of_from_where_stays(
    bed: LabSession, inventory: dict[str, Any]
) -> None:
    """Also of a node that the run leaves out: it is asked what it sends, and that is listed."""
    file, key = f"{HOME}/.ssh/authorized_keys", bed.sh("n1", f"cat {KEY}.pub").stdout.strip()
    source = f'from="{bed.node("n1").address(Network.ISCSI)}"'
    bed.sh(SERVER, f"sed -i '/ n1$/d' {file}; echo '{source} {key}' >>{file}; : >{RECEIVERS}")
    assert run(bed, inventory, "--limit", f"n2,{SERVER}") >= 1
    (line,) = [
        each for each in bed.sh(SERVER, f"cat {file}").stdout.splitlines() if key.split()[1] in each
    ]
    assert line.startswith(f"{source},restrict,command=") and line.endswith(" n1")
    for node in ("n1", "n2"):
        sanctl(bed, node, f"site copies {SITE}")
    assert run(bed, inventory) == 0


def test_a_server_that_does_not_answer_ends_no_play_before_the_nodes(
    bed: LabSession, inventory: dict[str, Any]
) -> None:
    host = inventory["all"]["children"]["sanctl_sites"]["hosts"][SERVER]
    # The laboratory's connection, which is open already, would be used whatever the port is.
    away = {"ansible_port": 1, "ansible_ssh_extra_args": "-o ControlPath=none"}
    host.update(away)
    try:
        with pytest.raises(CommandError, match="UNREACHABLE"):
            run(bed, inventory)
    finally:
        for each in away:
            del host[each]
    log = (bed.lab.directory / "rollout.log").read_text()
    for play in ("Cluster nodes", "Keys for second sites", "Cluster configuration"):
        assert f"PLAY [{play}]" in log
    assert "Run the playbook again once this is mended" in log
    assert run(bed, inventory) == 0


def test_another_directory_is_no_move(bed: LabSession, inventory: dict[str, Any]) -> None:
    """The inventory's new path has to have the mark of the site."""
    host = inventory["all"]["children"]["sanctl_sites"]["hosts"][SERVER]
    host["sanctl_second_site_path"] = f"{MOUNT}/other"
    try:
        with pytest.raises(CommandError, match="SAN-LAB-040"):
            run(bed, inventory)
        assert "SAN-SITE-006" in (bed.lab.directory / "rollout.log").read_text()
    finally:
        host["sanctl_second_site_path"] = PATH
    assert [each["path"] for each in sanctl(bed, "n1", "site list")] == [PATH]
    bed.sh(SERVER, f"mv {PATH} {MOUNT}/moved && rmdir {MOUNT}/other")
    host["sanctl_second_site_path"] = f"{MOUNT}/moved"
    assert run(bed, inventory) == 1
    assert [each["path"] for each in sanctl(bed, "n1", "site list")] == [f"{MOUNT}/moved"]
    assert run(bed, inventory) == 0
