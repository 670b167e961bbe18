# SPDX-License-Identifier: GPL-2.0-or-later
"""Three and more copies: what keeps write-back safe that goes on with two of them.

With two copies DRBD freezes a Primary that loses its peer, and the fence-peer handler ends
write-back before I/O goes on. With more a majority goes on at once: a copy that is good could be
lost while one that is still being filled is connected, and what is acknowledged next would be in
the RAM of one good copy alone. So while the copy of a Primary may be in write-back DRBD is told to
freeze I/O whenever fewer than two good copies are connected (docs/adr/0043):

* hold: the resource file says so, then the kernel is told; only what is seen after that counts.
* release: once nothing is in RAM alone the kernel is told, then the file says so.

So an adjust of DRBD to its file takes nothing back, and whoever dies half way leaves a hold that is
not needed, which the next monitor takes off.
"""

from __future__ import annotations

from sanctl.agents.replica import resource_file
from sanctl.drivers import drbdsetup
from sanctl.model.drbd import ResourceState
from sanctl.plan.cache.allowed_mode import are_two_replicas_in_sync, must_require_two_replicas
from sanctl.system.runner import Runner


def is_required(name: str) -> bool:
    """Whether I/O is held here while fewer than two good copies are connected."""
    return resource_file.requires_two(name)


def require_two(runner: Runner, name: str) -> None:
    """Hold I/O from now on whenever there are fewer than two; told again does no harm.

    Raises:
        SanctlError: DRBD did not take it; nothing may be in RAM.
    """
    resource_file.set_requires_two(name, on=True)
    drbdsetup.require_two(runner, name)


def is_missing(state: ResourceState | None) -> bool:
    """Whether a Primary in write-back has to be held and is not: an older release began it."""
    return (
        state is not None
        and must_require_two_replicas(state, may_be_write_back=True)
        and not is_required(state.name)
    )


def require_two_and_observe(runner: Runner, name: str) -> ResourceState | None:
    """Return DRBD's state, seen with the hold on where there has to be one.

    Told each time it is needed, not only where the file does not say so: who wrote that may have
    died before it told the kernel. Never without two good copies: DRBD would refuse every change
    of state that a peer tells of, and give up its connection.
    """
    state = drbdsetup.observe(runner, name)
    if state is None or not must_require_two_replicas(state, may_be_write_back=True):
        return state
    if not are_two_replicas_in_sync(state):
        return state
    require_two(runner, name)
    return drbdsetup.observe(runner, name)


def clear(runner: Runner, name: str) -> None:
    """Let a majority be enough; I/O that was held only for this goes on.

    Raises:
        SanctlError: DRBD did not take it; the next monitor tries again.
    """
    if not is_required(name):
        return
    force_clear(runner, name)


def force_clear(runner: Runner, name: str) -> None:
    """As `release`, also where the file says that nothing is held.

    An adjust of DRBD beside a release may have told the kernel what the file had said before.

    Raises:
        SanctlError: see `release`.
    """
    drbdsetup.require_majority(runner, name, replica_count=len(resource_file.nodes(name)))
    resource_file.set_requires_two(name, on=False)
