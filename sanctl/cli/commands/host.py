# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl host create`, `list`, `show`, `set`, `rename`, `delete`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import click

from sanctl.cli.commands.host_group import group
from sanctl.cli.environment import environment
from sanctl.cli.options import output_option, timeout_option, yes_option
from sanctl.cli.output import finish, print_table
from sanctl.cli.session_question import ask_before_sessions_end
from sanctl.cli.views.access import lags_data, print_lags
from sanctl.drivers import host_secrets
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.host import Host, HostName
from sanctl.model.names import DeviceName, Iqn
from sanctl.ops.host import change_host, lags_of
from sanctl.plan.host.access_loss import let_in_by_themselves
from sanctl.plan.host.definition import (
    devices_of,
    existing_host,
    plan_host_change,
    plan_host_creation,
    plan_host_deletion,
    plan_host_rename,
)
from sanctl.plan.host.paths import host_paths
from sanctl.system.files import exists

if TYPE_CHECKING:
    from sanctl.cli.documents import host as host_documents


@click.group(no_args_is_help=False)
def host() -> None:
    """Hosts by name: their IQNs, and whether they log in with CHAP; groups of hosts."""


host.add_command(group)


_CHAP_HELP = (
    "Log in with CHAP by this user name, often the IQN. The secret is no part of the command: "
    "the playbook puts it on the nodes (sanctl_host_secrets)."
)
_MUTUAL_HELP = "The target authenticates to the host, too, by the same user name."


@host.command()
@click.argument("name")
@click.option(
    "--iqn",
    "iqns",
    multiple=True,
    required=True,
    metavar="IQN",
    help="An initiator of the host; may be given several times.",
)
@click.option("--chap", metavar="USER", help=_CHAP_HELP)
@click.option("--mutual", is_flag=True, help=_MUTUAL_HELP)
@output_option
def create(name: str, iqns: tuple[str, ...], chap: str | None, mutual: bool, output: str) -> None:
    """Create host NAME, which may use no device yet."""
    _refuse_empty(chap)
    made = Host(
        name=HostName.parse(name),
        iqns=tuple(sorted({Iqn.parse(iqn) for iqn in iqns})),
        chap_user=chap or "",
        is_mutual=mutual,
    )
    cluster, changed = _change(
        made.name, lambda seen: plan_host_creation(seen, made), f"host create {name}"
    )
    _finish_change(cluster, made.name, changed=changed, output=output)


def _refuse_empty(chap: str | None) -> None:
    """Refuse a user name that a script has left empty: it would be a host without CHAP."""
    if chap == "":
        raise click.UsageError("--chap needs a user name.")


@host.command("list")
@output_option
def list_hosts(output: str) -> None:
    """List all hosts."""
    with environment().session() as session:
        cluster = session.observe()

    def text() -> None:
        if not cluster.cib.hosts:
            print("there are no hosts; devices may still let initiators in by their IQN")
            return
        print_table(
            ("HOST", "IQNS", "LOGIN", "DEVICES"),
            (
                (
                    each.name.value,
                    each.iqns[0].value + (" ..." if len(each.iqns) > 1 else ""),
                    _login_text(each),
                    str(len(devices_of(cluster, each.name)) or "none"),
                )
                for each in cluster.cib.hosts
            ),
        )

    finish(output, data=[_host_data(cluster, each) for each in cluster.cib.hosts], text=text)


@host.command()
@click.argument("name")
@output_option
def show(name: str, output: str) -> None:
    """Show one host: its IQNs, how it logs in, which devices it may use, and its paths to them.

    Each node says about every 10 s which hosts have sessions with it; the kernel shows the latest
    session of each initiator, and not since when it is there.
    """
    wanted = HostName.parse(name)
    with environment().session() as session:
        cluster = session.observe()
        found = existing_host(cluster, wanted)
        sessions = session.host_sessions()
    paths = host_paths(cluster, found, sessions)

    def text() -> None:
        _print_host(cluster, found)
        if paths:
            print()
            print_table(
                ("DEVICE", "NODE", "PATH", "SESSION", "INITIATOR"),
                (
                    (
                        path.device.value,
                        path.node.value,
                        path.state,
                        "?" if path.addresses is None else ", ".join(path.addresses) or "none",
                        path.iqn.value,
                    )
                    for path in paths
                ),
            )

    data: host_documents.HostShown = {
        **_host_data(cluster, found),
        "paths": [
            {
                "device": path.device.value,
                "node": path.node.value,
                "iqn": path.iqn.value,
                "session": None if path.addresses is None else bool(path.addresses),
                "addresses": list(path.addresses or ()),
                "state": path.state,
            }
            for path in paths
        ],
    }
    finish(output, data=data, text=text)


