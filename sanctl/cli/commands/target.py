# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl target show`, `allow`, `deny`: portals, WWID, access list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import click

from sanctl.cli.commands.target_reservations import reservations
from sanctl.cli.environment import environment
from sanctl.cli.options import Command, output_option, timeout_option, yes_option
from sanctl.cli.output import finish, print_table
from sanctl.cli.session_question import ask_before_sessions_end, logins_text
from sanctl.cli.views.access import print_lags
from sanctl.errors import Problem, UsageError
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.host import HostName
from sanctl.model.host_group import HostGroupName
from sanctl.model.names import DeviceName, Iqn
from sanctl.model.topology import Topology
from sanctl.ops.session import Session
from sanctl.ops.target_access import (
    AccessOutcome,
    allow_group,
    allow_host,
    allow_initiator,
    deny_all,
    deny_group,
    deny_host,
    deny_initiator,
)
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.host_logins import host_logins
from sanctl.plan.host.access import plan_deny, plan_deny_host
from sanctl.plan.host.access_list import iqns_of
from sanctl.plan.host.access_loss import hosts_denied, let_in
from sanctl.plan.host.groups import group_on, plan_deny_group

if TYPE_CHECKING:
    from sanctl.cli.documents import target as target_documents

_PORT = 3260


@click.group(no_args_is_help=False)
def target() -> None:
    """ISCSI targets: what hosts need to log in, which hosts may, and what they have reserved."""


target.add_command(reservations)


@target.command()
@click.argument("name", required=False)
@output_option
def show(name: str | None, output: str) -> None:
    """Show what a host needs to use a device, or all devices."""
    env = environment()
    wanted = DeviceName.parse(name) if name is not None else None
    topology = env.topology()
    with env.session() as session:
        cluster = session.observe()
    devices = cluster.cib.devices if wanted is None else (existing_device(cluster, wanted),)
    data = [_target_data(cluster, device, topology) for device in devices]

    def text() -> None:
        if wanted is None:
            print_table(
                ("DEVICE", "TARGET", "LUN", "ACTIVE", "HOSTS"),
                (
                    (
                        entry["device"],
                        entry["target"],
                        str(entry["lun"]),
                        entry["active_node"] or "?",
                        str(len(entry["initiators"]) + len(entry["hosts"]) or "none"),
                    )
                    for entry in data
                ),
            )
        else:
            (device,) = devices
            through = {
                host.name.value: group.name.value
                for host in device.hosts
                if (group := group_on(cluster, device, host.name)) is not None
            }
            _print_target(data[0], through)

    finish(output, data=data if wanted is None else data[0], text=text)


def _target_data(
    cluster: Cluster, device: DeviceSpec, topology: Topology
) -> target_documents.Target:
    return {
        "device": device.name.value,
        "target": topology.target_iqn(device.name).value,
        "lun": 0,
        "serial": device.serial,
        "wwid": device.wwid,
        "active_node": cluster.serving_node(device.name),
        "portals": [
            {
                "node": node.value,
                "group": entry.id,
                "addresses": [
                    f"[{address}]:{_PORT}" if address.version == 6 else f"{address}:{_PORT}"
                    for address in entry.iscsi
                ],
            }
            for node in device.nodes
            if (entry := topology.node(node)) is not None
        ],
        "initiators": [iqn.value for iqn in device.initiators],
        "hosts": [host.name.value for host in device.hosts],
        "host_groups": [group.value for group in device.host_groups],
    }


