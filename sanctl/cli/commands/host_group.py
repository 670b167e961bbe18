# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl host group create`, `list`, `show`, `add`, `remove`, ..."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import Command, output_option, timeout_option, yes_option
from sanctl.cli.output import finish, print_table
from sanctl.cli.session_question import ask_before_sessions_end
from sanctl.cli.views.access import lags_data, print_lags
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.host import HostName
from sanctl.model.host_group import HostGroup, HostGroupName
from sanctl.ops.host import change_group, lags_of
from sanctl.plan.host.access_list import iqns_of
from sanctl.plan.host.access_loss import AccessLoss, access_loss
from sanctl.plan.host.groups import (
    devices_of_group,
    existing_group,
    lacking_hosts,
    plan_group_addition,
    plan_group_creation,
    plan_group_deletion,
    plan_group_removal,
    plan_group_rename,
)

if TYPE_CHECKING:
    from sanctl.cli.documents import host as host_documents


@click.group(no_args_is_help=False)
def group() -> None:
    """Hosts that are given devices together; a host is in one group at most."""


def _hosts_option(*, required: bool) -> Callable[[Command], Command]:
    return click.option(
        "--host",
        "hosts",
        multiple=True,
        required=required,
        metavar="HOST",
        help="A host of 'sanctl host'; may be given several times.",
    )


@group.command()
@click.argument("name")
@_hosts_option(required=False)
@output_option
def create(name: str, hosts: tuple[str, ...], output: str) -> None:
    """Create host group NAME, which has no device yet."""
    made = HostGroup(name=HostGroupName.parse(name), hosts=_names(hosts))
    cluster, changed = _change(
        made.name, lambda seen: plan_group_creation(seen, made), f"host group create {name}"
    )
    _finish_change(cluster, made.name, changed=changed, output=output)


@group.command("list")
@output_option
def list_groups(output: str) -> None:
    """List all host groups."""
    with environment().session() as session:
        cluster = session.observe()

    def text() -> None:
        if not cluster.cib.host_groups:
            print("there are no host groups")
            return
        print_table(
            ("GROUP", "HOSTS", "DEVICES"),
            (
                (
                    each.name.value,
                    ", ".join(map(str, each.hosts)) or "none",
                    str(len(devices_of_group(cluster, each.name)) or "none"),
                )
                for each in cluster.cib.host_groups
            ),
        )

    finish(output, data=[_group_data(cluster, each) for each in cluster.cib.host_groups], text=text)


@group.command()
@click.argument("name")
@output_option
def show(name: str, output: str) -> None:
    """Show one host group: its hosts, and the devices that all of them may use."""
    wanted = HostGroupName.parse(name)
    with environment().session() as session:
        cluster = session.observe()
    found = existing_group(cluster, wanted)
    finish(
        output,
        data=_group_data(cluster, found),
        text=lambda: _print_group(cluster, found),
    )


@group.command()
@click.argument("name")
@_hosts_option(required=True)
@timeout_option(60)
@output_option
def add(name: str, hosts: tuple[str, ...], timeout_s: float, output: str) -> None:
    """Take hosts into host group NAME: they may use each of its devices.

    A device that a host had by itself it has through the group from then on.
    """
    wanted, more = HostGroupName.parse(name), _names(hosts)
    cluster, changed = _change(
        wanted,
        lambda seen: plan_group_addition(seen, wanted, more),
        f"host group add {name} {_options(more)}",
        timeout_s,
    )
    _finish_change(cluster, wanted, changed=changed, output=output)


@group.command()
@click.argument("name")
@_hosts_option(required=True)
@yes_option
@timeout_option(60)
@output_option
def remove(*, name: str, hosts: tuple[str, ...], yes: bool, timeout_s: float, output: str) -> None:
    """Take hosts out of host group NAME, and its devices from them; their sessions end.

    Where they have some now, the command names them, and asks.
    """
    wanted, fewer = HostGroupName.parse(name), _names(hosts)
    if not yes:
        _ask_before_removal(wanted, fewer)
    before: list[Cluster] = []

    def plan(seen: Cluster) -> tuple[Change, ...]:
        before[:] = [seen]
        return plan_group_removal(seen, wanted, fewer)

    cluster, changed = _change(
        wanted, plan, f"host group remove {name} {_options(fewer)}", timeout_s
    )
    losses = [
        access_loss(before[0], cluster, device.name, fewer)
        for device in devices_of_group(cluster, wanted)
    ]
    _finish_change(cluster, wanted, changed=changed, output=output, losses=losses)


