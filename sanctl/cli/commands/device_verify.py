# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl device verify`: result, --repair, --schedule."""

from __future__ import annotations

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import output_option, timeout_option, yes_option
from sanctl.cli.output import finish
from sanctl.cli.views.sync import verify_data
from sanctl.cli.views.sync_policy import sync_policy_data
from sanctl.errors import ExitStatus, Problem, UsageError
from sanctl.model.names import DeviceName, format_bytes
from sanctl.model.verify_result import DIFFERS, INTERRUPTED
from sanctl.ops.device_sync import change_sync_policy
from sanctl.ops.device_verify import VerifyOutcome, verify_device
from sanctl.ops.session import Session
from sanctl.plan.cluster.preconditions import existing_device


@click.command(short_help="Compare a device's replicas while hosts use it.")
@click.argument("name")
@click.option(
    "--repair", is_flag=True, help="Resync blocks that differ from the replica that serves."
)
@click.option(
    "--schedule",
    metavar="DAY@HH",
    help="Verify at these times from now on, and not now: sun@03, daily@03; off.",
)
@yes_option
@timeout_option(3600)
@output_option
def verify(
    *, name: str, repair: bool, schedule: str | None, yes: bool, timeout_s: float, output: str
) -> None:
    """Compare a device's replicas block by block while hosts use it.

    Exit status 1: the replicas differ, and nothing was repaired. DRBD cannot tell which replica is
    right; a repair copies from the one that serves, which is what hosts have read, and asks. Where
    that is the wrong one, 'sanctl device move' first.
    """
    env = environment()
    wanted = DeviceName.parse(name)
    if schedule is not None:
        if repair:
            raise UsageError(
                Problem(
                    "SAN-SYNC-005",
                    "--repair and --schedule do not go together",
                    "look at a result before you order a repair: leave one of the two options out",
                )
            )
        command_line = f"device verify {name} --schedule {schedule}"
        with env.session() as session, env.logged("verify", device=name, command_line=command_line):
            changed = change_sync_policy(
                session,
                wanted,
                {"verify": schedule},
                drbd_version=env.drbd_version(),
                timeout_s=min(timeout_s, 60),
            )
        finish(
            output,
            data={
                "name": name,
                "changed": changed.changed,
                "sync": sync_policy_data(changed.device.sync),
            },
            text=lambda: print(f"device {name}: verified {changed.device.sync.verify or 'never'}"),
        )
        return
    command_line = f"device verify {name}{' --repair' if repair else ''}"
    with env.session() as session:
        if repair and not yes:
            _ask(session, wanted)
        with env.logged("verify", device=name, command_line=command_line):
            outcome = verify_device(session, wanted, is_repair=repair, timeout_s=timeout_s)
    result = outcome.verification.result
    is_bad = result == INTERRUPTED or (result == DIFFERS and outcome.repair is None)
    finish(
        output,
        data={
            "name": name,
            "node": outcome.node,
            "verify": verify_data(outcome.verification),
            "repaired_bytes": None if outcome.repair is None else outcome.repair.found_kib * 1024,
        },
        text=lambda: _print(name, outcome),
        status=ExitStatus.DEGRADED if is_bad else ExitStatus.OK,
    )


def _ask(session: Session, name: DeviceName) -> None:
    """Say whose blocks a repair takes, and ask; no answer but yes goes on."""
    cluster = session.observe()
    existing_device(cluster, name)
    serving = cluster.active_node(name) or "the node that serves it then"
    click.echo(
        f"device {name}: blocks that differ are lost on every replica but the one on {serving}. "
        "DRBD cannot tell which is right (docs/howto/sync.md); if that one is wrong: 'sanctl "
        f"device move {name} --to NODE' first.",
        err=True,
    )
    click.confirm(f"Send them again from {serving}?", abort=True, err=True)


def _print(name: str, outcome: VerifyOutcome) -> None:
    found = outcome.verification
    took = f"compared in {max(1, found.ended_s - found.began_s)} s from {outcome.node}"
    if found.result == INTERRUPTED:
        print(f"device {name}: the verify was interrupted; nothing is known about its replicas")
    elif not found.found_kib:
        print(f"device {name}: its replicas are the same, {took}")
    else:
        print(f"device {name}: {format_bytes(found.found_kib * 1024)} differ, {took}")
        for each in found.ranges:
            first, _, length = each.partition("+")
            print(f"  {length} bytes at byte {first}")
        if outcome.repair is not None:
            print(f"repaired: {format_bytes(outcome.repair.found_kib * 1024)} were sent again")
        else:
            print(
                "next: find out which replica is wrong (docs/howto/sync.md); if it is the one on "
                f"{outcome.node}: 'sanctl device move {name} --to NODE' first; then 'sanctl device "
                f"verify {name} --repair' sends them again from the one that serves"
            )
