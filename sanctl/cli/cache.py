"""The command `sanctl device cache`."""

from __future__ import annotations

import click

from sanctl.cli.environment import environment
from sanctl.cli.output import finish, output_option, timeout_option
from sanctl.cli.views import device_data
from sanctl.errors import Problem, UsageError
from sanctl.model.cache import LEAST_DIRTY_BYTES, Mode, Policy
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import ByteSize, DeviceName, format_bytes
from sanctl.ops.cache import set_cache
from sanctl.plan.cache_change import cache_words

MODES = click.Choice([mode.value for mode in Mode])


def policy_of(mode: str, dirty_limit: str | None) -> Policy:
    """Read the words of a policy.

    Raises:
        UsageError: they do not go together.
    """
    wanted = Mode(mode)
    if dirty_limit is None:
        return Policy(wanted)
    limit = ByteSize.parse(dirty_limit)
    if wanted is not Mode.WRITE_BACK or limit.bytes < LEAST_DIRTY_BYTES:
        raise UsageError(
            Problem(
                "SAN-CACHE-005",
                f"{limit} may not be dirty in mode {mode}",
                f"only write-back has a limit, of {format_bytes(LEAST_DIRTY_BYTES)} at least",
            )
        )
    return Policy(wanted, limit.bytes)


@click.command(short_help="Change where acknowledged writes may be, while hosts write.")
@click.argument("name")
@click.argument("mode", type=MODES)
@click.option(
    "--dirty-limit",
    metavar="SIZE",
    help="How much may be in RAM alone on one node, in write-back. [64M]",
)
@timeout_option(120)
@output_option
def cache(name: str, mode: str, dirty_limit: str | None, timeout_s: float, output: str) -> None:
    """Change a device's cache policy while hosts use it.

    none: a write is acknowledged when the disks of all replicas in sync have taken it; their own
    write caches are flushed when a host flushes. write-through: when it is on stable storage.
    write-back: when it is in the RAM of all of them; a host's flush makes it stable, and with one
    copy left the device is in write-through until there are two again.

    Away from write-back it returns when all that was in RAM is on the disks.
    """
    env = environment()
    wanted = DeviceName.parse(name)
    policy = policy_of(mode, dirty_limit)
    words = f"device cache {name} {policy}"
    with env.session() as it, env.recorded("cache", device=name, words=words):
        outcome = set_cache(it, wanted, policy, timeout_s=timeout_s)

    def text() -> None:
        told = f"after {outcome.duration_s:.1f} s" if outcome.changed else "nothing to do"
        print(f"device {wanted}: cache policy {policy}, {told}")
        for line in replica_lines(outcome.cluster, outcome.device):
            print(f"  {line}")

    finish(
        output,
        data={
            "changed": outcome.changed,
            "duration_s": round(outcome.duration_s, 3),
            **device_data(outcome.cluster, outcome.device),
        },
        text=text,
    )


def replica_lines(cluster: Cluster, device: DeviceSpec) -> list[str]:
    """Say for each replica what its cache is in."""
    return [f"{node}: {cache_words(cluster.replica(device.name, node))}" for node in device.nodes]