@host.command("set")
@click.argument("name")
@click.option("--add-iqn", "more", multiple=True, metavar="IQN", help="One more initiator.")
@click.option(
    "--remove-iqn", "fewer", multiple=True, metavar="IQN", help="One less; its sessions end."
)
@click.option("--chap", metavar="USER", help=_CHAP_HELP)
@click.option("--no-chap", is_flag=True, help="Log in without CHAP from now on.")
@click.option("--mutual/--no-mutual", default=None, help=_MUTUAL_HELP)
@yes_option
@timeout_option(60)
@output_option
def set_host(
    *,
    name: str,
    more: tuple[str, ...],
    fewer: tuple[str, ...],
    chap: str | None,
    no_chap: bool,
    mutual: bool | None,
    yes: bool,
    timeout_s: float,
    output: str,
) -> None:
    """Change the IQNs of host NAME, or how it logs in.

    Sessions of the host go on, and log in anew as is set then; those of an IQN that is removed end:
    where it has some now, the command names them, and asks.
    """
    if chap is not None and no_chap:
        raise click.UsageError("Give either --chap or --no-chap.")
    _refuse_empty(chap)
    if {*more} & {*fewer}:
        raise click.UsageError("Give an IQN either to --add-iqn or to --remove-iqn.")
    wanted = HostName.parse(name)
    added, removed = tuple(map(Iqn.parse, more)), tuple(map(Iqn.parse, fewer))
    user = "" if no_chap else chap

    def plan(seen: Cluster) -> tuple[Change, ...]:
        return plan_host_change(
            seen, wanted, more=added, fewer=removed, chap_user=user, is_mutual=mutual
        )

    if removed and not yes:
        _ask_before_removal(wanted, removed, plan)
    cluster, changed = _change(wanted, plan, f"host set {name}", timeout_s)
    _finish_change(cluster, wanted, changed=changed, output=output, lost=removed)


def _ask_before_removal(
    name: HostName, removed: Collection[Iqn], plan: Callable[[Cluster], tuple[Change, ...]]
) -> None:
    with environment().session() as session:
        cluster = session.observe()
        plan(cluster)  # what is refused needs no answer
        own = {*existing_host(cluster, name).iqns} & {*removed}
        denied = {device.name: own for device in devices_of(cluster, name)}
        ask_before_sessions_end(session, cluster, denied)


@host.command()
@click.argument("name")
@click.argument("new_name")
@timeout_option(60)
@output_option
def rename(name: str, new_name: str, timeout_s: float, output: str) -> None:
    """Give host NAME another name; its sessions stay.

    The secret of a host with CHAP is under its name: run the playbook with the secret under the new
    name first. That under the old name stays on the nodes: remove it afterwards.
    """
    old, new = HostName.parse(name), HostName.parse(new_name)
    secret = f"{host_secrets.FOLDER}/{old}"
    has_file = exists(secret)
    cluster, changed = _change(
        new,
        lambda seen: plan_host_rename(seen, old, new),
        f"host rename {name} {new_name}",
        timeout_s,
    )
    has_secret = has_file or bool(existing_host(cluster, new).chap_user)
    note = (
        f"its CHAP secret under the name {old} stays, and would be that of the next host of that "
        f"name: take {old} out of sanctl_host_secrets, and remove {secret} on each storage node"
    )
    _finish_change(
        cluster, new, changed=changed, output=output, note=note if has_secret and changed else ""
    )


