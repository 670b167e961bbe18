# SPDX-License-Identifier: GPL-2.0-or-later
"""Program of sanctl-point@NAME.service: has all replicas of a device copied at one moment.

The order of its steps (2 to 5: `held_copies`), and what holds if the process, its node or another
node dies after each:

1. Each replica in sync prepares: room, extents, an empty file, a flush. Nothing is held yet.
2. systemd is told READY: from now on it kills this process after RuntimeMaxSec, and it resumes the
   gate whatever this process ends by (ExecStopPost). So the hold has an end also if everything
   but systemd is killed.
3. The child that will copy is there already, and waits (`local_copy`). The gate is suspended, and
   where the order is for several devices, those of all others are waited for (`group_barrier`).
   When that returns no I/O of hosts is in flight: each write that was acknowledged is on every
   replica that is UpToDate and connected (DRBD's protocol C), and none is begun.
4. Each replica is copied. Those of standbys see for themselves that they are in sync, and this
   node sees in the hold that DRBD on it thinks so, too.
5. The gate is still suspended, and DRBD has ended no write since step 3: nobody has opened it
   meanwhile (a demotion would, and the dead man's resume), nor opened and suspended it again. It is
   resumed. The copies are of one moment, or nothing is kept. The restore point has the size that
   hosts saw in the hold: what the CIB said before may be minutes old, and the device larger since.
6. Each copy is flushed to its disk.
7. One change of the CIB, which only holds for the order or the schedule that is still there, adds
   the restore point. From then on it exists; before, the pool agents remove what is left after a
   while.
8. Each copy gets its name; a pool agent does that where nobody else has.

With a hook the application is quiet from before step 2 until after step 5 (docs/adr/0070), kept so
by a unit of its own; the point is application-consistent if that unit runs still after the copies.
Where the order is for several devices, the first one's process has the hook run, from when all are
prepared until all are copied (docs/adr/0074).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator

from sanctl.agents import cluster_toml, ocf
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.points import held_copies, hook_unit, replica_states, scheduled, unit
from sanctl.agents.points.group_barrier import GroupBarrier, GroupFailed
from sanctl.agents.points.hook_unit import Quiet
from sanctl.agents.points.local_copy import LocalCopy
from sanctl.agents.points.systemd_notice import notify
from sanctl.drivers import gate, lio, node_attributes, node_channel
from sanctl.drivers.node_channel import Channel
from sanctl.drivers.node_facts import NodeFacts
from sanctl.drivers.pacemaker import Pacemaker
from sanctl.errors import CommandError, Problem, Refused, SanctlError
from sanctl.model.cib_change import Change, SetPoint
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName
from sanctl.model.point_schedule import ScheduledSlot
from sanctl.model.restore_point import FAILED_PREFIX, PointFailure, PointOrder, RestorePoint
from sanctl.ops.cib_room import within_room
from sanctl.ops.session import Session
from sanctl.plan.cluster.cib_size import DEFAULT_IPC_BUFFER_BYTES, point_of_order
from sanctl.plan.device.point_group import plan_group_recorded
from sanctl.plan.device.point_schedule import plan_pruning
from sanctl.plan.device.restore_points import due_order, plan_point_recorded
from sanctl.plan.device.scheduled_group import due_points, plan_scheduled_points
from sanctl.system import state_files
from sanctl.system.clock import SystemClock
from sanctl.system.files import read_text_or
from sanctl.system.runner import LocalRunner

_CONNECT_S, _PREPARE_S, _SETTLE_S, _FLUSH_S = 5.0, 45.0, 10.0, 30.0
#: With these no change of the CIB was made: the point is none, and will be none.
_NOT_RECORDED = frozenset({"SAN-SNAP-006", "SAN-SCHED-004"})
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_RUNNER = LocalRunner()
_log = DeviceLog("snapshot")


class _Silent:
    def update(self, text: str) -> None:
        """Nobody watches."""


def main() -> int:
    """Carry out the device's order or schedule, if one is due; return the exit status."""
    state_files.make_folder()
    try:
        _main(sys.argv[1])
    finally:
        # Where nothing was held systemd has not heard it yet, and would call that a failure.
        with contextlib.suppress(CommandError, OSError):
            notify("READY=1")
    return 0


def _main(name: str) -> None:
    session = Session(Pacemaker(_RUNNER), SystemClock(), _Silent())
    cluster = session.observe()
    due = due_order(cluster, name, time.time())
    if due is None or unit.tried_note(name).read() == due[1].token:
        _keep_schedule(session, cluster, name)
        return
    device, order = due
    if device.is_restoring and lio.access(name):
        # Hosts are let in still: the pool agent has started this for a schedule. What the restore
        # keeps is what hosts have written last: a monitor starts this again once they are out.
        return
    unit.tried_note(name).write(order.token)

    def record(seen: Cluster, points: tuple[RestorePoint, ...]) -> tuple[Change, ...]:
        if order.group:
            return plan_group_recorded(seen, points, order)
        return plan_point_recorded(seen, points[0], order)

    try:
        _carry_out(session, device, order, record)
    except (SanctlError, OSError) as error:
        _publish_failure(name, order.token, f"restore point {order.name}", error)


