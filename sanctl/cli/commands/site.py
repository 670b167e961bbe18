# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl site add`, `set`, `list`, `copies`, `remove`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import accept_option, output_option, yes_option
from sanctl.cli.output import finish, print_table
from sanctl.cli.views.site import limit_text, removal_lines, site_copy_data, site_data
from sanctl.errors import ExitStatus, Problem, UsageError
from sanctl.model.names import DeviceName, format_bytes
from sanctl.model.site import (
    DEFAULT_IDENTITY,
    Site,
    parse_address,
    parse_limit,
    parse_path,
    parse_site_name,
)
from sanctl.ops.site import Place, add_site, limit_site, move_site, remove_site
from sanctl.ops.site_restore import list_copies
from sanctl.plan.site.choosing import unread_problem
from sanctl.plan.site.copy_order import newest_first
from sanctl.plan.site.definition import plan_site_removal
from sanctl.plan.site.grouping import group_copies
from sanctl.plan.site.moments import complete_moments

if TYPE_CHECKING:
    from sanctl.cli.documents import site as site_documents


@click.group(no_args_is_help=False)
def site() -> None:
    """Second sites: servers that take copies of restore points."""


@site.command()
@click.argument("name")
@click.option("--ssh", "address", required=True, metavar="USER@HOST[:PORT]", help="Its server.")
@click.option(
    "--path", required=True, metavar="DIR", help="The directory there, on XFS or btrfs; empty."
)
@click.option(
    "--identity",
    default=DEFAULT_IDENTITY,
    show_default=True,
    metavar="FILE",
    help="The private key that logs in there, on each storage node.",
)
@click.option(
    "--host-key",
    "fingerprint",
    default="",
    metavar="SHA256:...",
    help="The fingerprint that the server's key must have, as ssh-keygen -l shows it. [any]",
)
@click.option(
    "--limit-rate",
    default="none",
    show_default=True,
    metavar="RATE",
    help="How much a copy sends there in a second at most: 500K, 10M; or none.",
)
@output_option
def add(
    *,
    name: str,
    address: str,
    path: str,
    identity: str,
    fingerprint: str,
    limit_rate: str,
    output: str,
) -> None:
    """Add a second site, which 'sanctl replicate run' copies devices to.

    The directory gets a mark, and the server's key is noted: from now on no other directory and no
    other key is taken for it.
    """
    env = environment()
    user, host, port = parse_address(address)
    wanted = Site(
        name=parse_site_name(name),
        user=user,
        host=host,
        port=port,
        path=parse_path(path),
        identity=parse_path(identity),
        mark=env.new_uuid(),
        host_key="",
        limit_bytes_s=parse_limit(limit_rate),
    )
    command_line = f"site add {name} --ssh {address} --path {path} --identity {identity}"
    with env.session() as session, env.logged("site", command_line=command_line):
        made = add_site(
            session,
            wanted,
            env.site_link,
            fingerprint=fingerprint,
            ipc_buffer_bytes=env.ipc_buffer_bytes(),
        )
        cluster = session.observe()

    def text() -> None:
        print(f"site {name} is added: {made.address}, {made.path}")
        print(f"its server's key: {made.fingerprint}")

    finish(output, data=site_data(cluster, made), text=text)


@site.command("set")
@click.argument("name", metavar="SITE")
@click.option("--ssh", "address", metavar="USER@HOST[:PORT]", help="Its server now.")
@click.option("--path", metavar="DIR", help="The directory there, with the mark of this site.")
@click.option(
    "--host-key",
    "fingerprint",
    default="",
    metavar="SHA256:...",
    help="The fingerprint that the server's key must have. [of another HOST:PORT any, else the "
    "known key]",
)
@click.option(
    "--limit-rate",
    metavar="RATE",
    help="How much a copy sends there in a second at most: 500K, 10M; or none.",
)
@output_option
def set_site(
    *,
    name: str,
    address: str | None,
    path: str | None,
    fingerprint: str,
    limit_rate: str | None,
    output: str,
) -> None:
    """Change where SITE is, or how fast copies are sent there: from the next copy on.

    Its directory may be at another path, or its disk on another server: the mark says that it is
    the same site, and the next copy goes on from the newest one there.
    """
    env = environment()
    wanted = parse_site_name(name)
    limit = None if limit_rate is None else parse_limit(limit_rate)
    place = Place(
        None if address is None else parse_address(address),
        None if path is None else parse_path(path),
    )
    is_placed = place != Place() or bool(fingerprint)
    if not is_placed and limit is None:
        raise UsageError(
            Problem(
                "SAN-SITE-001",
                "nothing to change was given",
                "--ssh, --path and --host-key say where the site is, --limit-rate how fast copies "
                "are sent",
            )
        )
    given = (
        ("ssh", address),
        ("path", path),
        ("host-key", fingerprint),
        ("limit-rate", limit_rate),
    )
    words = "".join(f" --{option} {value}" for option, value in given if value)
    changes = []
    with env.session() as session, env.logged("site", command_line=f"site set {name}{words}"):
        if is_placed:
            found, changed = move_site(
                session,
                wanted,
                place,
                env.site_link,
                fingerprint=fingerprint,
                ipc_buffer_bytes=env.ipc_buffer_bytes(),
            )
            changes.append(changed)
        if limit is not None:
            found, changed = limit_site(session, wanted, limit)
            changes.append(changed)
        cluster = session.observe()

    def text() -> None:
        if is_placed:
            print(f"site {name} is at {found.address}, {found.path}")
            print(f"its server's key: {found.fingerprint}")
        if limit is not None:
            print(f"copies are sent to site {name} with {limit_text(limit)}")

    finish(output, data={**site_data(cluster, found), "changed": any(changes)}, text=text)