@host.command()
@click.argument("name")
@output_option
def delete(name: str, output: str) -> None:
    """Delete host NAME, which may use no device any more."""
    wanted = HostName.parse(name)
    had: list[Iqn] = []
    secret = f"{host_secrets.FOLDER}/{wanted}"
    has_secret = exists(secret)

    def plan(seen: Cluster) -> tuple[Change, ...]:
        nonlocal has_secret
        changes = plan_host_deletion(seen, wanted)
        gone = existing_host(seen, wanted)
        had[:] = gone.iqns
        has_secret = has_secret or bool(gone.chap_user)
        return changes

    cluster, _ = _change(wanted, plan, f"host delete {name}")
    found = let_in_by_themselves(cluster, had)

    def text() -> None:
        print(f"host {wanted} is deleted")
        if has_secret:
            print(
                "its CHAP secret would be that of the next host of this name: take it out of "
                f"sanctl_host_secrets, and remove {secret} on each storage node"
            )
        _print_by_themselves(found)

    finish(output, data={"name": wanted.value, "by_themselves": _by_itself_data(found)}, text=text)


def _change(
    name: HostName,
    plan: Callable[[Cluster], tuple[Change, ...]],
    command_line: str,
    timeout_s: float = 0.0,
) -> tuple[Cluster, bool]:
    env = environment()
    action = command_line.split()[1]
    with env.session() as session, env.logged(action, command_line=command_line):
        return change_host(
            session,
            name,
            plan,
            ipc_buffer_bytes=env.ipc_buffer_bytes(),
            timeout_s=timeout_s,
        )


def _finish_change(
    cluster: Cluster,
    name: HostName,
    *,
    changed: bool,
    output: str,
    lost: Collection[Iqn] = (),
    note: str = "",
) -> None:
    found = existing_host(cluster, name)
    by_themselves = let_in_by_themselves(cluster, {*found.iqns, *lost})
    lags = lags_of(cluster, devices_of(cluster, name))

    def text() -> None:
        if not changed:
            print("it was like that already: nothing to do")
        _print_host(cluster, found)
        print_lags(lags)
        if note:
            print(note)
        _print_by_themselves(by_themselves)

    finish(
        output,
        data={
            **_host_data(cluster, found),
            "changed": changed,
            "not_in_force": lags_data(lags),
            "by_themselves": _by_itself_data(by_themselves),
        },
        text=text,
    )


def _by_itself_data(
    found: Collection[tuple[DeviceName, Iqn]],
) -> list[host_documents.ByItself]:
    return [{"device": device.value, "iqn": iqn.value} for device, iqn in found]


def _print_by_themselves(found: Collection[tuple[DeviceName, Iqn]]) -> None:
    for device, iqn in found:
        print(f"device {device} lets in {iqn} by itself (SAN-HLT-123)")


def _host_data(cluster: Cluster, found: Host) -> host_documents.Host:
    return {
        "name": found.name.value,
        "iqns": [iqn.value for iqn in found.iqns],
        "chap_user": found.chap_user or None,
        "mutual": found.is_mutual,
        "group": _group_of(cluster, found),
        "devices": [device.name.value for device in devices_of(cluster, found.name)],
    }


def _group_of(cluster: Cluster, found: Host) -> str | None:
    return next((each.name.value for each in cluster.cib.groups_with(found.name)), None)


def _login_text(found: Host) -> str:
    if not found.chap_user:
        return "IQN alone"
    return "mutual CHAP" if found.is_mutual else "CHAP"


def _print_host(cluster: Cluster, found: Host) -> None:
    user = f", user {found.chap_user}" if found.chap_user else ""
    devices = ", ".join(device.name.value for device in devices_of(cluster, found.name))
    for label, value in (
        ("host", found.name.value),
        *(("iqn", iqn.value) for iqn in found.iqns),
        ("login", _login_text(found) + user),
        ("group", _group_of(cluster, found) or "none"),
        ("devices", devices or "none"),
    ):
        print(f"{label + ':':<14}{value}")
