# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl replicate failback`."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace

import click

from sanctl.cli.commands.replicate_restore import COPY, mix_option, say
from sanctl.cli.environment import Environment, environment, topology_or_none
from sanctl.cli.options import accept_option, output_option, timeout_option, yes_option
from sanctl.cli.output import finish
from sanctl.cli.views.device import device_data
from sanctl.cli.views.restore import held_text, kept_point
from sanctl.cli.views.site import utc
from sanctl.errors import SanctlError
from sanctl.model.cluster import Cluster
from sanctl.model.device_restore import HELD, KEPT_PREFIX
from sanctl.model.names import DeviceName
from sanctl.model.restore_point import PointOrder
from sanctl.model.site import parse_site_name
from sanctl.model.site_copy import SiteCopy, WantedCopy
from sanctl.ops.device_change import DeviceOutcome
from sanctl.ops.device_restore import check_restore, release_device, restore_device
from sanctl.ops.session import Session
from sanctl.ops.site_restore import find_copy
from sanctl.ops.site_takeover import learn_takeovers, refuse_turn, take_over
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.restore_request import STILL_MOUNTED, RestoreRequest
from sanctl.plan.site.hold_release import GOES_ON_ELSEWHERE, sites_to_ask


@click.command(short_help="Put a device back to a copy at a second site.")
@click.argument("name", metavar="DEVICE")
@click.option("--from", "site", metavar="SITE", help="The second site.")
@click.option("--copy", metavar=COPY, help="The copy that it is to hold.")
@click.option(
    "--hold",
    "holds",
    is_flag=True,
    help="Let no host in at the end either, so that a later copy comes as what has changed.",
)
@click.option(
    "--takeover",
    "takes_over",
    is_flag=True,
    help="Turn the roles before hosts are let in, as 'sanctl replicate takeover DEVICE' does.",
)
@click.option(
    "--release",
    "releases",
    is_flag=True,
    help="Let hosts in to a device that is held, as the copy that it is.",
)
@click.option(
    "--no-keep",
    is_flag=True,
    help="Make no restore point of what is on the device now: it is lost.",
)
@mix_option
@yes_option
@accept_option
@timeout_option(86400)
@output_option
def failback(
    *,
    name: str,
    site: str | None,
    copy: str | None,
    holds: bool,
    takes_over: bool,
    releases: bool,
    no_keep: bool,
    allows_mix: bool,
    yes: bool,
    accepted: tuple[str, ...],
    timeout_s: float,
    output: str,
) -> None:
    """Make DEVICE what a copy at a second site is; only what differs is sent.

    Of a device that is copied with others that is the copy of the newest complete moment.

    No host may be logged in, and none is let in before the device has the copy's digest. What is on
    it now becomes a restore point first: 'sanctl device restore' goes back to that. Whatever dies
    meanwhile, it goes on; run again, the command waits for it.

    With --hold the device stays closed at the end: it is held as the copy. A later copy then comes
    within seconds, as what has changed since is read and written alone. --release ends that.
    """
    env = environment()
    device = DeviceName.parse(name)
    if releases:
        if site is not None or copy is not None or holds or takes_over or no_keep or allows_mix:
            raise click.UsageError("'--release' goes with no other option of what is to be done.")
        _release(env, device, accepted=accepted, timeout_s=timeout_s, output=output)
        return
    if site is None or copy is None:
        raise click.UsageError("Give '--from SITE' and '--copy COPY', or '--release'.")
    if holds and takes_over:
        raise click.UsageError("'--takeover' lets hosts in, and '--hold' does not: give one.")
    source, wanted = parse_site_name(site), WantedCopy.parse(copy)
    now_s = int(env.clock.wall_s())
    kept_name = KEPT_PREFIX + time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_s))
    command_line = f"replicate failback {name} --from {site} --copy {copy}"
    command_line += " --hold" * holds + " --takeover" * takes_over
    with env.session() as session:
        choice = find_copy(
            session, source, wanted, env.site_link, filled=device, allows_mix=allows_mix
        )
        found, proven = choice.copy, choice.proven
        if takes_over:
            refuse_turn(
                session, device, found, env.site_link, allows_mix=allows_mix, accepted=accepted
            )
        say(choice)
        request = RestoreRequest(
            device=device,
            point=(found, proven.size_bytes),
            token=env.new_uuid()[-16:],
            kept=None if no_keep else PointOrder(kept_name, env.new_uuid()[-16:], now_s),
            accepted=accepted,
            # Before the roles have turned no host may write here either.
            holds=holds or takes_over,
        )
        request, is_under_way, is_lost = check_restore(session, request)
        if not yes and not is_under_way:
            kept = "is lost" if is_lost else f"is kept as {device}@{kept_name}"
            if held := _held_copy(session.observe(), device):
                kept = f"is copy {held.name}"
            click.echo(
                f"device {device}: what is on it now {kept}, and copy {found.name}, of "
                f"{utc(proven.made_s)}, takes its place. No host is let in meanwhile; "
                f"{STILL_MOUNTED}.",
                err=True,
            )
            click.confirm(f"Fill device {device}?", abort=True, err=True)
        with env.logged("replicate", device=name, command_line=command_line):
            outcome = restore_device(
                session, request, ipc_buffer_bytes=env.ipc_buffer_bytes(), timeout_s=timeout_s
            )
            if takes_over:
                _take_over(env, session, device, allows_mix=allows_mix)
            if not holds and _held_copy(outcome.cluster, device) is not None:
                # Without --takeover it was accepted that hosts are let in, and nothing turns.
                ends = accepted if takes_over else (*accepted, GOES_ON_ELSEWHERE)
                let_in = release_device(session, device, found, timeout_s=timeout_s, accepted=ends)
                duration_s = outcome.duration_s + let_in.duration_s
                outcome = replace(let_in, duration_s=duration_s, changed=True)
    kept_name_or_none = kept_point(outcome.cluster, outcome.device)

    def text() -> None:
        print(f"device {device} holds copy {found.name}, after {outcome.duration_s:.1f} s")
        if takes_over:
            print(f"it goes on instead of {found.device}.{found.uuid[:8]}")
        if holds:
            print(held_text(outcome.cluster, outcome.device, found))
        print(STILL_MOUNTED)
        if kept_name_or_none is not None:
            print(
                "what it held before is kept: 'sanctl device restore "
                f"{device} --to {kept_name_or_none}'"
            )

    finish(
        output,
        data={
            "changed": outcome.changed,
            "copy": str(found),
            "made": utc(proven.made_s),
            "held": holds,
            "took_over": takes_over,
            "duration_s": round(outcome.duration_s, 3),
            "kept": kept_name_or_none,
            **device_data(outcome.cluster, outcome.device, topology_or_none(env)),
        },
        text=text,
    )