def _keep_schedule(session: Session, cluster: Cluster, name: str) -> None:
    """Make the restore point that the device's schedule has due, and remove those beyond it."""
    schedule = cluster.cib.schedules.get(name)
    if schedule is None or scheduled.has_attempted(name, schedule):
        return
    token, now_s = _new_token(name), time.time()
    buffer_bytes = NodeFacts(_RUNNER).ipc_buffer_bytes() or DEFAULT_IPC_BUFFER_BYTES

    def record(seen: Cluster, points: tuple[RestorePoint, ...]) -> tuple[Change, ...]:
        return plan_scheduled_points(seen, points, time.time())

    try:
        found = due_points(cluster, name, token, now_s, _seed())
        if not found:
            return
        scheduled.note_attempt(name, schedule, now_s)
        # Nothing is held for points that the CIB has no room for.
        expected = tuple(
            SetPoint(point=point_of_order(each.device, each.order)._replace(slot=each.slot))
            for each in found
        )
        within_room(session, lambda _: expected, buffer_bytes)(cluster)
        _carry_out(session, found[0].device, found[0].order, record, found[0].slot)
    except (SanctlError, OSError) as error:
        # Where that was not reached. Of the time at which it began: an attempt may take until the
        # next one, which has one of its own.
        scheduled.note_attempt(name, schedule, now_s)
        _publish_failure(name, token, "restore point by schedule", error)
    # Also after a failure: what goes follows from the points that there are.
    try:
        session.change(lambda seen: plan_pruning(seen, DeviceName.parse(name), time.time()))
    except (SanctlError, OSError) as error:
        _log(name, f"restore points that the schedule does not keep are not removed: {error}")


def _seed() -> str:
    """Return what the processes of this node have alike until it boots, and no other node's."""
    return f"{os.uname().nodename} {read_text_or(_BOOT_ID, '').strip()}"


def _new_token(name: str) -> str:
    """Return a token for an attempt of this node's own (sanctl/cli/environment.py, new_uuid)."""
    seed = f"{os.uname().nodename} {os.getpid()} {time.time_ns()} {time.monotonic_ns()} {name}"
    return hashlib.sha256(os.urandom(32) + seed.encode()).hexdigest()[:16]


def _publish_failure(name: str, token: str, what: str, error: SanctlError | OSError) -> None:
    failure = PointFailure.of(token, error)
    _log(name, f"{what}: {failure.code}: {failure.text}")
    with contextlib.suppress(SanctlError, OSError):
        node_attributes.publish(_RUNNER, f"{FAILED_PREFIX}{name}", str(failure))


def _carry_out(
    session: Session,
    device: DeviceSpec,
    order: PointOrder,
    record: Callable[[Cluster, tuple[RestorePoint, ...]], tuple[Change, ...]],
    slot: ScheduledSlot | None = None,
) -> None:
    barrier = GroupBarrier(device.name.value, order)
    try:
        _make_point(session, device, order, record, barrier, slot=slot)
    except (SanctlError, OSError) as error:
        barrier.fail(error)
        raise