def _print_target(entry: target_documents.Target, through: Mapping[str, str]) -> None:
    """Print a target; `through` has the group through which a host may use it."""
    lines = [
        ("device", entry["device"]),
        ("target", entry["target"]),
        ("lun", str(entry["lun"])),
        ("active", entry["active_node"] or "?"),
        *(
            (
                f"portals {portal['node']}",
                f"{', '.join(portal['addresses'])} (group {portal['group']})",
            )
            for portal in entry["portals"]
        ),
        ("serial", entry["serial"]),
        ("wwid", entry["wwid"]),
        *(("host group", name) for name in entry["host_groups"]),
        *(
            ("host", f"{name} (group {through[name]})" if name in through else name)
            for name in entry["hosts"]
        ),
        *(("initiator" if entry["hosts"] else "host", iqn) for iqn in entry["initiators"]),
    ]
    for label, value in lines:
        print(f"{label + ':':<14}{value}")
    if not entry["initiators"] and not entry["hosts"] and not entry["host_groups"]:
        print(f"no host may use the device: 'sanctl target allow {entry['device']} IQN' allows one")


def _change(
    name: str,
    iqn: str | None,
    host: str | None,
    group: str | None,
    *,
    output: str,
    timeout_s: float,
    action: str,
    by_iqn: Callable[..., AccessOutcome],
    by_host: Callable[..., AccessOutcome],
    by_group: Callable[..., AccessOutcome],
    done: str,
    already: str,
    ask: Callable[[Session, DeviceName, Iqn | HostName | HostGroupName], None] | None = None,
) -> None:
    env = environment()
    if sum(given is not None for given in (iqn, host, group)) != 1:
        raise click.UsageError("Give either an IQN, or --host, or --host-group.")
    problems: list[Problem] = []
    wanted: DeviceName | None = None
    who: Iqn | HostName | HostGroupName | None = None
    operation = by_iqn
    words = iqn or ""
    try:
        wanted = DeviceName.parse(name)
    except UsageError as error:
        problems.extend(error.problems)
    try:
        if host is not None:
            operation, words = by_host, f"--host {host}"
            who = HostName.parse(host)
        elif group is not None:
            operation, words = by_group, f"--host-group {group}"
            who = HostGroupName.parse(group)
        else:
            who = Iqn.parse(iqn or "")
    except UsageError as error:
        problems.extend(error.problems)
    if wanted is None or who is None:
        raise UsageError(*problems)
    command_line = f"target {action} {name} {words}"
    session: Session
    with env.session() as session:
        if ask is not None:
            ask(session, wanted, who)
        with env.logged(action, device=name, command_line=command_line):
            outcome = operation(
                session, wanted, who, ipc_buffer_bytes=env.ipc_buffer_bytes(), timeout_s=timeout_s
            )
    shown = f"host group {who}" if group is not None else str(who)
    loss = outcome.loss

    def text() -> None:
        said = f"{shown} {done if outcome.changed else already}".format(device=wanted)
        # An IQN that is denied by itself is the one that has lost it.
        lost = ", ".join(map(str, loss.lost)) if iqn is None else ""
        print(f"{said}: {lost}" if lost else said)
        for entry in loss.left:
            print(f"device {wanted} still lets in {entry}")
        print_lags(outcome.not_in_force)

    finish(output, data=_access_data(wanted, outcome), text=text)


def _device_and_host(command: Command) -> Command:
    """Add the device, and who is to use it: an IQN, `--host` or `--host-group`."""
    for parameter in (
        click.option(
            "--host-group",
            "group",
            metavar="GROUP",
            help="All hosts of a group of 'sanctl host group'.",
        ),
        click.option("--host", metavar="HOST", help="A host of 'sanctl host', with all its IQNs."),
        click.argument("iqn", required=False),
        click.argument("name"),
    ):
        command = parameter(command)
    return command


@target.command()
@_device_and_host
@timeout_option(60)
@output_option
def allow(
    *,
    name: str,
    iqn: str | None,
    host: str | None,
    group: str | None,
    timeout_s: float,
    output: str,
) -> None:
    """Let the host with this IQN, the host of a name, or the hosts of a group use device NAME."""
    _change(
        name,
        iqn,
        host,
        group,
        output=output,
        timeout_s=timeout_s,
        action="allow",
        by_iqn=allow_initiator,
        by_host=allow_host,
        by_group=allow_group,
        done="may use device {device}",
        already="may use device {device} already: nothing to do",
    )


