# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl backup prune`; the question before a backup is deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import click

from sanctl.cli import backup_options
from sanctl.cli.environment import environment
from sanctl.cli.options import output_option, yes_option
from sanctl.cli.output import finish
from sanctl.cli.views.backup import print_pruned, pruning_problems, time_text
from sanctl.drivers import background
from sanctl.errors import SanctlError
from sanctl.model.backup import BackupName
from sanctl.model.names import DeviceName
from sanctl.ops.backup_prune import note_not_begun, preview_pruning, prune_backups
from sanctl.ops.repository_wait import say_waits
from sanctl.plan.device.backups import KEEP_UNITS, keep_counts


@click.command()
@click.argument("device")
@backup_options.keep_options
@click.option(
    "--dry-run", "is_dry_run", is_flag=True, help="Show which would go, and change nothing."
)
@click.option(
    "--all-uuids",
    "of_all_uuids",
    is_flag=True,
    help="Also those of devices that this cluster does not have: deleted, or another cluster's.",
)
@yes_option
@backup_options.repository_option
@backup_options.wait_option
@output_option
def prune(
    *,
    device: str,
    of_all_uuids: bool,
    is_dry_run: bool,
    yes: bool,
    repository: str | None,
    wait_s: float,
    output: str,
    **keep: int | None,
) -> None:
    """Delete the backups of DEVICE beyond those to keep, and give their room back.

    It says which before, and asks. A timer's needs --yes.

    A backup that one of the options keeps stays. The times are those of the restore points, in UTC.
    Those of a device that this cluster does not have stay, and it says so: another cluster may keep
    them here. With --all-uuids as many of each stay as of this device. One that a device is being
    filled from stays.
    """
    env = environment()
    wanted = DeviceName.parse(device).value
    counts = keep_counts({unit: keep[f"keep_{unit}"] for unit in KEEP_UNITS})
    options = [f"--keep-{unit}={count}" for unit, count in counts.items()]
    options += ["--all-uuids"] if of_all_uuids else []
    here, shown = env.host.node_name(), None
    try:
        borg = backup_options.borg_of(env, repository, lock_s=int(wait_s))
    except SanctlError as error:
        # The error is the one to tell, also where it cannot be noted.
        with contextlib.suppress(SanctlError, OSError):
            if yes and not is_dry_run:
                with env.session() as session:
                    note_not_begun(session, wanted, repository, error, here=here)
        raise
    background.yield_to_others(env.runner)
    command_line = f"backup prune {wanted} {' '.join(options)}"
    if is_dry_run or not yes:
        # A session of its own: a line of progress would stand in the question's.
        with env.session() as session:
            say_waits(session, borg)
            found = preview_pruning(
                session, borg, wanted, counts, here=here, of_all_uuids=of_all_uuids
            )
    if not is_dry_run:
        if not yes:
            if found.deleted:
                _ask_before_pruning(wanted, borg.repository.name, found.deleted)
            # Also where that was nothing: what is surplus a moment later was not shown.
            shown = frozenset(found.deleted)
        with (
            env.session() as session,
            env.logged("backup", device=wanted, command_line=command_line),
        ):
            say_waits(session, borg, has_turn=True)
            found = prune_backups(
                session,
                borg,
                wanted,
                counts,
                here=here,
                shown=shown,
                of_all_uuids=of_all_uuids,
            )
    gone, problems = found.deleted, pruning_problems(wanted, found)

    def text() -> None:
        print_pruned(found, problems, word="would go" if is_dry_run else "is deleted")
        if not gone:
            print(f"device {wanted}: no backup {'would go' if is_dry_run else 'is deleted'}")

    finish(
        output,
        data={
            "device": wanted,
            "repository": borg.repository.name,
            "deleted": [str(each) for each in gone],
            "dry_run": is_dry_run,
        },
        text=text,
        problems=problems,
    )


def _ask_before_pruning(device: str, repository: str, gone: Sequence[BackupName]) -> None:
    """Say which backups will be gone, the oldest first, and ask; no answer but yes goes on."""
    for each in gone:
        click.echo(f"backup {each}, taken {time_text(each.taken_s)} UTC", err=True)
    which = f"this backup of device {device}" if len(gone) == 1 else f"these {len(gone)} backups"
    click.confirm(f"Delete {which} in repository {repository}?", abort=True, err=True)