def _take_over(env: Environment, session: Session, device: DeviceName, *, allows_mix: bool) -> None:
    """Turn the roles, while no host is let in.

    Raises:
        SanctlError: they did not turn; the device is held.
    """
    try:
        take_over(session, [device], env.host.node_name(), env.site_link, allows_mix=allows_mix)
    except SanctlError:
        click.echo(
            f"device {device} holds the copy, and no host is let in before the roles have turned: "
            "the same command goes on",
            err=True,
        )
        raise


def _release(
    env: Environment,
    device: DeviceName,
    *,
    accepted: Collection[str],
    timeout_s: float,
    output: str,
) -> None:
    """Let hosts in to a device that is held."""
    command_line = f"replicate failback {device} --release"
    with (
        env.session() as session,
        env.logged("replicate", device=device.value, command_line=command_line),
    ):
        seen = session.observe()
        for site in sites_to_ask(seen, existing_device(seen, device)):
            _learn(env, session, site)
        held = _held_copy(seen, device)
        outcome: DeviceOutcome = release_device(
            session, device, None, timeout_s=timeout_s, accepted=accepted
        )
    kept = kept_point(outcome.cluster, outcome.device) if outcome.changed else None
    order = existing_device(outcome.cluster, device).restore
    if order is None or order.held_copy is None:
        # Where the CIB is older than what nodes have noted nothing is said of what it is.
        held = None

    def text() -> None:
        if not outcome.changed:
            print(f"device {device} is not held")
            return
        what = f": it is copy {held.name}" if held else ""
        print(f"hosts are let in to device {device}{what}")
        print(STILL_MOUNTED)

    finish(
        output,
        data={
            "changed": outcome.changed,
            "copy": str(held) if held else None,
            "made": None,
            "held": False,
            "took_over": False,
            "duration_s": round(outcome.duration_s, 3),
            "kept": kept,
            **device_data(outcome.cluster, outcome.device, topology_or_none(env)),
        },
        text=text,
    )


def _learn(env: Environment, session: Session, site: str) -> None:
    """Learn from the site whether another device goes on by now, where it says so."""
    try:
        learn_takeovers(session, site, env.site_link)
    except SanctlError as error:
        click.echo(
            f"site {site} does not say whether another device goes on, so what was noted of "
            f"that here last has to do: {error}",
            err=True,
        )


def _held_copy(cluster: Cluster, name: DeviceName) -> SiteCopy | None:
    """Return the copy that a device is held as; None: it is not held."""
    order = existing_device(cluster, name).restore
    return order.copy if order is not None and order.state == HELD else None
