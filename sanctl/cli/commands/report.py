# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl report rpo`."""

from __future__ import annotations

import click

from sanctl.cli.environment import Environment, environment
from sanctl.cli.output import finish, print_table
from sanctl.cli.views.rpo import RpoReport, restore_rows, rpo_data, table_rows
from sanctl.cli.views.rpo_page import rpo_page
from sanctl.config import backups as backup_toml
from sanctl.drivers.borg import Borg
from sanctl.errors import CommandError, ExitStatus, Problem, SanctlError
from sanctl.model.backup import Backup
from sanctl.model.cluster import Cluster
from sanctl.model.point_schedule import parse_rules
from sanctl.ops.session import Session
from sanctl.ops.site_restore import list_copies
from sanctl.plan.site.lost_copies import noted_at
from sanctl.plan.site.restored import other_restores
from sanctl.plan.site.rpo import SiteAnswer, losses
from sanctl.system.files import read_text


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
@click.option(
    "--no-sites", is_flag=True, help="Ask no site: the worst of the kept copies is not shown."
)
@click.option(
    "--output",
    type=click.Choice(["text", "json", "html"]),
    default="text",
    show_default=True,
    help="Form of the result; html: one page with charts.",
)
def rpo(within: str | None, *, no_backups: bool, no_sites: bool, output: str) -> None:
    """Show how old what is elsewhere of each device is; exit status 1: older than it may be.

    Copies at second sites count once they are proven, backups once they are whole. A repository
    that cannot be read counts as empty, and is named. Without --within only schedules of copies
    say how old one may be.

    Sites are asked which copies they keep: how old the newest one was at most. Where one lacks what
    was proven there last, it is named, the newest that it has counts, and the exit status is 1. And
    how long the last restore from a copy took here (replicate restore, failback).
    """
    env = environment()
    within_s = parse_rules(f"{within} keep 1")[0].every_s if within is not None else None
    with env.session() as session:
        cluster = session.observe()
        kept, silent = ({}, {}) if no_sites else _kept(env, session, cluster)
        # What a run has noted meanwhile the site may not have had yet.
        cluster = session.observe()
    found, unread = ({}, {}) if no_backups else _backups(env)
    now_s = env.clock.wall_s()
    made = RpoReport(
        cluster.cib.properties.get("cluster-name", ""),
        now_s,
        within_s,
        losses(cluster, found, kept, within_s=within_s, now_s=now_s),
        other_restores(cluster),
        unread,
        silent,
    )

    def text() -> None:
        for gap in made.gaps:
            click.echo(gap, err=True)
        if output == "html":
            click.echo(rpo_page(made))
            return
        print_table(
            ("DEVICE", "WOULD BE LOST", "MET", "WHERE", "NEWEST", "AGE", "EVERY", "WORST KEPT"),
            table_rows(made),
        )
        print()
        print_table(("COPIED DEVICE", "LAST RESTORE", "FROM"), restore_rows(made))

    is_met = all(each.is_met is not False for each in made.devices) and not made.missing
    finish(
        output,
        data=rpo_data(made),
        text=text,
        status=ExitStatus.OK if is_met else ExitStatus.DEGRADED,
        problems=[*unread.values(), *silent.values(), *made.missing, *made.unclear],
    )


def _kept(
    env: Environment, session: Session, cluster: Cluster
) -> tuple[dict[str, SiteAnswer], dict[str, Problem]]:
    """Return what the sites have that devices are copied to, and why others do not say."""
    found: dict[str, SiteAnswer] = {}
    silent: dict[str, Problem] = {}
    for name in sorted({each.site for each in cluster.cib.copies}):
        try:
            _, folders, unread = list_copies(session, name, env.site_link)
            found[name] = SiteAnswer(folders, unread, noted_at(cluster, name))
        except SanctlError as error:
            silent[name] = error.problems[0]
    return found, silent


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
