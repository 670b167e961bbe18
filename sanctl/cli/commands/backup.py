# SPDX-License-Identifier: GPL-2.0-or-later
"""Group `sanctl backup` of commands; options and output of init, run, list, verify."""

from __future__ import annotations

import contextlib

import click

from sanctl.cli import backup_options
from sanctl.cli.commands.backup_expect import expect, forget
from sanctl.cli.commands.backup_prune import prune
from sanctl.cli.commands.backup_restore import restore
from sanctl.cli.environment import environment
from sanctl.cli.help_sections import SectionedGroup
from sanctl.cli.options import INTERVAL, output_option, timeout_option
from sanctl.cli.output import UNKNOWN, finish, print_table
from sanctl.cli.views.backup import (
    backup_data,
    made_data,
    print_made,
    print_pruned,
    pruning_problems,
    time_text,
)
from sanctl.drivers import background
from sanctl.errors import CommandError, ExitStatus, Problem, SanctlError
from sanctl.model.backup import BackupName
from sanctl.model.names import DeviceName, format_bytes
from sanctl.model.restore_point import parse_point_name
from sanctl.ops.backup_init import make_repository
from sanctl.ops.backup_prune import prune_backups
from sanctl.ops.backup_run import BackupRequest, note_not_begun, run_backup
from sanctl.ops.backup_verify import existing_backup, verify_backup
from sanctl.ops.repository_wait import say_waits
from sanctl.plan.device.backup_pruning import Pruning
from sanctl.plan.device.backups import KEEP_UNITS, keep_counts


@click.group(
    cls=SectionedGroup,
    no_args_is_help=False,
    sections={
        "See": ("list", "verify"),
        "Make, use, delete": ("init", "run", "restore", "prune", "expect", "forget"),
    },
)
def backup() -> None:
    """Backups of devices, in repositories of borg on a path or another server."""


backup.add_command(prune)
backup.add_command(restore)
backup.add_command(expect)
backup.add_command(forget)


@backup.command()
@backup_options.repository_option
@output_option
def init(repository: str | None, output: str) -> None:
    """Make a repository, encrypted, with the passphrase that this node has for it."""
    env = environment()
    borg = backup_options.borg_of(env, repository)
    with env.logged("backup", command_line=f"backup init --repository {borg.repository.name}"):
        make_repository(borg, env.topology())
    made = borg.repository

    def text() -> None:
        print(f"repository {made.name} is at {made.location}")
        print("without its passphrase nobody reads it: keep a copy elsewhere")

    finish(output, data={"repository": made.name, "location": made.location}, text=text)