@target.command()
@_device_and_host
@click.option("--all", "is_all", is_flag=True, help="All hosts, also by IQN and through groups.")
@yes_option
@timeout_option(60)
@output_option
def deny(
    *,
    name: str,
    iqn: str | None,
    host: str | None,
    group: str | None,
    is_all: bool,
    yes: bool,
    timeout_s: float,
    output: str,
) -> None:
    """Keep a host, by its IQN or its name, a host group, or all hosts from device NAME.

    Their sessions end: where they have some now, the command names them, and asks.
    """
    if is_all:
        if any(given is not None for given in (iqn, host, group)):
            raise click.UsageError("--all goes with no IQN, --host or --host-group.")
        _deny_all(name, yes=yes, timeout_s=timeout_s, output=output)
        return
    _change(
        name,
        iqn,
        host,
        group,
        output=output,
        timeout_s=timeout_s,
        action="deny",
        by_iqn=deny_initiator,
        by_host=deny_host,
        by_group=deny_group,
        done="may no longer use device {device}",
        already="was not on the list of device {device}: nothing to do",
        ask=partial(_ask_before_denial, yes=yes),
    )


def _ask_before_denial(
    session: Session, device: DeviceName, who: Iqn | HostName | HostGroupName, *, yes: bool
) -> None:
    if yes:
        return
    cluster = session.observe()
    found = existing_device(cluster, device)
    # What is refused, and what is so already, needs no answer.
    if isinstance(who, Iqn):
        changes, iqns = plan_deny(cluster, device, who), frozenset((who,))
    elif isinstance(who, HostName):
        changes = plan_deny_host(cluster, device, who)
        iqns = iqns_of(cluster, found, (who,))
    else:
        changes = plan_deny_group(cluster, device, who)
        iqns = iqns_of(cluster, found, hosts_denied(cluster, device, who))
    if changes:
        ask_before_sessions_end(session, cluster, {device: iqns})


def _deny_all(name: str, *, yes: bool, timeout_s: float, output: str) -> None:
    env = environment()
    wanted = DeviceName.parse(name)
    with env.session() as session:
        if not yes:
            _ask_before_all(session, wanted)
        with env.logged("deny", device=name, command_line=f"target deny {name} --all"):
            outcome = deny_all(
                session, wanted, ipc_buffer_bytes=env.ipc_buffer_bytes(), timeout_s=timeout_s
            )

    def text() -> None:
        lost = ", ".join(map(str, outcome.loss.lost))
        print(
            f"no host may use device {wanted}: {lost or 'none might before'}"
            if outcome.changed
            else f"no host might use device {wanted}: nothing to do"
        )
        print_lags(outcome.not_in_force)

    finish(output, data=_access_data(wanted, outcome), text=text)


def _ask_before_all(session: Session, name: DeviceName) -> None:
    """Say how many hosts lose the device, and who is logged in now, and ask."""
    cluster = session.observe()
    device = existing_device(cluster, name)
    iqns = let_in(device)
    if not iqns and not device.host_groups:
        return
    logins = host_logins(cluster, device, session.host_sessions())
    click.echo(
        f"device {name}: {len(iqns)} initiators may use it; {logins_text(logins)}. What such a "
        "host still writes gets no error where multipath queues: it waits for a path, and is "
        "written once the host is let in again. Unmount it there first.",
        err=True,
    )
    click.confirm(f"Keep all hosts from device {name}?", abort=True, err=True)


def _access_data(device: DeviceName, outcome: AccessOutcome) -> target_documents.Access:
    return {
        "changed": outcome.changed,
        "device": device.value,
        "initiators": [entry.value for entry in outcome.device.initiators],
        "hosts": [entry.name.value for entry in outcome.device.hosts],
        "host_groups": [entry.value for entry in outcome.device.host_groups],
        "lost": [entry.value for entry in outcome.loss.lost],
        "left": list(outcome.loss.left),
        "not_in_force": [lag.node.value for lag in outcome.not_in_force],
    }
