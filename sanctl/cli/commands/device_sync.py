# SPDX-License-Identifier: GPL-2.0-or-later
"""The options of a sync policy, and the command `sanctl device sync`."""

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

# Option, the policy's word for it, what it takes, what it says of itself.
_OPTIONS = (
    (
        "--full-above",
        "full-above",
        "PERCENT",
        "Send everything, in one sequence, when more than this differs; never: only what differs.",
    ),
    (
        "--csums",
        "csums",
        "on|off",
        "Compare checksums before a block is sent, for slow links; off: only after a crash.",
    ),
    (
        "--rate-min",
        "rate-min",
        "RATE",
        "What a resync may take each second while hosts read and write: 4M, 32M.",
    ),
    (
        "--rate-max",
        "rate-max",
        "RATE",
        "What a resync may take each second at all: 50M; network: what that gives.",
    ),
    (
        "--resync-window",
        "window",
        "HH-HH",
        "Hours of the day in which a resync may run: 22-06; always. One copy protects the data"
        " until then.",
    ),
    (
        "--priority",
        "priority",
        "N",
        "0 to 100: of several devices that wait for a resync the highest is first.",
    ),
)


def sync_policy_options(command: Command) -> Command:
    """Add the options of a sync policy to a command."""
    for option, key, metavar, meaning in reversed(_OPTIONS):
        name = key.replace("-", "_")
        command = click.option(option, name, metavar=metavar, help=meaning)(command)
    return command


def given_sync_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return what was given of the options of `policy_options`, by the policy's words."""
    return {
        key: str(options[key.replace("-", "_")])
        for _, key, _, _ in _OPTIONS
        if options[key.replace("-", "_")] is not None
    }


@click.command(short_help="Show or change how a device's replicas are brought into line.")
@click.argument("name")
@sync_policy_options
@timeout_option(60)
@output_option
def sync(name: str, timeout_s: float, output: str, **options: Any) -> None:
    """Show how a device's replicas are brought into line, or change it while hosts use it."""
    env = environment()
    wanted, values = DeviceName.parse(name), given_sync_options(options)
    with env.session() as session:
        if values:
            given = " ".join(f"{key}={value}" for key, value in values.items())
            with env.logged("sync", device=name, command_line=f"device sync {name} {given}"):
                outcome = change_sync_policy(session, wanted, values, timeout_s=timeout_s)
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
