# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl snapshot schedule` and `sanctl snapshot prune`."""

from __future__ import annotations

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import hook_options, output_option
from sanctl.cli.output import finish
from sanctl.cli.views.point_hook import hook_text
from sanctl.cli.views.point_schedule import schedule_data, schedule_text
from sanctl.errors import Problem, UsageError
from sanctl.model.names import DeviceName
from sanctl.model.point_hook import PointHook
from sanctl.model.point_schedule import parse_rules
from sanctl.ops.snapshot_schedule import change_schedule, prune_points
from sanctl.plan.cluster.preconditions import existing_device

_OFF = "off"


@click.command(short_help="Show or change when restore points are made by themselves.")
@click.argument("device")
@click.argument("rules", metavar="[RULES|off]", required=False)
@hook_options
@output_option
def schedule(
    device: str,
    rules: str | None,
    hook: PointHook | None,
    output: str,
) -> None:
    """Show or change when restore points of DEVICE are made by themselves, and how many are kept.

    RULES such as '15m keep 8, 1h keep 24, 1d keep 7' make one every quarter of an hour, hour and
    day, in UTC, and keep the newest of each; units are m, h, d, w. The first is made at once. With
    off, none are made any more, and those that there are stay. Only what a schedule has made is
    ever removed by it. A schedule that is given without a hook has none.
    """
    env = environment()
    wanted = DeviceName.parse(device)
    found = None if rules is None else () if rules.strip() == _OFF else parse_rules(rules)
    if hook and not found:
        raise UsageError(
            Problem("SAN-HOOK-001", "a hook is given together with rules", "repeat the rules")
        )
    with env.session() as session:
        if found is None:
            cluster, changed = session.observe(), False
            existing_device(cluster, wanted)
        else:
            command_line = f"snapshot schedule {device} '{rules}'" + (
                f" with {hook_text(hook)}" if hook else ""
            )
            with env.logged("snapshot", device=device, command_line=command_line):
                cluster, changed = change_schedule(
                    session, wanted, found, hook=hook, ipc_buffer_bytes=env.ipc_buffer_bytes()
                )
    now_s = env.clock.wall_s()
    data = schedule_data(cluster, wanted.value, now_s)

    def text() -> None:
        print(f"schedule of {wanted}: {schedule_text(cluster, wanted.value, now_s)}")

    finish(
        output,
        data={"device": wanted.value, "changed": changed, "schedule": data},
        text=text,
    )


@click.command()
@click.argument("device")
@output_option
def prune(device: str, output: str) -> None:
    """Remove now the restore points of DEVICE that its schedule no longer keeps.

    That is done after each point that the schedule makes. One that an operator has made stays.
    """
    env = environment()
    wanted = DeviceName.parse(device)
    with (
        env.session() as session,
        env.logged("snapshot", device=device, command_line=f"snapshot prune {device}"),
    ):
        names = prune_points(session, wanted)

    def text() -> None:
        for name in names:
            print(f"restore point {wanted}@{name} is being deleted")
        if not names:
            print(f"the schedule of {wanted} keeps all restore points that it has made")

    finish(output, data={"device": wanted.value, "deleted": list(names)}, text=text)
