# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl backup`: init, run, list, verify, restore, prune, forget."""

from __future__ import annotations

from collections.abc import Sequence

import click

from sanctl.cli.environment import Environment, environment
from sanctl.cli.help_sections import SectionedGroup
from sanctl.cli.options import SECONDS, Command, output_option, timeout_option, yes_option
from sanctl.cli.output import UNKNOWN, finish, print_table
from sanctl.cli.views.backup import (
    backup_data,
    made_data,
    print_made,
    print_pruned,
    pruning_problems,
    time_text,
)
from sanctl.cli.views.device import device_data
from sanctl.config import backups as backup_toml
from sanctl.drivers import background
from sanctl.drivers.borg import LOCK_S, Borg
from sanctl.errors import CommandError, ConfigError, ExitStatus, Problem, SanctlError
from sanctl.model.backup import BackupName, parse_repository_name
from sanctl.model.names import DeviceName, format_bytes
from sanctl.model.restore_point import parse_point_name
from sanctl.ops.backup import BackupRequest, run_backup
from sanctl.ops.backup_prune import preview_pruning, prune_backups
from sanctl.ops.backup_restore import restore_backup
from sanctl.ops.backup_result import forget_failure
from sanctl.ops.backup_verify import existing_backup, verify_backup
from sanctl.plan.device.backup_pruning import Pruning
from sanctl.plan.device.backups import KEEP_UNITS, find_repository, keep_counts
from sanctl.plan.device.creation_request import DeviceArguments
from sanctl.system.files import read_text


@click.group(
    cls=SectionedGroup,
    no_args_is_help=False,
    sections={
        "See": ("list", "verify"),
        "Make, use, delete": ("init", "run", "restore", "prune", "forget"),
    },
)
def backup() -> None:
    """Backups of devices, in repositories of borg on a path or another server."""


def _repository_option(command: Command) -> Command:
    return click.option(
        "--repository",
        metavar="REPOSITORY",
        help="Its name in backup.toml; required when there are several.",
    )(command)


_SPANS = {
    "hourly": "hours",
    "daily": "days",
    "weekly": "weeks",
    "monthly": "months",
    "yearly": "years",
}


def _keep_options(command: Command) -> Command:
    for unit in reversed(KEEP_UNITS):
        spans = _SPANS.get(unit)
        what = f"The newest of each of so many {spans}" if spans else "The newest ones"
        command = click.option(
            f"--keep-{unit}", type=click.IntRange(1, 9999), metavar="N", help=what + "."
        )(command)
    return command


@backup.command()
@_repository_option
@output_option
def init(repository: str | None, output: str) -> None:
    """Make a repository, encrypted, with the passphrase that this node has for it."""
    env = environment()
    borg = _borg(env, repository)
    with env.logged("backup", command_line=f"backup init --repository {borg.repository.name}"):
        borg.init()
    made = borg.repository

    def text() -> None:
        print(f"repository {made.name} is at {made.location}")
        print("without its passphrase nobody reads it: keep a copy elsewhere")

    finish(output, data={"repository": made.name, "location": made.location}, text=text)


