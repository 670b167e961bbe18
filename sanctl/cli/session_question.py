# SPDX-License-Identifier: GPL-2.0-or-later
"""The question before a change of who may use a device ends sessions that hosts have now."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import click

from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName, Iqn
from sanctl.ops.session import Session
from sanctl.plan.device.host_logins import HostLogins, logins_of

_NAMED = 8


def ask_before_sessions_end(
    session: Session, cluster: Cluster, denied: Mapping[DeviceName, Collection[Iqn]]
) -> None:
    """Name the sessions that end, and ask; without any, and where all nodes say so, do not.

    Args:
        session: the cluster.
        cluster: as observed, before the nodes are asked who is logged in.
        denied: by device, the initiators that are to lose it.

    Raises:
        click.Abort: no answer, or another one than yes.
    """
    sessions = session.host_sessions()
    ending = {
        name: found
        for name, iqns in denied.items()
        if any(found := logins_of(cluster, name, iqns, sessions))
    }
    if not ending:
        return
    for name, found in ending.items():
        click.echo(f"device {name}: {logins_text(found)}", err=True)
    click.echo(
        "their sessions end; what such a host still writes gets no error where multipath queues: "
        "it waits for a path. Stop what uses it there, and unmount it first",
        err=True,
    )
    click.confirm("End these sessions?", abort=True, err=True)


def logins_text(found: HostLogins) -> str:
    """Return who is logged in, and which nodes do not say."""
    more = ["..."] if len(found.hosts) > _NAMED else []
    said = [f"logged in now: {', '.join([*found.hosts[:_NAMED], *more])}"] if found.hosts else []
    if found.silent:
        said.append(f"{', '.join(found.silent)} does not say who is logged in")
    return "; ".join(said) or "nobody is logged in"