@site.command("list")
@output_option
def list_sites(output: str) -> None:
    """List the second sites."""
    with environment().session() as session:
        cluster = session.observe()
    found = [site_data(cluster, each) for each in cluster.cib.sites]

    def text() -> None:
        if not found:
            print("there are no sites")
            return
        print_table(
            ("SITE", "SERVER", "DIRECTORY", "HOST KEY", "LIMIT", "DEVICES"),
            (
                (
                    each["name"],
                    each["address"],
                    each["path"],
                    each["fingerprint"],
                    limit_text(each["limit_bytes_s"] or 0),
                    ", ".join(each["devices"]) or "none",
                )
                for each in found
            ),
        )

    finish(output, data=found, text=text)


@site.command()
@click.argument("name", metavar="SITE")
@click.argument("device", required=False)
@output_option
def copies(name: str, device: str | None, output: str) -> None:
    """List the proven copies at a second site: those of DEVICE, or of all; the newest first.

    The site is asked, on this node, which needs its key. Those of other clusters are there, too.
    Exit status 1 if what is noted there of a copy cannot be read: it may be the newest one.
    """
    env = environment()
    wanted = parse_site_name(name)
    only = DeviceName.parse(device).value if device is not None else None
    with env.session() as session:
        where, folders, unread = list_copies(session, wanted, env.site_link)
        cluster = session.observe()
    complete = {
        token for moment in complete_moments(group_copies(folders)) for token in moment.tokens
    }
    found = [
        site_copy_data(cluster, where, folder, each, complete)
        for folder in sorted(folders)
        for each in newest_first(folders[folder])
        if only in {None, folder.partition(".")[0]}
    ]

    problems = [
        unread_problem(name, folder, names, "none is taken or removed in their place unasked")
        for folder, names in sorted(unread.items())
        if only in {None, folder.partition(".")[0]}
    ]

    def text() -> None:
        for problem in problems:
            click.echo(f"{problem}", err=True)
        if not found:
            print(f"site {name} has no copies" + (" that can be read" if problems else ""))
            return
        print_table(
            ("COPY", "MADE (UTC)", "SIZE", "READ WHOLE (UTC)", "OF", "MOMENT"),
            (
                (
                    each["copy"],
                    each["made"].replace("T", " ").removesuffix("Z"),
                    format_bytes(each["size_bytes"]),
                    each["read_whole"].replace("T", " ").removesuffix("Z"),
                    "a device here" if each["is_of_this_cluster"] else "-",
                    _moment_text(each),
                )
                for each in found
            ),
        )

    status = ExitStatus.DEGRADED if problems else ExitStatus.OK
    finish(output, data=found, text=text, status=status, problems=problems)


def _moment_text(copy: site_documents.SiteCopy) -> str:
    """Say whether the site has the copies of all devices of that moment."""
    if not copy["group"]:
        return "alone"
    return f"of {len(copy['group'])}, " + ("complete" if copy["is_complete"] else "not complete")


@site.command()
@click.argument("name")
@yes_option
@accept_option
@output_option
def remove(*, name: str, yes: bool, accepted: tuple[str, ...], output: str) -> None:
    """Remove a site from the cluster, and the restore points kept for it. Its copies stay there.

    The schedules and groups of copies to it go, too: the command shows them first, and asks.
    """
    env = environment()
    wanted = parse_site_name(name)
    with env.session() as session:
        if not yes:
            cluster = session.observe()
            plan_site_removal(cluster, wanted, accepted=accepted)
            for line in removal_lines(cluster, wanted):
                click.echo(line, err=True)
            click.confirm(f"Remove site {wanted}, and all that?", abort=True, err=True)
        with env.logged("site", command_line=f"site remove {name}"):
            remove_site(session, wanted, accepted=accepted)
    finish(
        output,
        data={"name": wanted},
        text=lambda: print(f"site {name} is removed; the copies in its directory stay"),
    )
