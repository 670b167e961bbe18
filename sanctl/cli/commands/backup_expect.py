# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl backup expect` and `forget`: what status warns of."""

from __future__ import annotations

import click

from sanctl.cli import backup_options
from sanctl.cli.environment import environment
from sanctl.cli.options import TIMER, output_option
from sanctl.cli.output import finish
from sanctl.model.backup import parse_repository_name
from sanctl.model.names import DeviceName
from sanctl.ops.backup_result import expect_backups, forget_backups


@click.command()
@click.argument("device")
@click.option(
    "--every",
    "every_s",
    type=TIMER,
    required=True,
    metavar="SECONDS",
    help="The longest time between two runs of the timer.",
)
@backup_options.repository_option
@output_option
def expect(device: str, every_s: float, repository: str | None, output: str) -> None:
    """Say how often a timer backs DEVICE up: status warns when none is made for twice as long.

    The playbook says it of its timers. Of several timers the shortest interval counts: say that.
    """
    env = environment()
    wanted = DeviceName.parse(device)
    into = backup_options.borg_of(env, repository).repository.name
    command_line = f"backup expect {wanted} --every {every_s:g} --repository {into}"
    with (
        env.session() as session,
        env.logged("backup", device=wanted.value, command_line=command_line),
    ):
        has_changed = expect_backups(session, wanted, into, every_s=int(every_s))
    data = {
        "device": wanted.value,
        "repository": into,
        "every_s": int(every_s),
        "changed": has_changed,
    }
    text = f"device {wanted}: a backup into {into} is expected every {int(every_s)} s"
    finish(output, data=data, text=lambda: print(text))


@click.command()
@click.argument("device")
@click.option(
    "--repository", required=True, metavar="REPOSITORY", help="Into which the backups failed."
)
@output_option
def forget(device: str, repository: str, output: str) -> None:
    """Have status warn no more that the last backup of DEVICE or a prune failed, or none is made.

    For one of which none is to follow: a success ends the warning by itself. No backup is deleted.
    """
    env = environment()
    wanted, into = DeviceName.parse(device).value, parse_repository_name(repository)
    command_line = f"backup forget {wanted} --repository {into}"
    with env.session() as session, env.logged("backup", device=wanted, command_line=command_line):
        forgotten = forget_backups(session, wanted, into)

    def text() -> None:
        noted = "is noted no more" if forgotten.failure else "was noted"
        which = "a" if forgotten.failure else "no"
        print(f"device {wanted}: {which} failed backup into {into} {noted}")
        if forgotten.prune:
            print("nor is a failed prune")
        if forgotten.interval:
            print("none is awaited until a timer's run has succeeded again")

    data = {
        "device": wanted,
        "repository": into,
        "was_noted": forgotten.failure,
        "was_awaited": forgotten.interval,
        "was_prune_noted": forgotten.prune,
    }
    finish(output, data=data, text=text)
