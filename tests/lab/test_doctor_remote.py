# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl doctor` on each storage node: what it needs of other servers, before it is needed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import second_site
from tests.support.second_site import KEY, PATH, SITE, sanctl

pytestmark = [pytest.mark.in_order]

NAME = "asked0"
ASKED = "SAN-DOC-05"


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    return xfs_bed


@pytest.fixture(scope="module", autouse=True)
def _site(bed: LabSession) -> Iterator[None]:
    with second_site.server(bed) as address:
        sanctl(bed, "n1", f"site add {SITE} --ssh {address} --path {PATH}")
        yield


@pytest.fixture(scope="module", autouse=True)
def _device(bed: LabSession) -> Iterator[None]:
    """A device whose hosts may make reservations: switched on afterwards, while none is there."""
    scenario = Scenario(bed, Initiator(bed, "i1"))
    scenario.create(NAME, "64M", prefer="n1")
    scenario.sanctl("device", "set", NAME, "--reservations", "on")
    yield
    scenario.delete(NAME)


def asked(bed: LabSession, node: str) -> list[tuple[str, str]]:
    """Return code and subject of what does not answer a node; print the rest."""
    done = bed.sh(node, "sanctl doctor --output json", ok=(0, 1), timeout_s=240)
    found = [
        each
        for each in json.loads(done.stdout)["data"]["findings"]
        if each["code"].startswith(ASKED)
    ]
    for each in found:
        print(f"  {node}: {each['code']} {each['subject']}: {each['what']}; do: {each['do']}")
    return [(each["code"], each["subject"]) for each in found]


@contextlib.contextmanager
def done_on(bed: LabSession, node: str, do: str, undo: str) -> Iterator[None]:
    bed.sh(node, do, timeout_s=60)
    try:
        yield
    finally:
        bed.sh(node, undo, timeout_s=60)


def test_all_answers(bed: LabSession) -> None:
    # A service that has just been started for the first device of its kind may not listen yet.
    wait_for("all to answer", lambda: not asked(bed, "n1") and not asked(bed, "n2"), within_s=120)
    # A witness makes no copies.
    assert asked(bed, "n3") == []


def test_a_key_that_one_node_lacks(bed: LabSession) -> None:
    with done_on(bed, "n2", f"mv {KEY} {KEY}.away", f"mv {KEY}.away {KEY}"):
        assert asked(bed, "n2") == [("SAN-DOC-050", f"site {SITE}")]
        assert asked(bed, "n1") == []


@pytest.mark.parametrize(
    ("do", "undo", "code"),
    [
        (
            "systemctl stop sanctl-points.socket",
            "systemctl start sanctl-points.socket",
            "SAN-DOC-052",
        ),
        # It refuses to be stopped by hand.
        (
            "systemctl kill -s STOP sanctl-reservations.service",
            "systemctl kill -s CONT sanctl-reservations.service",
            "SAN-DOC-053",
        ),
    ],
    ids=["socket", "reservations"],
)
def test_a_service_that_does_not_answer(bed: LabSession, do: str, undo: str, code: str) -> None:
    with done_on(bed, "n2", do, undo):
        assert asked(bed, "n1") == [(code, "node n2")]
        # Of its own it is said elsewhere.
        assert asked(bed, "n2") == []
    wait_for("both to answer", lambda: not asked(bed, "n1"), within_s=60)


def test_a_repository_that_one_node_does_not_get_into(bed: LabSession) -> None:
    made = (
        "umask 77; mkdir -p /etc/sanctl/backup; echo secret >/etc/sanctl/backup/nas.passphrase;"
        " printf 'schema = 1\\n[repositories.nas]\\nlocation = \"/mnt/nowhere\"\\n'"
        " >/etc/sanctl/backup.toml"
    )
    gone = "rm -f /etc/sanctl/backup.toml /etc/sanctl/backup/nas.passphrase"
    with done_on(bed, "n1", made, gone):
        assert asked(bed, "n1") == [("SAN-DOC-051", "repository nas")]
    assert asked(bed, "n1") == []