def _make_point(
    session: Session,
    device: DeviceSpec,
    order: PointOrder,
    record: Callable[[Cluster, tuple[RestorePoint, ...]], tuple[Change, ...]],
    barrier: GroupBarrier,
    *,
    slot: ScheduledSlot | None,
) -> None:
    name = device.name.value
    quiet = Quiet(_RUNNER, name, barrier.own_order)
    if order.hook:
        # systemd waits for READY, which comes later by what the hook of a point before may take.
        notify(f"EXTEND_TIMEOUT_USEC={round((hook_unit.LONGEST_CHECK_S + 90.0) * 1e6)}")
    barrier.check_hook(quiet.check)
    # Not before: that may take minutes, and a standby in sync may be none afterwards.
    standbys = _standbys(device)
    # A file of many extents is copied ahead: as long as systemd waits for READY (copied_ahead.py).
    notify("EXTEND_TIMEOUT_USEC=180000000")
    with (
        LocalCopy(device.pool.value, name, device.uuid, order.token) as copy,
        _channels(standbys) as channels,
    ):
        for channel in channels.values():
            channel.send(
                "prepare",
                device=name,
                minor=device.minor,
                uuid=device.uuid,
                pool=device.pool.value,
                token=order.token,
                hook_s=hook_unit.longest_begin_s(order),
            )
        extents = [_prepare(copy)]
        extents += [
            channel.receive("ready", within_s=_PREPARE_S)["extents"]
            for channel in channels.values()
        ]
        ocf.crash_point("point-prepared")
        # systemd waits for READY, which comes later by what the hook may take, and the others.
        extension_s = (hook_unit.longest_begin_s(order) if order.hook else 0.0) + 120.0
        notify(f"EXTEND_TIMEOUT_USEC={round(extension_s * 1e6)}")
        barrier.await_prepared()
        with quiet:
            if order.hook:
                barrier.begin_hook(quiet.begin)
            _settle(copy, channels, barrier)
            if order.hook:
                quiet.check_time_left()
            ocf.crash_point("point-quiet")
            held = held_copies.make(device, copy, channels, barrier)
            barrier.await_copied()
            quiet.check_was_quiet()
        made_s = int(time.time())
        ocf.crash_point("point-copied")
        for channel in channels.values():
            channel.send("flush")
        copy.make_stable()
        for channel in channels.values():
            channel.receive("flushed", within_s=_FLUSH_S)
        ocf.crash_point("point-flushed")
        result = quiet.result()
        point = RestorePoint(
            device=name,
            name=order.name,
            token=order.token,
            uuid=device.uuid,
            pool=device.pool.value,
            made_s=made_s,
            size_bytes=held.size_bytes,
            pause_ms=round(held.pause_s * 1000),
            nodes=tuple(sorted({os.uname().nodename, *channels})),
            slot=slot,
            hook=result,
        )
        copy.may_be_known = True
        try:
            # The other nodes wait for it.
            barrier.record(
                point,
                lambda points: session.change(lambda seen: record(seen, points), can_wait=False),
            )
        except (CommandError, Refused) as error:
            if isinstance(error, Refused | GroupFailed) or error.problems[0].code in _NOT_RECORDED:
                copy.may_be_known = False
                barrier.is_undone = True
                for channel in channels.values():
                    channel.send("drop")
            # Otherwise it is not known whether the CIB has it: the pool agents find out.
            raise
        ocf.crash_point("point-recorded")
        copy.keep()
        for channel in channels.values():
            with contextlib.suppress(SanctlError, OSError):
                channel.send("keep")
        for channel in channels.values():
            with contextlib.suppress(SanctlError, OSError):
                channel.receive("kept", within_s=_FLUSH_S)
    kind = "application" if point.is_application_consistent else "crash"
    _log(
        name,
        f"restore point {order.name} on {', '.join(point.nodes)}: I/O waited for "
        f"{point.pause_ms} ms, {max(extents)} extents"
        + (f", {kind}-consistent, {result}" if result else ""),
    )


def _settle(copy: LocalCopy, channels: dict[str, Channel], barrier: GroupBarrier) -> None:
    """Have what hosts wrote since all were prepared flushed, and copied ahead, everywhere."""
    for channel in channels.values():
        channel.send("settle")
    copy.catch_up(within_s=_SETTLE_S / 2)
    for channel in channels.values():
        channel.receive("settled", within_s=_SETTLE_S)
    barrier.await_settled()


def _prepare(copy: LocalCopy) -> int:
    try:
        return copy.prepare()
    except CommandError as error:
        # As a peer's problems are named.
        first, node = error.problems[0], os.uname().nodename
        raise CommandError(Problem(first.code, f"{node}: {first.text}", first.hint)) from error


def _standbys(device: DeviceSpec) -> tuple[str, ...]:
    """Return the nodes whose replicas are in sync, as the active node sees them.

    Raises:
        CommandError: this node does not serve the device from a good disk of its own.
    """
    name = device.name.value
    found = replica_states.standbys(device)
    if not gate.gate_table(name).startswith("drbd") or gate.is_suspended(name):
        raise CommandError(
            Problem(
                "SAN-SNAP-005",
                f"{os.uname().nodename} does not serve {name} at the moment",
                "'sanctl status' shows why; try again when it does",
            )
        )
    return found


@contextlib.contextmanager
def _channels(nodes: tuple[str, ...]) -> Iterator[dict[str, Channel]]:
    topology = cluster_toml.load_topology()
    own = topology.node(os.uname().nodename)
    with contextlib.ExitStack() as opened:
        channels = {}
        for name in nodes:
            node = topology.node(name)
            if node is None or own is None:
                raise CommandError(Problem("SAN-AGENT-001", f"{name} is not in cluster.toml"))
            channel = node_channel.connect(str(node.sync), name, str(own.sync), within_s=_CONNECT_S)
            opened.callback(channel.close)
            channels[name] = channel
        for channel in channels.values():
            channel.greet(within_s=_CONNECT_S * 2)
        yield channels
