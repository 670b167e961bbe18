# SPDX-License-Identifier: GPL-2.0-or-later
"""The options of a sync policy, and the command `sanctl device sync`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from sanctl.cli.environment import environment
from sanctl.cli.output import Command, finish, output_option, timeout_option
from sanctl.model.names import DeviceName, format_bytes
from sanctl.model.sync_policy import SyncPolicy
from sanctl.ops.sync import change_policy
from sanctl.plan.cluster.preconditions import existing_device

if TYPE_CHECKING:
    from sanctl.cli.documents import sync as sync_documents

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


def policy_options(command: Command) -> Command:
    """Add the options of a sync policy to a command."""
    for option, key, metavar, meaning in reversed(_OPTIONS):
        name = key.replace("-", "_")
        command = click.option(option, name, metavar=metavar, help=meaning)(command)
    return command


def values_of(options: Mapping[str, Any]) -> dict[str, str]:
    """Return what was given of the options of `policy_options`, by the policy's words."""
    return {
        key: str(options[key.replace("-", "_")])
        for _, key, _, _ in _OPTIONS
        if options[key.replace("-", "_")] is not None
    }


def policy_data(policy: SyncPolicy) -> sync_documents.SyncPolicy:
    """Return a policy for the JSON output."""
    return {
        "full_above": policy.full_above,
        "csums": policy.csums,
        "rate_min": policy.rate_min_kib * 1024,
        "rate_max": None if policy.rate_max_kib is None else policy.rate_max_kib * 1024,
        "window": str(policy.window) if policy.window else None,
        "priority": policy.priority,
        "verify": str(policy.verify) if policy.verify else None,
    }


def policy_words(policy: SyncPolicy) -> str:
    """Say a policy in one line."""
    ceiling = f"{format_bytes(policy.rate_max_kib * 1024)}/s" if policy.rate_max_kib else "network"
    return ", ".join(
        (
            "what differs" if policy.full_above is None else f"all above {policy.full_above}%",
            f"checksums {'always' if policy.csums else 'after a crash'}",
            f"{format_bytes(policy.rate_min_kib * 1024)}/s beside hosts, at most {ceiling}",
            f"at {policy.window}" if policy.window else "at any hour",
            f"priority {policy.priority}",
            f"verified {policy.verify}" if policy.verify else "not verified by itself",
        )
    )


@click.command(short_help="Show or change how a device's replicas are brought into line.")
@click.argument("name")
@policy_options
@timeout_option(60)
@output_option
def sync(name: str, timeout_s: float, output: str, **options: Any) -> None:
    """Show how a device's replicas are brought into line, or change it while hosts use it."""
    env = environment()
    wanted, values = DeviceName.parse(name), values_of(options)
    with env.session() as it:
        if values:
            words = " ".join(f"{key}={value}" for key, value in values.items())
            with env.recorded("sync", device=name, words=f"device sync {name} {words}"):
                outcome = change_policy(it, wanted, values, timeout_s=timeout_s)
            device, changed = outcome.device, outcome.changed
        else:
            device, changed = existing_device(it.observe(), wanted), False
    finish(
        output,
        data={"name": name, "changed": changed, "sync": policy_data(device.sync)},
        text=lambda: print(
            f"device {name}: {policy_words(device.sync)}"
            + (": nothing to do" if values and not changed else "")
        ),
    )
