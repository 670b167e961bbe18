"""The command `sanctl device cache`."""

from __future__ import annotations

import click

from sanctl.cli.environment import environment
from sanctl.cli.output import finish, output_option, timeout_option
from sanctl.cli.views import device_data
from sanctl.errors import Problem, UsageError
from sanctl.model.cache import LEAST_DIRTY_BYTES, LEAST_READ_BYTES, Mode, Policy
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import ByteSize, DeviceName, format_bytes
from sanctl.ops.cache import set_cache
from sanctl.plan.cache_change import cache_words

READ_CACHE = click.option(
    "--read-cache",
    metavar="SIZE",
    help="RAM of the node that serves that reads may be cached in, or 'none'.",
)
MODES = click.Choice([mode.value for mode in Mode])


def policy_of(mode: str, dirty_limit: str | None, read_cache: str | None) -> Policy:
    """Read the words of a policy.

    Raises:
        UsageError: they do not go together.
    """
    wanted, read_bytes = Mode(mode), read_bytes_of(read_cache) or 0
    if dirty_limit is None:
        return Policy(wanted, read_bytes=read_bytes)
    limit = ByteSize.parse(dirty_limit)
    if wanted is not Mode.WRITE_BACK or limit.bytes < LEAST_DIRTY_BYTES:
        raise UsageError(
            Problem(
                "SAN-CACHE-005",
                f"{limit} may not be dirty in mode {mode}",
                f"only write-back has a limit, of {format_bytes(LEAST_DIRTY_BYTES)} at least",
            )
        )
    return Policy(wanted, limit.bytes, read_bytes)


def read_bytes_of(read_cache: str | None) -> int | None:
    """Read how much RAM reads may be cached in; None where nothing is said of it.

    Raises:
        UsageError: it is no size, or too small to be a cache.
    """
    if read_cache is None:
        return None
    if read_cache == "none":
        return 0
    size = ByteSize.parse(read_cache)
    if size.bytes < LEAST_READ_BYTES:
        raise UsageError(
            Problem(
                "SAN-CACHE-011",
                f"a read cache of {size} is none",
                f"'none', or {format_bytes(LEAST_READ_BYTES)} at least",
            )
        )
    return size.bytes


@click.command(short_help="Change where acknowledged writes may be, while hosts write.")
@click.argument("name")
@click.argument("mode", type=MODES)
@click.option(
    "--dirty-limit",
    metavar="SIZE",
    help="How much may be in RAM alone on one node, in write-back. [64M]",
)
@READ_CACHE
@timeout_option(120)
@output_option
def cache(
    *,
    name: str,
    mode: str,
    dirty_limit: str | None,
    read_cache: str | None,
    timeout_s: float,
    output: str,
) -> None:
    """Change a device's cache policy while hosts use it.

    none: a write is acknowledged when the disks of all replicas in sync have taken it; their own
    write caches are flushed when a host flushes. write-through: when it is on stable storage.
    write-back: when it is in the RAM of all of them; a host's flush makes it stable, and with one
    copy left the device is in write-through until there are two again.

    Away from write-back it returns when all that was in RAM is on the disks.

    With --read-cache the node that serves keeps in RAM what hosts read most, beside any of these;
    what is not said of it stays as it is. Hosts are then told that they cannot unmap.
    """
    env = environment()
    wanted = DeviceName.parse(name)
    policy = policy_of(mode, dirty_limit, read_cache)
    words = f"device cache {name} {policy}"
    with env.session() as it, env.recorded("cache", device=name, words=words):
        outcome = set_cache(
            it, wanted, policy, keeps_read_cache=read_cache is None, timeout_s=timeout_s
        )

    def text() -> None:
        told = f"after {outcome.duration_s:.1f} s" if outcome.changed else "nothing to do"
        print(f"device {wanted}: cache policy {outcome.device.cache}, {told}")
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
