# SPDX-License-Identifier: GPL-2.0-or-later
"""The quorum device answers clients with a certificate alone, whatever else a client asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.machines import rollout
from sanctl.lab.machines.spec import LabSpec, Witness
from tests.support.laboratory import own_or_new_laboratory

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

VOTE = "q1"


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    """Two nodes and a quorum device."""
    yield from own_or_new_laboratory(
        request,
        LabSpec(name="testqnetd", nodes=2, witness=Witness.QNETD),
        fits=lambda own: own.witness_kind is Witness.QNETD,
    )


def clients(bed: LabSession) -> dict[str, str]:
    """Return what qnetd says of the TLS of each node that is connected, by the node's id."""
    text = bed.sh(VOTE, "corosync-qnetd-tool -lv").stdout
    parts = re.split(r"^\s*Node ID (\d+):", text, flags=re.MULTILINE)[1:]
    return {
        number: "".join(re.findall(r"TLS active:\s*(.*)", part))
        for number, part in zip(parts[::2], parts[1::2], strict=True)
    }


@contextmanager
def asks_without_tls(bed: LabSession, node: str) -> Iterator[None]:
    """Have a node's corosync-qdevice connect without TLS."""
    text = "corosync-cmapctl -s quorum.device.net.tls str {} && systemctl restart corosync-qdevice"
    bed.sh(node, text.format("off"), ok=range(256), timeout_s=60)
    try:
        yield
    finally:
        bed.sh(node, text.format("required") + "; systemctl start corosync-qdevice", timeout_s=60)


def test_both_nodes_are_known_by_their_certificates(bed: LabSession) -> None:
    wait_for("both nodes", lambda: len(clients(bed)) == 2, within_s=60, every_s=1.0)
    assert {text.partition(" ")[0] for text in clients(bed).values()} == {"Yes"}


def test_a_client_without_tls_is_refused(bed: LabSession) -> None:
    before = bed.sh("n1", "corosync-quorumtool -s").stdout
    assert "Quorate Qdevice" in before
    with asks_without_tls(bed, "n2"):
        refusal = wait_for(
            "n2 to be refused, or let in",
            lambda: (
                "let in" if "2" in clients(bed)
                else bed.sh("n2", "journalctl -q -b -u corosync-qdevice -o cat"
                                  " | grep -i 'tls' | tail -1", ok=(0, 1)).stdout.strip()
            ),
            within_s=60,
            every_s=1.0,
        )  # fmt: skip
        assert refusal != "let in"
        assert "2" not in clients(bed), refusal
        # The other node has the vote, and does not notice.
        assert "Quorate Qdevice" in bed.sh("n1", "corosync-quorumtool -s").stdout
    wait_for("n2 again", lambda: len(clients(bed)) == 2, within_s=60, every_s=1.0)


def test_a_second_run_restarts_nothing(bed: LabSession) -> None:
    pid = "systemctl show -p MainPID --value corosync-qnetd"
    before = bed.sh(VOTE, pid).stdout
    assert rollout.run(bed.lab) == 0
    assert bed.sh(VOTE, pid).stdout == before
