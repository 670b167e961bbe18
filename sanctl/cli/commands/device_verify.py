# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl device verify`."""

from __future__ import annotations

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import output_option, timeout_option
from sanctl.cli.output import finish
from sanctl.cli.views.sync import verify_data
from sanctl.cli.views.sync_policy import sync_policy_data
from sanctl.errors import ExitStatus, Problem, UsageError
from sanctl.model.names import DeviceName, format_bytes
from sanctl.model.verify_result import DIFFERS, INTERRUPTED
from sanctl.ops.device_sync import change_sync_policy
from sanctl.ops.device_verify import VerifyOutcome, verify_device


@click.command(short_help="Compare a device's replicas while hosts use it.")
@click.argument("name")
@click.option("--repair", is_flag=True, help="Send what differs anew from the copy that serves.")
@click.option(
    "--schedule",
    metavar="DAY@HH",
    help="Verify by itself from now on, and not now: sun@03, daily@03; off.",
)
@timeout_option(3600)
@output_option
def verify(name: str, repair: bool, schedule: str | None, timeout_s: float, output: str) -> None:
    """Compare a device's replicas block by block while hosts use it.

    Exit status 1: they differ, and nothing was repaired. DRBD cannot tell which copy is right; a
    repair takes the one that serves, which is what hosts have read.
    """
    env = environment()
    wanted = DeviceName.parse(name)
    if schedule is not None:
        if repair:
            raise UsageError(
                Problem(
                    "SAN-SYNC-005",
                    "--repair and --schedule do not go together",
                    "a repair is asked for by somebody who has looked at what differs",
                )
            )
        command_line = f"device verify {name} --schedule {schedule}"
        with env.session() as session, env.logged("verify", device=name, command_line=command_line):
            outcome = change_sync_policy(
                session, wanted, {"verify": schedule}, timeout_s=min(timeout_s, 60)
            )
        finish(
            output,
            data={
                "name": name,
                "changed": outcome.changed,
                "sync": sync_policy_data(outcome.device.sync),
            },
            text=lambda: print(f"device {name}: verified {outcome.device.sync.verify or 'never'}"),
        )
        return
    command_line = f"device verify {name}{' --repair' if repair else ''}"
    with env.session() as session, env.logged("verify", device=name, command_line=command_line):
        done = verify_device(session, wanted, is_repair=repair, timeout_s=timeout_s)
    result = done.verification.result
    is_bad = result == INTERRUPTED or (result == DIFFERS and done.repair is None)
    finish(
        output,
        data={
            "name": name,
            "node": done.node,
            "verify": verify_data(done.verification),
            "repaired_bytes": None if done.repair is None else done.repair.found_kib * 1024,
        },
        text=lambda: _print(name, done),
        status=ExitStatus.DEGRADED if is_bad else ExitStatus.OK,
    )


def _print(name: str, done: VerifyOutcome) -> None:
    told = done.verification
    took = f"compared in {max(1, told.ended_s - told.began_s)} s from {done.node}"
    if told.result == INTERRUPTED:
        print(f"device {name}: the comparison was broken off, nothing can be said of its replicas")
    elif not told.found_kib:
        print(f"device {name}: its replicas are the same, {took}")
    else:
        print(f"device {name}: {format_bytes(told.found_kib * 1024)} differ, {took}")
        for each in told.ranges:
            first, _, length = each.partition("+")
            print(f"  {length} bytes from byte {first} on")
        if done.repair is not None:
            print(f"repaired: {format_bytes(done.repair.found_kib * 1024)} were sent anew")
        else:
            print(f"next: 'sanctl device verify {name} --repair' sends them anew from {done.node}")
