# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl snapshot schedule` and `sanctl snapshot prune`."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from sanctl.ops.snapshot_schedule import change_schedule, prune_points, surplus_points
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.point_group import group_names

if TYPE_CHECKING:
    from sanctl.cli.documents import snapshot as snapshot_documents

_OFF = "off"


@click.command(short_help="Show or change when restore points are made by themselves.")
@click.argument("words", metavar="DEVICE... [RULES|off]", nargs=-1, required=True)
@click.option("--group", is_flag=True, help="Of several devices, at the same moments.")
@hook_options
@output_option
def schedule(
    words: tuple[str, ...],
    *,
    group: bool,
    hook: PointHook | None,
    output: str,
) -> None:
    """Show or change when restore points of DEVICE are made by themselves, and how many are kept.

    RULES such as '15m keep 8, 1h keep 24, 1d keep 7' make one every quarter of an hour, hour and
    day, in UTC, and keep the newest of each; units are m, h, d, w. The first is made at once. With
    off, none are made any more, and those that there are stay. Only what a schedule has made is
    ever removed by it. A schedule that is given without a hook has none. With --group the points of
    all devices are of one moment, all or none, where one node serves them; a hook is run once for
    all.
    """
    env = environment()
    wanted, rules = _split(words, group=group)
    found = None if rules is None else () if rules.strip() == _OFF else parse_rules(rules)
    if hook and not found:
        raise UsageError(
            Problem("SAN-HOOK-001", "a hook is given together with rules", "repeat the rules")
        )
    with env.session() as session:
        if found is None:
            cluster, changed = session.observe(), False
            existing_device(cluster, wanted[0])
        else:
            named = " ".join(device.value for device in wanted)
            command_line = (
                f"snapshot schedule {named} '{rules}'"
                + (" --group" if group else "")
                + (f" with {hook_text(hook)}" if hook else "")
            )
            with env.logged("snapshot", device=wanted[0].value, command_line=command_line):
                cluster, changed = change_schedule(
                    session, wanted, found, hook=hook, ipc_buffer_bytes=env.ipc_buffer_bytes()
                )
    now_s = env.clock.wall_s()
    data: list[snapshot_documents.ScheduleShown] = [
        {
            "device": device.value,
            "changed": changed,
            "schedule": schedule_data(cluster, device.value, now_s),
        }
        for device in wanted
    ]

    def text() -> None:
        for device in wanted:
            print(f"schedule of {device}: {schedule_text(cluster, device.value, now_s)}")

    finish(output, data=data if group else data[0], text=text)


def _split(words: tuple[str, ...], *, group: bool) -> tuple[list[DeviceName], str | None]:
    """Return the devices, and the rules; of a group the rules are always given.

    Raises:
        UsageError: these are no names of devices, or too few or too many.
    """
    if group:
        devices = [DeviceName.parse(word) for word in words[:-1]]
        group_names(devices)
        return devices, words[-1]
    if len(words) > 2:
        raise UsageError(
            Problem(
                "SAN-SNAP-016",
                "restore points of several devices are scheduled with --group: at one moment; "
                f"these are {len(words)} words",
                "quote the rules; or give one command for each device",
            )
        )
    return [DeviceName.parse(words[0])], words[1] if len(words) > 1 else None


@click.command()
@click.argument("device")
@click.option(
    "--dry-run", "is_dry_run", is_flag=True, help="Show which would go, and change nothing."
)
@output_option
def prune(*, device: str, is_dry_run: bool, output: str) -> None:
    """Remove now the restore points of DEVICE that its schedule no longer keeps.

    That is done after each point that the schedule makes. One that an operator has made stays.
    """
    env = environment()
    wanted = DeviceName.parse(device)
    with env.session() as session:
        if is_dry_run:
            names = surplus_points(session, wanted)
        else:
            command_line = f"snapshot prune {device}"
            with env.logged("snapshot", device=device, command_line=command_line):
                names = prune_points(session, wanted)

    def text() -> None:
        for name in names:
            print(
                f"restore point {wanted}@{name} {'would go' if is_dry_run else 'is being deleted'}"
            )
        if not names:
            print(f"the schedule of {wanted} keeps all restore points that it has made")

    finish(
        output,
        data={"device": wanted.value, "deleted": list(names), "dry_run": is_dry_run},
        text=text,
    )
