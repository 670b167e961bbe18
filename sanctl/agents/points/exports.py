# SPDX-License-Identifier: GPL-2.0-or-later
"""The pool agent's part in exported restore points: who may log in follows the cluster's hosts.

An export is no resource, so no action of Pacemaker brings its access list up to date. The monitor
of the pool agent does: CHAP that a host has been given, a secret that has changed, a host that is
gone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection

from sanctl.drivers import cib, host_secrets, lio_export
from sanctl.drivers.lio_acl import Chap
from sanctl.drivers.lio_export import Export
from sanctl.errors import SanctlError
from sanctl.model.cib_names import HOST_PREFIX, HOSTS_ID
from sanctl.plan.device.export_access import (
    CibHosts,
    ExportAccess,
    access_now,
    note_text,
    read_cib_hosts,
    read_note,
)
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

# What keeps initiators out of an export that it was given to: as last logged.
_PROBLEMS = "export-problems"
#: What the pool agent publishes of each pool: a CIB without has lost all of the node.
_POOL_ATTRIBUTE = "sanctl-pool-"


def follow_hosts(runner: Runner, is_quorate: Callable[[], bool]) -> None:
    """Bring the access list of each export up to date.

    An error of one is logged, and the next monitor tries again. While the CIB gives no answer,
    without quorum, and while a command exports, nothing changes. Nor does it where the CIB has
    nothing of this node: one that has lost all, as for a moment, would end each export.

    Args:
        runner: starts the cluster's tools.
        is_quorate: asks whether the node is in a partition with quorum; only where it exports.

    Raises:
        CommandError: the CIB gave no answer.
    """
    with state_files.locked(state_files.node_lock("exports"), wait_s=0.0) as is_mine:
        if not is_mine:
            return
        exports = lio_export.listed()
        # A part without quorum learns of no host that has changed.
        hosts = _cib_hosts(runner) if exports and is_quorate() else None
        if hosts is not None:
            for export in exports:
                try:
                    _follow(export, hosts)
                except (SanctlError, OSError) as error:
                    _log(export, f"its access list: {error}; the next monitor tries again")
        _forget_ended(exports)


def _cib_hosts(runner: Runner) -> CibHosts | None:
    """Return the CIB's hosts; None where it has not got what this node has there, too."""
    here = os.uname().nodename
    found = cib.query(
        runner,
        f"//configuration/crm_config/cluster_property_set[@id='{HOSTS_ID}']/nvpair"
        f"|//configuration/nodes/node[@uname='{here}']"
        f"|//status/node_state[@uname='{here}']/transient_attributes"
        f"//nvpair[starts-with(@name,'{_POOL_ATTRIBUTE}')]",
    )
    if found is None:
        return None
    pairs = {pair.get("name", ""): pair.get("value", "") for pair in found.iter("nvpair")}
    is_whole = any(name.startswith(_POOL_ATTRIBUTE) for name in pairs) and any(
        node.get("uname") == here for node in found.iter("node")
    )
    return read_cib_hosts(pairs, HOST_PREFIX) if is_whole else None


def _follow(export: Export, hosts: CibHosts) -> None:
    note = lio_export.access_note(export.device, export.point)
    before = lio_export.access(export.iqn)
    noted = read_note(note.read(), before)
    now = access_now(noted, hosts)
    logins, problems = _logins(now.access)
    if (
        before != _words(now.access)
        or not lio_export.has_credentials(export.iqn, logins)
        or lio_export.asks_everyone(export.iqn)
    ):
        problems += lio_export.set_logins(export.iqn, logins)
        after = lio_export.access(export.iqn)
        for host in now.gone:
            _log(export, f"host {host}, to which it was exported, is gone")
        for word in sorted(before - after):
            _log(export, f"not let in any more: {word}")
        for word in sorted(after - before):
            _log(export, f"let in from now on: {word}")
    _log_problems(export, problems)
    # After the kernel: a process that dies in between finds the same difference again.
    if note_text(now.noted) != note.read():
        note.write(note_text(now.noted))


def _logins(access: ExportAccess) -> tuple[dict[str, Chap | None], list[str]]:
    """Return how initiators log in, by IQN, and why secrets cannot be used."""
    logins: dict[str, Chap | None] = dict.fromkeys(access.initiators)
    problems = []
    for host in access.hosts:
        found = host_secrets.login(host) if host.chap_user else None
        if isinstance(found, str):
            problems.append(
                f"host {host.name}: {host_secrets.FOLDER}/{host.name}: {found} (SAN-HOST-011)"
            )
            # An entry that is there asks from now on, and lets nobody in.
            found = Chap(host.chap_user, is_mutual=host.is_mutual)
        logins |= dict.fromkeys(host.iqns, found)
    return logins, problems


def _words(access: ExportAccess) -> frozenset[str]:
    return frozenset({*access.initiators, *(word for host in access.hosts for word in host.words)})


def _log_problems(export: Export, problems: Collection[str]) -> None:
    note, text = _problems_note(f"{export.device}.{export.point}"), "\n".join(problems)
    # Without room for the note each monitor logs them; nothing depends on it.
    with contextlib.suppress(OSError):
        if note.read() == text:
            return
    for problem in problems:
        _log(export, f"not let in: {problem}")
    with contextlib.suppress(OSError):
        note.write(text)


def _problems_note(suffix: str) -> state_files.StateFile:
    return state_files.of_node(f"{_PROBLEMS}.{suffix}")


def _forget_ended(exports: Collection[Export]) -> None:
    there = {f"{each.device}.{each.point}" for each in exports}
    for kind in (lio_export.ACCESS_NOTE, _PROBLEMS):
        for suffix in state_files.node_suffixes(kind):
            if suffix not in there:
                state_files.of_node(f"{kind}.{suffix}").remove()


def _log(export: Export, text: str) -> None:
    journal.write(
        f"restore point {export.device}@{export.point}, exported here: {text}",
        priority=journal.WARNING,
        device=export.device,
        action="export",
    )