@backup.command()
@click.argument("device", metavar="DEVICE[@POINT]")
@_repository_option
@click.option("--on-active", is_flag=True, help="Read here also if this node serves the device.")
@click.option(
    "--skip-elsewhere",
    is_flag=True,
    help="Do nothing where another node is the one to read: for a timer on each node.",
)
@click.option(
    "--wait",
    "wait_s",
    type=SECONDS,
    default=LOCK_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait while other backups use the repository.",
)
@_keep_options
@timeout_option(90)
@output_option
def run(
    *,
    device: str,
    repository: str | None,
    on_active: bool,
    skip_elsewhere: bool,
    wait_s: float,
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
    borg = _borg(env, repository, lock_s=int(wait_s))
    request = BackupRequest(
        device=DeviceName.parse(name),
        point=parse_point_name(point) if sign else None,
        here=env.host.node_name(),
        token=env.new_uuid()[-16:],
        may_be_active=on_active,
        may_be_elsewhere=skip_elsewhere,
    )
    topology = env.topology()
    background.yield_to_others(env.runner)
    command_line = f"backup run {device} --repository {borg.repository.name}"
    with env.session() as session, env.logged("backup", device=name, command_line=command_line):
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
@_repository_option
@output_option
def list_backups(device: str | None, repository: str | None, output: str) -> None:
    """List the whole backups of DEVICE, or of all devices, the oldest first."""
    env = environment()
    wanted = DeviceName.parse(device).value if device is not None else None
    backups = [
        each for each in _borg(env, repository).backups() if wanted in {None, each.name.device}
    ]

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
@_repository_option
@output_option
def verify(name: str, repository: str | None, output: str) -> None:
    """Read a backup from begin to end, and compare its digest with that of the device then."""
    env = environment()
    wanted = BackupName.parse(name)
    borg = _borg(env, repository)
    background.yield_to_others(env.runner)
    found = existing_backup(borg, wanted)
    with (
        env.session() as session,
        env.logged("backup", device=wanted.device, command_line=f"backup verify {name}"),
    ):
        digest, is_same = verify_backup(session, borg, wanted, size_bytes=found.size_bytes or 0)
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


@backup.command()
@click.argument("name", metavar="BACKUP")
@click.option("--to", "device", required=True, metavar="DEVICE", help="The device to create.")
@_repository_option
@click.option("--replicas", default="2", show_default=True, metavar="N", help="Its replicas.")
@click.option("--pool", metavar="POOL", help="Its pool; required when there are several.")
@click.option("--nodes", metavar="A,B", help="The nodes that hold a replica.")
@click.option("--prefer", metavar="NODE", help="The node that serves it at first.")
@click.option(
    "--initiator",
    "initiators",
    multiple=True,
    metavar="IQN",
    help="A host that may use it afterwards; may be given several times. Default: no host.",
)
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="The same by its name.")
@click.option(
    "--host-group", "host_groups", multiple=True, metavar="GROUP", help="All hosts of a group."
)
@timeout_option(86400)
@output_option
def restore(
    *,
    name: str,
    device: str,
    repository: str | None,
    replicas: str,
    pool: str | None,
    nodes: str | None,
    prefer: str | None,
    initiators: tuple[str, ...],
    hosts: tuple[str, ...],
    host_groups: tuple[str, ...],
    timeout_s: float,
    output: str,
) -> None:
    """Create a device from a backup; hosts are let in when it has the backup's digest.

    The node that serves the new device reads the repository. Whatever dies meanwhile, it goes on.
    """
    env = environment()
    wanted = BackupName.parse(name)
    borg = _borg(env, repository)
    arguments = DeviceArguments(
        name=device,
        size="",
        replicas=replicas,
        pool=pool,
        nodes=tuple(part.strip() for part in nodes.split(",")) if nodes is not None else (),
        prefer=prefer,
        initiators=initiators,
        hosts=hosts,
        host_groups=host_groups,
    )
    topology = env.topology()
    command_line = f"backup restore {name} --to {device}"
    with env.session() as session, env.logged("backup", device=device, command_line=command_line):
        outcome, digest = restore_backup(
            session,
            topology,
            borg,
            wanted,
            arguments,
            new_uuid=env.new_uuid,
            drbd_version=env.drbd_version(),
            ipc_buffer_bytes=env.ipc_buffer_bytes(),
            timeout_s=timeout_s,
        )
    made = outcome.device

    def text() -> None:
        print(
            f"device {made.name} holds backup {name}: {made.size}, {outcome.duration_s:.0f} s; "
            f"SHA-256 {digest}"
        )
        print(f"target {topology.target_iqn(made.name)}, LUN 0, WWID {made.wwid}")

    finish(
        output,
        data={
            **device_data(outcome.cluster, made, topology),
            "sha256": digest,
            "duration_s": round(outcome.duration_s, 3),
        },
        text=text,
    )


@backup.command()
@click.argument("device")
@_keep_options
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
@_repository_option
@output_option
def prune(
    *,
    device: str,
    of_all_uuids: bool,
    is_dry_run: bool,
    yes: bool,
    repository: str | None,
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
    borg = _borg(env, repository)
    background.yield_to_others(env.runner)
    command_line = f"backup prune {wanted} {' '.join(options)}"
    here, shown = env.host.node_name(), None
    with env.session() as session:
        if is_dry_run or not yes:
            found = preview_pruning(
                session, borg, wanted, counts, here=here, of_all_uuids=of_all_uuids
            )
            if not is_dry_run:
                if found.deleted:
                    _ask_before_pruning(wanted, borg.repository.name, found.deleted)
                # Also where that was nothing: what is surplus a moment later was not shown.
                shown = frozenset(found.deleted)
        if not is_dry_run:
            with env.logged("backup", device=wanted, command_line=command_line):
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


@backup.command()
@click.argument("device")
@click.option(
    "--repository", required=True, metavar="REPOSITORY", help="Into which the backups failed."
)
@output_option
def forget(device: str, repository: str, output: str) -> None:
    """Have status warn no more that the last backup of DEVICE failed, where none is to follow.

    A success ends the warning by itself. No backup is deleted.
    """
    env = environment()
    wanted, into = DeviceName.parse(device).value, parse_repository_name(repository)
    command_line = f"backup forget {wanted} --repository {into}"
    with env.session() as session, env.logged("backup", device=wanted, command_line=command_line):
        was_noted = forget_failure(session, wanted, into)

    def text() -> None:
        noted = "is noted no more" if was_noted else "was noted"
        print(f"device {wanted}: {'a' if was_noted else 'no'} failed backup into {into} {noted}")

    data = {"device": wanted, "repository": into, "was_noted": was_noted}
    finish(output, data=data, text=text)


def _ask_before_pruning(device: str, repository: str, gone: Sequence[BackupName]) -> None:
    """Say which backups will be gone, the oldest first, and ask; no answer but yes goes on."""
    for each in gone:
        click.echo(f"backup {each}, taken {time_text(each.taken_s)} UTC", err=True)
    which = f"this backup of device {device}" if len(gone) == 1 else f"these {len(gone)} backups"
    click.confirm(f"Delete {which} in repository {repository}?", abort=True, err=True)


def _borg(env: Environment, repository: str | None, *, lock_s: int = LOCK_S) -> Borg:
    try:
        text = read_text(backup_toml.BACKUP_TOML)
    except FileNotFoundError:
        return Borg(env.runner, find_repository((), repository), lock_s=lock_s)
    except OSError as error:
        raise ConfigError(
            Problem(
                "SAN-CLI-003",
                f"{backup_toml.BACKUP_TOML} cannot be read: {error.strerror}",
                "run sanctl as root",
            )
        ) from error
    return Borg(env.runner, find_repository(backup_toml.parse(text), repository), lock_s=lock_s)
