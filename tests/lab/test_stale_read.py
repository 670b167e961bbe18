# SPDX-License-Identifier: GPL-2.0-or-later
"""A node cut off from the cluster that a host still reaches: it returns no stale data.

The node that serves is cut off from the whole cluster, on sync and heartbeat; the iscsi network is
whole. All the while the host reads down the path to that node alone, past multipath, blocks that
the ledger writes again several times a second. Every read names the write that it saw, and is held
against what had been acknowledged before it was asked for.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import network_cuts
from sanctl.lab.machines.spec import Network
from sanctl.lab.measure import kernel_audit
from sanctl.lab.measure.ledger_writer import RecordKind
from sanctl.system.runner import LocalRunner
from tests.support import ledgers, path_reader
from tests.support.path_reader import BLOCK_BYTES, Read
from tests.support.steps import assert_no_error, await_writes, boot_id, dead_bmc

# A command on a node that goes down under it is given up, and its process not waited for.
pytestmark = [
    pytest.mark.faults,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAME = "stale0"
# Few, so that each of them is written and read again soon.
BLOCKS = 16
SOME = 20
# Longer than any request is held in these tests.
PATIENCE_S = 180
# For how long the path is to have given nothing before its node is let be fenced. That node ends
# itself when it has been without quorum for a minute.
QUIET_S = 10.0
NOTICE_S, TAKEOVER_S, BOOT_S, BACK_S = 60.0, 150.0, 180.0, 300.0
PROGRAM = "/usr/local/lib/sanctl-path-reader.py"
LOG = f"/var/tmp/{NAME}.reads"

Look = Callable[[], list[Read]]


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    target = scenario.create(NAME, "64M", prefer="n1")
    path = scenario.host.login(target, scenario.portals())
    patient(scenario, target)
    made = ledgers.start(scenario, NAME, target, path, rate=50, region_bytes=BLOCKS * BLOCK_BYTES)
    yield made
    ledgers.assert_nothing_lost(made, delete=True)


def patient(scenario: Scenario, target: str) -> None:
    """Let a request that hangs hang: one that ran out of time could cost the host the path."""
    for path in scenario.host.paths(target, scenario.portals()):
        scenario.host.sh(f"echo {PATIENCE_S} >/sys/block/{path}/device/timeout")


@contextlib.contextmanager
def reading(load: LedgerLoad, node: str) -> Iterator[Look]:
    """Have the host read down its path to a node; what is given returns the reads so far."""
    bed, host, unit = load.bed, load.host, f"reader-{load.device}"
    (path,) = host.paths(load.target, [bed.node(node).address(Network.ISCSI)])
    bed.sh(host.name, f"cat >{PROGRAM}", stdin=Path(path_reader.__file__).read_text())
    host.sh(
        f": >{LOG}; systemctl reset-failed {unit} 2>/dev/null;"
        f" systemd-run --quiet --collect --unit={unit} python3 {PROGRAM} /dev/{path} {LOG} {BLOCKS}"
    )
    try:
        yield lambda: path_reader.parse(bed.read_bytes(host.name, LOG).decode())
    finally:
        host.sh(f"systemctl stop {unit}", timeout_s=150, ok=range(256))


@contextlib.contextmanager
def cut_off(bed: LabSession, node: str) -> Iterator[None]:
    """Let a node and the rest of the cluster hear nothing of each other; hosts reach all of it."""
    others = [each.name for each in bed.cluster if each.name != node]
    cut = frozenset[network_cuts.Cut]().union(
        *(
            network_cuts.partition(network, [[node], others])
            for network in (Network.SYNC, Network.HEARTBEAT)
        )
    )
    network_cuts.change(bed.lab, LocalRunner(), add=cut)
    try:
        yield
    finally:
        network_cuts.change(bed.lab, LocalRunner(), remove=cut)


def now_ns(load: LedgerLoad) -> int:
    """What the clock says that the ledger and the reads go by."""
    return int(load.host.sh("python3 -c 'import time; print(time.monotonic_ns())'"))


def answered(reads: list[Read], since_ns: int = 0) -> list[Read]:
    """Those that got data, of the reads asked for since a time."""
    return [read for read in reads if read.asked_ns > since_ns and read.sequence is not None]


def refused(reads: list[Read], since_ns: int) -> list[Read]:
    """Those that have ended without data, of the reads asked for since a time."""
    return [
        read
        for read in reads
        if read.asked_ns > since_ns and read.ended_ns is not None and read.sequence is None
    ]


def denied(reads: list[Read], since_ns: int) -> list[Read]:
    """Those of them that the node itself refused, in words of SCSI."""
    return [read for read in refused(reads, since_ns) if path_reader.SENSE in read.why]


def await_quiet(load: LedgerLoad, look: Look) -> int:
    """Wait until the path has given nothing for a while; return when that was seen."""

    def seen_ns() -> int | None:
        now, last_ns = now_ns(load), answered(look())[-1].ended_ns
        return now if last_ns is not None and now - last_ns > QUIET_S * 1e9 else None

    return wait_for("the path to give no data", seen_ns, within_s=NOTICE_S, every_s=1.0)


def acknowledged(load: LedgerLoad) -> list[tuple[int, int, int]]:
    """The ledger's acknowledgements: block, sequence, time."""
    records = load.host.fetch_log(load.run)[1]
    return [(r.block, r.sequence, r.mono_ns) for r in records if r.kind is RecordKind.ACK]


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "is_late",
    [
        pytest.param(False, id="fenced", marks=pytest.mark.quick),
        pytest.param(True, id="fenced-late"),
    ],
)
def test_a_path_to_a_node_that_is_cut_off_gives_no_old_data(
    scenario: Scenario, load: LedgerLoad, is_late: bool
) -> None:
    """Fenced late it lives on for a while, without leave to serve, and is asked all the same."""
    bed = scenario.bed
    lost = collect.active_node(bed, NAME)
    survivor = load.peer_of(lost)
    wait_for("both in sync", lambda: collect.is_in_sync(bed, lost, NAME), within_s=BACK_S)
    boot, sessions, began_s = boot_id(bed, lost), load.sessions(), time.time()
    with reading(load, lost) as look:
        wait_for("data by that path", lambda: len(answered(look())) >= SOME, within_s=60)
        with contextlib.ExitStack() as until_mended:
            with dead_bmc(bed, lost) if is_late else contextlib.nullcontext():
                last_fresh = answered(look())[-1]
                until_mended.enter_context(cut_off(bed, lost))
                if is_late:
                    closed_ns = await_quiet(load, look)
                    assert boot_id(bed, lost) == boot, "it is fenced already: nothing is shown"
                    assert survivor not in kernel_audit.active_nodes(
                        collect.kernel_views(bed), NAME
                    )
            wait_for(
                f"{survivor} to serve",
                lambda: kernel_audit.active_nodes(collect.kernel_views(bed), NAME) == [survivor],
                within_s=TAKEOVER_S,
                every_s=1.0,
            )
            await_writes(load)
            taken_ns = now_ns(load)
            wait_for(
                "reads to be refused", lambda: len(refused(look(), taken_ns)) >= SOME, within_s=60
            )
            wait_for(
                f"{lost} to have booted",
                lambda: boot_id(bed, lost) != boot,
                within_s=BOOT_S,
                every_s=1.0,
            )
            # It has no quorum, and starts nothing; the host logs in again as soon as it may.
            booted_ns = now_ns(load)
            wait_for(
                "reads to be refused, still",
                lambda: len(refused(look(), booted_ns)) >= SOME,
                within_s=60,
            )
            assert answered(look(), closed_ns if is_late else taken_ns) == []
            assert collect.active_node(bed, NAME) == survivor
        wait_for(
            "both in sync",
            lambda: collect.is_in_sync(bed, survivor, NAME),
            within_s=BACK_S,
            every_s=1.0,
        )
        failover.await_healthy(bed, survivor)
        wait_for("all sessions", lambda: len(load.sessions()) == len(sessions), within_s=60)
        standby_ns = now_ns(load)
        wait_for(
            "the standby to refuse", lambda: len(denied(look(), standby_ns)) >= SOME, within_s=60
        )
        assert answered(look(), standby_ns) == []
        trial = failover.measure_move(load, lost)
        assert (trial.to_node, trial.pause.errors, trial.violations) == (lost, 0, ())
        moved_ns = now_ns(load)
        # The same path: what was refused was no fault of the host's.
        wait_for("data by that path", lambda: len(answered(look(), moved_ns)) >= SOME, within_s=60)
    reads, writes = look(), acknowledged(load)
    print(f"  {sorted({read.why for read in refused(reads, last_fresh.asked_ns)})}")
    print(f"  {len(answered(reads))} reads with data, {len(refused(reads, 0))} without")
    assert path_reader.stale(reads, writes) == []
    # The same data, had it been given later: it is known for what it is.
    assert path_reader.stale([last_fresh._replace(asked_ns=moved_ns)], writes) != []
    assert_no_error(load, began_s)
