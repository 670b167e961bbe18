# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD 9's quorum-minimum-redundancy 2 for write-back with three or four replicas.

With two replicas DRBD freezes a Primary that loses its peer, and the fence-peer handler ends
write-back before I/O goes on. With more a majority goes on at once: an UpToDate replica could be
lost while one that is still the target of a resync is connected, and the next acknowledged writes
would be in the RAM of one UpToDate replica alone. So while a Primary's replica may be in write-back
DRBD has to freeze I/O whenever fewer than two UpToDate replicas are connected (docs/adr/0043):

* require two: the resource file is written, then the kernel is set; only DRBD states that are
  observed after that count.
* clear: once nothing is in RAM alone the kernel is set, then the file is written.

So `drbdadm adjust` takes nothing back, and a kill half way leaves a requirement that is not needed,
which the next monitor clears.
"""

from __future__ import annotations

from sanctl.agents.replica import resource_file
from sanctl.drivers import drbdsetup
from sanctl.model.drbd import ResourceState
from sanctl.plan.cache.allowed_mode import are_two_replicas_in_sync, must_require_two_replicas
from sanctl.system.runner import Runner


def is_required(name: str) -> bool:
    """Whether the resource file requires two UpToDate replicas for I/O."""
    return resource_file.requires_two(name)


def require_two(runner: Runner, name: str) -> None:
    """Make DRBD freeze I/O whenever fewer than two replicas are UpToDate; may be repeated.

    Raises:
        SanctlError: DRBD did not take it; write-back is not allowed.
    """
    resource_file.set_requires_two(name, on=True)
    drbdsetup.require_two(runner, name)


def is_missing(state: ResourceState | None) -> bool:
    """Whether a Primary in write-back lacks the requirement, as an older release left it."""
    return (
        state is not None
        and must_require_two_replicas(state, may_be_write_back=True)
        and not is_required(state.name)
    )


def require_two_and_observe(runner: Runner, name: str) -> ResourceState | None:
    """Require two replicas where write-back needs that, and return DRBD's state after it.

    The kernel is set each time, not only where the file lacks the line: the process that wrote the
    file may have died before it set the kernel. Never without two UpToDate replicas: DRBD would
    refuse every state change that a peer sends, and give up that connection.
    """
    state = drbdsetup.observe(runner, name)
    if state is None or not must_require_two_replicas(state, may_be_write_back=True):
        return state
    if not are_two_replicas_in_sync(state):
        return state
    require_two(runner, name)
    return drbdsetup.observe(runner, name)


def clear(runner: Runner, name: str) -> None:
    """Let a majority be enough again; I/O that was frozen only for this goes on.

    Raises:
        SanctlError: DRBD did not take it; the next monitor tries again.
    """
    if not is_required(name):
        return
    force_clear(runner, name)


def force_clear(runner: Runner, name: str) -> None:
    """As `clear`, also where the file does not have the requirement.

    A `drbdadm adjust` at the time of a `clear` may have given the kernel the file's old text.

    Raises:
        SanctlError: see `clear`.
    """
    drbdsetup.require_majority(runner, name, replica_count=len(resource_file.replica_nodes(name)))
    resource_file.set_requires_two(name, on=False)
