# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl device cache`, and the options of a cache policy."""

from __future__ import annotations

import click

from sanctl.cli.environment import environment, topology_or_none
from sanctl.cli.options import output_option, timeout_option
from sanctl.cli.output import finish
from sanctl.cli.views.device import device_data
from sanctl.errors import Problem, UsageError
from sanctl.model.cache_policy import MIN_DIRTY_BYTES, MIN_READ_BYTES, CacheMode
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import ByteSize, DeviceName, format_bytes, parse_bytes
from sanctl.ops.device_cache import change_cache_policy
from sanctl.ops.device_change import DeviceOutcome
from sanctl.plan.cache.cache_status import pending_write_back_text, replica_cache_text
from sanctl.plan.cache.policy_request import CachePolicyChange, cache_policy_text
from sanctl.plan.cluster.preconditions import existing_device

DIRTY_LIMIT_OPTION = click.option(
    "--dirty-limit",
    metavar="SIZE",
    help="How much may be in RAM alone on one node, in write-back; 64M unless it is said.",
)
READ_CACHE_OPTION = click.option(
    "--read-cache",
    metavar="SIZE",
    help="RAM of the node that serves that reads may be cached in, or 'none'.",
)
CACHE_MODES = click.Choice([mode.value for mode in CacheMode])
#: What people type for no read cache, besides the word for it.
_NOTHING = frozenset({"0", "off", "no"})


def parse_cache_change(
    mode: str | None, dirty_limit: str | None, read_cache: str | None
) -> CachePolicyChange:
    """Read what is to be different in a policy; nothing was said of what is None.

    Raises:
        UsageError: a word does not read, or they do not go together; all problems are listed.
    """
    problems: list[Problem] = []
    wanted = None if mode is None else CacheMode(mode)
    dirty_bytes = read_bytes = None
    if dirty_limit is not None:
        if wanted not in {None, CacheMode.WRITE_BACK}:
            problems.append(
                Problem(
                    "SAN-CACHE-005",
                    f"--dirty-limit does not go with {mode}",
                    "only write-back has a dirty limit: leave it out, or ask for write-back",
                )
            )
        dirty_bytes = _read_size(
            "--dirty-limit", dirty_limit, MIN_DIRTY_BYTES, "SAN-CACHE-005", problems
        )
    if read_cache == "none":
        read_bytes = 0
    elif read_cache is not None and read_cache.lower() in _NOTHING:
        problems.append(
            Problem(
                "SAN-CACHE-011",
                f"--read-cache {read_cache} is no size of a read cache",
                "'--read-cache none' is for no read cache",
            )
        )
    elif read_cache is not None:
        read_bytes = _read_size(
            "--read-cache", read_cache, MIN_READ_BYTES, "SAN-CACHE-011", problems
        )
    if problems:
        raise UsageError(*problems)
    return CachePolicyChange(mode=wanted, dirty_bytes=dirty_bytes, read_bytes=read_bytes)


def _read_size(
    option: str, text: str, least: int, code: str, problems: list[Problem]
) -> int | None:
    """Read the size that was given to an option; what is wrong with it names the option."""
    try:
        count = parse_bytes(text)
        if count >= least:
            return ByteSize(bytes=count).bytes
    except UsageError as error:
        problems.extend(
            Problem(problem.code, f"{option}: {problem.text}", problem.hint)
            for problem in error.problems
        )
        return None
    problems.append(
        Problem(
            code,
            f"{option} {text} is too little: {format_bytes(least)} is the least",
            "write a number and a unit, such as 64M; a number alone is bytes",
        )
    )
    return None


@click.command(short_help="Show or change where acknowledged writes may be, while hosts write.")
@click.argument("name")
@click.argument("mode", type=CACHE_MODES, required=False)
@DIRTY_LIMIT_OPTION
@READ_CACHE_OPTION
@timeout_option(120)
@output_option
def cache(
    *,
    name: str,
    mode: str | None,
    dirty_limit: str | None,
    read_cache: str | None,
    timeout_s: float,
    output: str,
) -> None:
    """Show a device's cache policy, or change it while hosts use it.

    none: a write is acknowledged when the disks of all replicas in sync have taken it; their own
    write caches are flushed when a host flushes. write-through: when it is on stable storage.
    write-back: when it is in the RAM of all of them; a host's flush makes it stable, and with one
    copy left the device is in write-through until there are two again.

    Take none unless you have measured that another one helps: write-through where writes that
    hosts do not flush have to survive a loss of all power, write-back for many writes in flight to
    slow disks. docs/explanation/cache.md, "Which to choose", has more.

    Away from write-back it returns when all that was in RAM is on the disks. Into write-back it
    returns at once, with status 0, where fewer than two copies are in sync: it is stored then, and
    in effect when they are.

    With --read-cache the node that serves keeps in RAM what hosts read most, beside any of these.
    Hosts are then told that they cannot unmap.

    What is not said stays as it is, the mode too; a dirty limit until write-back is left. With
    nothing but the name it shows the policy, and what each replica is in.
    """
    env = environment()
    wanted, change = DeviceName.parse(name), parse_cache_change(mode, dirty_limit, read_cache)
    options = (("", mode), ("--dirty-limit ", dirty_limit), ("--read-cache ", read_cache))
    given = "".join(f" {option}{value}" for option, value in options if value is not None)
    with env.session() as session:
        if change.is_empty:
            cluster = session.observe()
            outcome = DeviceOutcome(
                device=existing_device(cluster, wanted), cluster=cluster, changed=False
            )
        else:
            with env.logged("cache", device=name, command_line=f"device cache {name}{given}"):
                outcome = change_cache_policy(session, wanted, change, timeout_s=timeout_s)
    device, pending = outcome.device, pending_write_back_text(outcome.cluster, outcome.device)

    def text() -> None:
        told = ""
        if outcome.changed:
            told = f", {'stored ' if pending else ''}after {outcome.duration_s:.1f} s"
        elif not change.is_empty:
            told = ", nothing to do"
        print(f"device {wanted}: cache policy {cache_policy_text(device.cache)}{told}")
        for line in cache_lines(outcome.cluster, device):
            print(f"  {line}")

    finish(
        output,
        data={
            "changed": outcome.changed,
            "duration_s": round(outcome.duration_s, 3),
            "in_effect": pending is None,
            **device_data(outcome.cluster, device, topology_or_none(env)),
        },
        text=text,
    )


def cache_lines(cluster: Cluster, device: DeviceSpec) -> list[str]:
    """Say whether a device's policy is in effect, if it is not, and what each replica is in."""
    pending = pending_write_back_text(cluster, device)
    return [
        *([pending] if pending is not None else []),
        *(f"{node}: {replica_cache_text(device, cluster.replica(device.name, node))}"
          for node in device.nodes),
    ]  # fmt: skip
