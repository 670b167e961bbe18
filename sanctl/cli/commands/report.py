# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl report rpo`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sanctl.cli.environment import Environment, environment
from sanctl.cli.options import output_option
from sanctl.cli.output import finish, print_table
from sanctl.cli.views.site import utc
from sanctl.config import backups as backup_toml
from sanctl.drivers.borg import Borg
from sanctl.errors import CommandError, ExitStatus, Problem
from sanctl.model.backup import Backup
from sanctl.model.point_schedule import parse_rules
from sanctl.plan.site.rpo import DeviceLoss, losses
from sanctl.system.files import read_text

if TYPE_CHECKING:
    from sanctl.cli.documents import report as report_documents


@click.group(no_args_is_help=False)
def report() -> None:
    """Reports on what the cluster has done."""


@report.command()
@click.option(
    "--within",
    metavar="15m",
    help="The oldest that the newest copy or backup of a device may be: m, h, d, w.",
)
@click.option(
    "--no-backups", is_flag=True, help="Read no repository: copies at second sites alone count."
)
@output_option
def rpo(within: str | None, *, no_backups: bool, output: str) -> None:
    """Show how old what is elsewhere of each device is; exit status 1: older than it may be.

    Copies at second sites count once they are proven, backups once they are whole. A repository
    that cannot be read counts as empty, and is named. Without --within only schedules of copies
    say how old one may be.
    """
    env = environment()
    within_s = parse_rules(f"{within} keep 1")[0].every_s if within is not None else None
    with env.session() as session:
        cluster = session.observe()
    found, unread = ({}, {}) if no_backups else _backups(env)
    now_s = env.clock.wall_s()
    rows = losses(cluster, found, within_s=within_s, now_s=now_s)

    def text() -> None:
        for repository, problem in unread.items():
            click.echo(f"repository {repository} is not counted: {problem}", err=True)
        print_table(
            ("DEVICE", "WOULD BE LOST", "MET", "WHERE", "NEWEST", "AGE", "EVERY"),
            (row for each in rows for row in _rows(each, now_s)),
        )

    data: report_documents.Rpo = {
        "within_s": within_s,
        "unread": sorted(unread),
        "devices": [_data(each, now_s) for each in rows],
    }
    finish(
        output,
        data=data,
        text=text,
        status=ExitStatus.OK if all(each.is_met for each in rows) else ExitStatus.DEGRADED,
        problems=unread.values(),
    )


def _backups(env: Environment) -> tuple[dict[str, tuple[Backup, ...]], dict[str, Problem]]:
    """Return the backups by repository that this node knows, and why others cannot be read."""
    try:
        repositories = backup_toml.parse(read_text(backup_toml.BACKUP_TOML))
    except FileNotFoundError:
        return {}, {}
    found, unread = {}, {}
    for each in repositories:
        try:
            found[each.name] = Borg(env.runner, each).backups()
        except CommandError as error:
            unread[each.name] = error.problems[0]
    return found, unread


def _rows(loss: DeviceLoss, now_s: float) -> list[tuple[str, ...]]:
    lost = "all" if loss.lost_s is None else f"the last {age_text(loss.lost_s)}"
    rows = []
    for each in loss.elsewhere:
        age_s = each.age_s(now_s)
        rows.append(
            (
                f"{each.kind} {each.place}",
                each.name or "none",
                "-" if age_s is None else age_text(age_s) + (", late" if each.is_late else ""),
                "-" if each.every_s is None else age_text(each.every_s),
            )
        )
    head = (loss.device, lost, "yes" if loss.is_met else "no")
    first = rows[0] if rows else ("nowhere", "none", "-", "-")
    return [(*head, *first), *(("", "", "", *row) for row in rows[1:])]


def age_text(seconds: int) -> str:
    """Return a duration for people, such as 2d 3:04:05."""
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}d {clock}" if days else clock


def _data(loss: DeviceLoss, now_s: float) -> report_documents.DeviceLoss:
    return {
        "device": loss.device,
        "lost_s": loss.lost_s,
        "met": loss.is_met,
        "elsewhere": [
            {
                "kind": each.kind,
                "place": each.place,
                "name": each.name or None,
                "made": utc(each.made_s) if each.made_s is not None else None,
                "age_s": each.age_s(now_s),
                "every_s": each.every_s,
                "late": each.is_late,
            }
            for each in loss.elsewhere
        ],
    }
