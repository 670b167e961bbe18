# SPDX-License-Identifier: GPL-2.0-or-later
"""SAN-HLT-163 and SAN-HLT-164: files of nodes that differ."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sanctl.model.cluster import Cluster
from sanctl.parse.cib import parse_cib
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.health.cluster_health import all_findings
from sanctl.render.drbd import device_secret
from tests.fakes.pacemaker import FakePacemaker
from tests.fakes.topology import topology


def found(n1: str, n2: str, *, away: str = "") -> dict[str, str]:
    fake = FakePacemaker(golden="one-device")
    fake.attribute("n1", "sanctl-pool-main", f"total=100 free=90 {n1}")
    fake.attribute("n2", "sanctl-pool-main", f"total=100 free=90 {n2}")
    if away:
        fake.states[away] = "offline"
    cluster = Cluster.seen(parse_cib(fake.root), parse_crm_mon(fake.monitor()))
    findings = all_findings(cluster, topology(), now_s=1_800_000_000.0)
    return {
        each.code: each.what for each in findings if each.code in {"SAN-HLT-163", "SAN-HLT-164"}
    }


def test_files_that_differ_are_named_with_their_nodes() -> None:
    """A playbook with --limit left another secret, unseen until a connection was refused."""
    assert found("toml=a drbd-secret=c", "toml=b drbd-secret=d") == {
        "SAN-HLT-163": "/etc/sanctl/cluster.toml differs: one on n1, another on n2",
        "SAN-HLT-164": "/etc/sanctl/drbd.secret differs: one on n1, another on n2",
    }
    assert list(found("toml=a drbd-secret=c", "toml=a drbd-secret=d")) == ["SAN-HLT-164"]


@pytest.mark.parametrize("other", ["toml=a drbd-secret=c", "", "drbd-secret=c"])
def test_who_has_the_same_or_does_not_say_is_not_named(other: str) -> None:
    assert found("toml=a drbd-secret=c", other) == {}


def test_the_secret_in_use_is_found_by_the_line_of_the_page(tmp_path: Path) -> None:
    """DRBD has what is derived from the file for each device, and never what is in the file."""
    page = (Path(__file__).parents[4] / "docs" / "howto" / "night-page.md").read_text()
    section = page[page.index("## Which secret is in use") :]
    (line,) = (each.strip() for each in section.splitlines() if "python3 -c" in each)
    file, uuid = tmp_path / "drbd.secret", "a" * 32
    file.write_text("5ecret\n")
    line = line.replace("/etc/sanctl/drbd.secret", str(file)).replace("UUID", uuid)
    argv = [sys.executable, *shlex.split(line)[1:]]
    printed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == device_secret("5ecret", uuid)


def test_a_node_that_is_away_is_not_compared() -> None:
    assert found("toml=a", "toml=b", away="n2") == {}
