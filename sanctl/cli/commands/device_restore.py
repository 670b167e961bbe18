# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl device restore`: the point, what is kept, the question."""

from __future__ import annotations

import time

import click

from sanctl.cli.environment import Environment, environment, topology_or_none
from sanctl.cli.options import accept_option, output_option, timeout_option, yes_option
from sanctl.cli.output import finish
from sanctl.cli.views.device import device_data
from sanctl.cli.views.restore import kept_point
from sanctl.model.device_restore import KEPT_PREFIX
from sanctl.model.names import DeviceName
from sanctl.model.restore_point import PointOrder, parse_point_name
from sanctl.ops.device_restore import cancel_restore, check_restore, restore_device
from sanctl.plan.device.restore_request import STILL_MOUNTED, RestoreRequest


@click.command(short_help="Put a device back to a restore point.")
@click.argument("name")
@click.option("--to", "point", metavar="POINT", help="The restore point to go back to.")
@click.option(
    "--cancel",
    "is_cancelled",
    is_flag=True,
    help="Withdraw a restore or failback of which nothing is written yet.",
)
@click.option(
    "--no-keep",
    is_flag=True,
    help="Make no restore point of what is on the device now: it is lost.",
)
@yes_option
@accept_option
@timeout_option(3600)
@output_option
def restore(
    *,
    name: str,
    point: str | None,
    is_cancelled: bool,
    no_keep: bool,
    yes: bool,
    accepted: tuple[str, ...],
    timeout_s: float,
    output: str,
) -> None:
    """Put a device back to what it held when a restore point of it was made, on all replicas.

    No host may be logged in, and none is let in before the end. What is on the device now becomes
    a restore point first, so that the way back is the same command. Whatever dies meanwhile, it
    goes on; run again, the command waits for it. With --cancel a restore, also a failback from a
    second site, ends before anything is written, and hosts are let in again; of a device that was
    held (replicate failback --hold) none is.
    """
    env = environment()
    wanted = DeviceName.parse(name)
    if is_cancelled == (point is not None) or (is_cancelled and no_keep):
        raise click.UsageError("Give either '--to POINT' or '--cancel'.")
    if point is None:
        _cancel(env, wanted, timeout_s=timeout_s, output=output)
        return
    goal = parse_point_name(point)
    now_s = int(env.clock.wall_s())
    kept_name = KEPT_PREFIX + time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_s))
    request = RestoreRequest(
        device=wanted,
        point=goal,
        token=env.new_uuid()[-16:],
        kept=None if no_keep else PointOrder(kept_name, env.new_uuid()[-16:], now_s),
        accepted=accepted,
    )
    command_line = f"device restore {name} --to {point}{' --no-keep' if no_keep else ''}"
    with env.session() as session:
        request, is_under_way, is_lost = check_restore(session, request)
        if not yes and not is_under_way:
            kept = "is lost" if is_lost else f"is kept as {wanted}@{kept_name}"
            click.echo(
                f"device {wanted}: what is on it now {kept}, and what it held at restore point "
                f"{goal} comes back. No host is let in meanwhile; {STILL_MOUNTED}.",
                err=True,
            )
            click.confirm(f"Restore device {wanted}?", abort=True, err=True)
        with env.logged("restore", device=name, command_line=command_line):
            outcome = restore_device(
                session,
                request,
                ipc_buffer_bytes=env.ipc_buffer_bytes(),
                timeout_s=timeout_s,
            )
    kept_name_or_none = kept_point(outcome.cluster, outcome.device)

    def text() -> None:
        print(f"device {wanted} is back at restore point {goal}, after {outcome.duration_s:.1f} s")
        print(STILL_MOUNTED)
        if kept_name_or_none is not None:
            print(
                "what it held before is kept: 'sanctl device restore "
                f"{wanted} --to {kept_name_or_none}'"
            )

    finish(
        output,
        data={
            "changed": outcome.changed,
            "duration_s": round(outcome.duration_s, 3),
            "kept": kept_name_or_none,
            **device_data(outcome.cluster, outcome.device, topology_or_none(env)),
        },
        text=text,
    )


def _cancel(env: Environment, name: DeviceName, *, timeout_s: float, output: str) -> None:
    """Withdraw the restore of a device, and say what is left of it."""
    with (
        env.session() as session,
        env.logged("restore", device=name.value, command_line=f"device restore {name} --cancel"),
    ):
        outcome = cancel_restore(session, name, timeout_s=timeout_s)
    kept = kept_point(outcome.cluster, outcome.device) if outcome.changed else None

    def text() -> None:
        if not outcome.changed:
            print(f"device {name}: no restore is under way")
            return
        is_held = outcome.device.is_restoring
        then = "it is held as before" if is_held else "hosts are let in"
        print(f"device {name}: the restore is withdrawn; nothing was written, {then}")
        if is_held:
            return
        if kept is not None:
            print(f"what was kept for it is there: 'sanctl snapshot delete {name}@{kept}'")

    finish(
        output,
        data={
            "changed": outcome.changed,
            "duration_s": round(outcome.duration_s, 3),
            "kept": kept,
            **device_data(outcome.cluster, outcome.device, topology_or_none(env)),
        },
        text=text,
    )