@group.command()
@click.argument("name")
@click.argument("new_name")
@output_option
def rename(name: str, new_name: str, output: str) -> None:
    """Give host group NAME another name; sessions stay."""
    old, new = HostGroupName.parse(name), HostGroupName.parse(new_name)
    # Nothing is waited for: no access list changes.
    cluster, changed = _change(
        new,
        lambda seen: plan_group_rename(seen, old, new),
        f"host group rename {name} {new_name}",
        waits=False,
    )
    _finish_change(cluster, new, changed=changed, output=output)


@group.command()
@click.argument("name")
@output_option
def delete(name: str, output: str) -> None:
    """Delete host group NAME, which has no device any more; its hosts stay."""
    wanted = HostGroupName.parse(name)
    _change(wanted, lambda seen: plan_group_deletion(seen, wanted), f"host group delete {name}")
    finish(
        output, data={"name": wanted.value}, text=lambda: print(f"host group {wanted} is deleted")
    )


def _ask_before_removal(name: HostGroupName, fewer: Collection[HostName]) -> None:
    with environment().session() as session:
        cluster = session.observe()
        plan_group_removal(cluster, name, fewer)  # what is refused needs no answer
        denied = {
            device.name: iqns_of(cluster, device, fewer)
            for device in devices_of_group(cluster, name)
        }
        ask_before_sessions_end(session, cluster, denied)


def _names(hosts: tuple[str, ...]) -> tuple[HostName, ...]:
    return tuple(sorted({HostName.parse(host) for host in hosts}))


def _options(hosts: tuple[HostName, ...]) -> str:
    return " ".join(f"--host {host}" for host in hosts)


def _change(
    name: HostGroupName,
    plan: Callable[[Cluster], tuple[Change, ...]],
    command_line: str,
    timeout_s: float = 0.0,
    *,
    waits: bool = True,
) -> tuple[Cluster, bool]:
    env = environment()
    action = command_line.split()[2]
    with env.session() as session, env.logged(action, command_line=command_line):
        return change_group(
            session,
            name,
            plan,
            ipc_buffer_bytes=env.ipc_buffer_bytes(),
            timeout_s=timeout_s,
            waits=waits,
        )


def _finish_change(
    cluster: Cluster,
    name: HostGroupName,
    *,
    changed: bool,
    output: str,
    losses: Sequence[AccessLoss] | None = None,
) -> None:
    found = existing_group(cluster, name)
    lags = lags_of(cluster, devices_of_group(cluster, name))

    def text() -> None:
        if not changed:
            print("it was like that already: nothing to do")
        _print_group(cluster, found)
        print_lags(lags)
        for loss in losses or ():
            if loss.lost:
                print(f"device {loss.device} lets in no longer {', '.join(map(str, loss.lost))}")
            for entry in loss.left:
                print(f"device {loss.device} still lets in {entry}")

    data: dict[str, object] = {
        **_group_data(cluster, found),
        "changed": changed,
        "not_in_force": lags_data(lags),
    }
    if losses is not None:
        data["access"] = [
            {
                "device": loss.device.value,
                "lost": [iqn.value for iqn in loss.lost],
                "left": list(loss.left),
            }
            for loss in losses
        ]
    finish(output, data=data, text=text)


def _group_data(cluster: Cluster, found: HostGroup) -> host_documents.HostGroup:
    devices = devices_of_group(cluster, found.name)
    return {
        "name": found.name.value,
        "hosts": [host.value for host in found.hosts],
        "devices": [device.name.value for device in devices],
        "lacking": [
            {"device": device.name.value, "host": host.value}
            for device in devices
            for host in lacking_hosts(device, found)
        ],
    }


def _print_group(cluster: Cluster, found: HostGroup) -> None:
    devices = devices_of_group(cluster, found.name)
    for label, value in (
        ("host group", found.name.value),
        ("hosts", ", ".join(map(str, found.hosts)) or "none"),
        ("devices", ", ".join(device.name.value for device in devices) or "none"),
        *(
            ("not let in", f"{', '.join(map(str, lacking))} by {device.name} (SAN-HLT-113)")
            for device in devices
            if (lacking := lacking_hosts(device, found))
        ),
    ):
        print(f"{label + ':':<14}{value}")
