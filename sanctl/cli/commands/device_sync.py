# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl device sync` (resync rate, window); also for `device create`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import Command, output_option, timeout_option
from sanctl.cli.output import finish
from sanctl.cli.views.sync_policy import sync_policy_data, sync_policy_text
from sanctl.model.names import DeviceName
from sanctl.ops.device_sync import change_sync_policy
from sanctl.plan.cluster.preconditions import existing_device

# Option, key in the policy, value, help text.
_OPTIONS = (
    (
        "--full-above",
        "full-above",
        "PERCENT",
        "Resync the whole device, in sequence, if more than this is out of sync; never: do not."
        " DRBD 8.4 only.",
    ),
    (
        "--csums",
        "csums",
        "on|off",
        "Compare checksums before a block is sent, for slow links. off: only after a crash.",
    ),
    (
        "--rate-min",
        "rate-min",
        "RATE",
        "Resync rate per second kept up while hosts read and write: 4M, 32M.",
    ),
    (
        "--rate-max",
        "rate-max",
        "RATE",
        "Highest resync rate per second: 50M; network: no limit but the network.",
    ),
    (
        "--resync-window",
        "window",
        "HH-HH",
        "Hours of the day in which a resync may run: 22-06; always. Until then the data has one"
        " replica less.",
    ),
    (
        "--priority",
        "priority",
        "N",
        "0 to 100: of several devices that wait for a resync, the highest goes first.",
    ),
)


def sync_policy_options(command: Command) -> Command:
    """Add the options of a sync policy to a command."""
    for option, key, metavar, meaning in reversed(_OPTIONS):
        name = key.replace("-", "_")
        command = click.option(option, name, metavar=metavar, help=meaning)(command)
    return command


def given_sync_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of `sync_policy_options` that were given, by the policy's keys."""
    return {
        key: str(options[key.replace("-", "_")])
        for _, key, _, _ in _OPTIONS
        if options[key.replace("-", "_")] is not None
    }


@click.command(short_help="Show or change the sync policy: resync rate, window, priority.")
@click.argument("name")
@sync_policy_options
@timeout_option(60)
@output_option
def sync(name: str, timeout_s: float, output: str, **options: Any) -> None:
    """Show a device's sync policy (how its replicas are resynced), or change it under load."""
    env = environment()
    wanted, values = DeviceName.parse(name), given_sync_options(options)
    with env.session() as session:
        if values:
            given = " ".join(f"{key}={value}" for key, value in values.items())
            with env.logged("sync", device=name, command_line=f"device sync {name} {given}"):
                outcome = change_sync_policy(
                    session,
                    wanted,
                    values,
                    drbd_version=env.drbd_version(),
                    timeout_s=timeout_s,
                )
            device, changed = outcome.device, outcome.changed
        else:
            device, changed = existing_device(session.observe(), wanted), False
    finish(
        output,
        data={"name": name, "changed": changed, "sync": sync_policy_data(device.sync)},
        text=lambda: print(
            f"device {name}: {sync_policy_text(device.sync)}"
            + (": nothing to do" if values and not changed else "")
        ),
    )