@backup.command()
@click.argument("device", metavar="DEVICE[@POINT]")
@backup_options.repository_option
@click.option("--on-active", is_flag=True, help="Read here also if this node serves the device.")
@click.option(
    "--skip-elsewhere",
    is_flag=True,
    help="Do nothing where another node is the one to read: for a timer on each node.",
)
@backup_options.wait_option
@click.option(
    "--every",
    "every_s",
    type=INTERVAL,
    default=0,
    metavar="SECONDS",
    help="The longest time between two runs of the timer: 'status' warns after twice as long.",
)
@backup_options.keep_options
@timeout_option(90)
@output_option
def run(
    *,
    device: str,
    repository: str | None,
    on_active: bool,
    skip_elsewhere: bool,
    wait_s: float,
    every_s: float,
    timeout_s: float,
    output: str,
    **keep: int | None,
) -> None:
    """Back a device up, as it is now or at a restore point; read on this node.

    It runs on a node that has a replica and does not serve the device, so that hosts' I/O and the
    sync network have no part in it. Without a restore point it makes one and removes it afterwards;
    --timeout is the time for that. Of several at the same time one after the other uses a
    repository: a timer for each of many devices gives --wait some hours.

    With one of --keep-... it prunes after a success, as 'backup prune --yes' does.
    """
    env = environment()
    name, sign, point = device.partition("@")
    numbers = {unit: keep[f"keep_{unit}"] for unit in KEEP_UNITS}
    counts = keep_counts(numbers) if any(numbers.values()) else {}
    request = BackupRequest(
        device=DeviceName.parse(name),
        point=parse_point_name(point) if sign else None,
        here=env.host.node_name(),
        token=env.new_uuid()[-16:],
        may_be_active=on_active,
        may_be_elsewhere=skip_elsewhere,
        every_s=int(every_s),
    )
    try:
        borg = backup_options.borg_of(env, repository, lock_s=int(wait_s))
        topology = env.topology()
    except SanctlError as error:
        # The error is the one to tell, also where it cannot be noted.
        with contextlib.suppress(SanctlError, OSError):
            if request.is_timers:
                with env.session() as session:
                    note_not_begun(session, request, repository, error)
        raise
    background.yield_to_others(env.runner)
    command_line = f"backup run {device} --repository {borg.repository.name}"
    with env.session() as session, env.logged("backup", device=name, command_line=command_line):
        say_waits(session, borg, has_turn=True)
        made = run_backup(
            session,
            topology,
            borg,
            request,
            ipc_buffer_bytes=env.ipc_buffer_bytes(),
            timeout_s=timeout_s,
        )
        pruned, failure = Pruning((), (), (), ()), None
        if made is not None and counts:
            session.reporter.update(f"deleting backups of device {name} beyond those to keep")
            try:
                pruned = prune_backups(session, borg, name, counts, here=request.here)
            except SanctlError as error:
                # The backup is there, and that is what its answer says first.
                failure = error
    if made is None:
        finish(
            output,
            data={"skipped": True},
            text=lambda: print(f"another node is the one to read device {name}"),
        )
        return
    problems = [*pruning_problems(name, pruned), *(failure.problems if failure else ())]

    def text() -> None:
        print_made(made, borg)
        print_pruned(pruned, problems)

    finish(
        output,
        data=made_data(made, borg, pruned),
        text=text,
        # Its own status would be that of a backup that was not made.
        status=ExitStatus.PARTIAL if failure else ExitStatus.OK,
        problems=problems,
    )


@backup.command("list")
@click.argument("device", required=False)
@backup_options.repository_option
@backup_options.wait_option
@output_option
def list_backups(device: str | None, repository: str | None, wait_s: float, output: str) -> None:
    """List the whole backups of DEVICE, or of all devices, the oldest first."""
    env = environment()
    wanted = DeviceName.parse(device).value if device is not None else None
    borg = backup_options.borg_of(env, repository, lock_s=int(wait_s))
    with env.session() as session:
        say_waits(session, borg)
        found = borg.backups()
    backups = [each for each in found if wanted in {None, each.name.device}]

    def text() -> None:
        if not backups:
            print("there are no backups")
            return
        print_table(
            ("BACKUP", "TAKEN (UTC)", "POINT", "SIZE", "DEVICE UUID", "REPOSITORY"),
            (
                (
                    str(each.name),
                    time_text(each.name.taken_s),
                    "-" if each.name.is_of_own_point else each.name.point,
                    UNKNOWN if each.size_bytes is None else format_bytes(each.size_bytes),
                    # The begin is enough to tell a device from an earlier one of its name.
                    each.uuid[:8] or UNKNOWN,
                    each.repository,
                )
                for each in backups
            ),
        )

    finish(output, data=[backup_data(each) for each in backups], text=text)


@backup.command()
@click.argument("name", metavar="BACKUP")
@backup_options.repository_option
@backup_options.wait_option
@output_option
def verify(name: str, repository: str | None, wait_s: float, output: str) -> None:
    """Read a backup from begin to end, and compare its digest with that of the device then."""
    env = environment()
    wanted = BackupName.parse(name)
    borg = backup_options.borg_of(env, repository, lock_s=int(wait_s))
    background.yield_to_others(env.runner)
    with env.session() as session:
        say_waits(session, borg)
        found = existing_backup(borg, wanted)
    with (
        env.session() as session,
        env.logged("backup", device=wanted.device, command_line=f"backup verify {name}"),
    ):
        digest, is_same = verify_backup(session, borg, wanted, size_bytes=found.size_bytes)
        if not is_same:
            raise CommandError(
                Problem(
                    "SAN-BKP-020",
                    f"backup {name}: SHA-256 {digest} is not the one that was noted",
                    "use another backup, and have 'borg check' look at the repository",
                )
            )
    finish(
        output,
        data={**backup_data(found), "sha256": digest},
        text=lambda: print(f"backup {name} is whole; SHA-256 {digest}"),
    )
