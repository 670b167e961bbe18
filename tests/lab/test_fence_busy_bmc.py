# SPDX-License-Identifier: GPL-2.0-or-later
"""A node is fenced while its BMC is asked how it is, and takes its time over the answer.

Pacemaker carries out one action of a fencing device at a time. An order to fence waits for the
monitor, and its time does not begin before: it could be carried out after the cluster has given it
up, on a node that is back by then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.lab_session import LabSession, wait_for

pytestmark = pytest.mark.faults

LOST, SURVIVOR = "n2", "n1"
DEVICE = f"fence-{LOST}"
AGENT = "/usr/sbin/fence_ipmilan"
FOLDER = "/var/tmp/slow-bmc"
# Longer than Pacemaker lets a monitor of it take (pcmk_monitor_timeout).
SLOW_S = 60
# It takes its time over an order, too, so that one which waits for a monitor of 30 s is late.
SWITCH_S = 12
# The first monitor alone is slow: of two in a row an order would wait for both. Options come on
# standard input. All devices of the node have the same agent.
SLOW_AGENT = f"""\
#!/bin/sh
given=$(cat)
case "$given" in
*ip={{address}}*) ;;
*) printf '%s\\n' "$given" | {FOLDER}/fence_ipmilan "$@"; exit ;;
esac
case "$given" in
*action=monitor*)
    if ! test -e {FOLDER}/monitor; then
        echo $$ >{FOLDER}/monitor
        sleep {SLOW_S}
    fi
    ;;
*action=reboot*)
    echo order >>{FOLDER}/orders
    sleep {SWITCH_S}
    ;;
esac
printf '%s\\n' "$given" | {FOLDER}/fence_ipmilan "$@"
"""
NOTICE_DEADLINE_S = 120.0
BACK_DEADLINE_S = 240.0


@contextlib.contextmanager
def slow_bmc(bed: LabSession) -> Iterator[str]:
    """Have the BMC of the node that is to be lost be slow; yield the node that fences it."""
    found = bed.sh(SURVIVOR, f"crm_resource --resource {DEVICE} --locate --quiet").stdout.split()
    (node,) = found
    assert node != LOST
    bed.sh(
        node,
        f"mkdir -p {FOLDER}; cp {AGENT} {FOLDER}/fence_ipmilan; cat >{FOLDER}/slow;"
        f" chmod 755 {FOLDER}/slow; mount --bind {FOLDER}/slow {AGENT}",
        stdin=SLOW_AGENT.replace("{address}", bed.node(LOST).bmc_address),
    )
    try:
        yield node
    finally:
        # One that still sleeps has it open.
        bed.sh(node, f"umount --lazy {AGENT}; pkill -P $(cat {FOLDER}/monitor); rm -r {FOLDER}")
        # The monitor that was slow has failed.
        bed.sh(node, f"crm_resource --cleanup --resource {DEVICE}", ok=range(256))


def test_a_node_is_fenced_while_its_bmc_is_slow_to_answer(bed: LabSession) -> None:
    with contextlib.ExitStack() as slow:
        fencer = slow.enter_context(slow_bmc(bed))

        def is_asked() -> bool:
            return bed.sh(fencer, f"kill -0 $(cat {FOLDER}/monitor)", ok=range(256)).status == 0

        began_s = bed.cut_power(LOST)
        slow.enter_context(bed.stream(fencer, f"stonith_admin --query {DEVICE} --timeout {SLOW_S}"))
        wait_for("a monitor of the BMC", is_asked, within_s=30)
        wait_for(f"{LOST} to have power", lambda: bed.has_power(LOST), within_s=NOTICE_DEADLINE_S)
        orders = bed.sh(fencer, f"cat {FOLDER}/orders").stdout.split()
    assert len(orders) == 1
    wait_for(
        f"{LOST} to be back",
        lambda: "true" in bed.sh(LOST, "crm_node --quorum; echo true", ok=range(256)).stdout,
        within_s=BACK_DEADLINE_S,
    )
    failover.await_healthy(bed, SURVIVOR)
    said = collect.journals(bed, [node.name for node in bed.cluster], began_s)
    late = [e.message for e in said if "arrived too late" in e.message or "timed out" in e.message]
    # The monitor has, which its own line says.
    assert [line for line in late if "reboot" in line] == []
