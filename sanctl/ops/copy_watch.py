# SPDX-License-Identifier: GPL-2.0-or-later
"""Reports how far a copy to a second site is: to the command's user, and at times to the cluster.

If the process is killed what it has published stays until its node leaves the cluster. It is not
taken for a copy that is under way once it is old (sanctl/plan/site/copy_progress.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from sanctl.errors import SanctlError
from sanctl.model.cluster import Cluster
from sanctl.model.copy_progress import (
    COMPARING,
    ENDED,
    PROGRESS_PREFIX,
    SENDING,
    CopyProgress,
    CopyStep,
)
from sanctl.model.names import format_bytes
from sanctl.ops.session import Session
from sanctl.plan.site import pacing
from sanctl.plan.site.copy_progress import under_way

#: How often it is published, as of a restore (sanctl/agents/restore/filling.py). A copy that is
#: done sooner publishes nothing.
_LOOK_S = 10.0


@contextlib.contextmanager
def watched(
    session: Session, node: str, copied: str, token: str, limit_bytes_s: int
) -> Iterator[Callable[[CopyStep], None]]:
    """Give what a copy tells how far it is.

    Args:
        session: the cluster.
        node: this node.
        copied: DEVICE.SITE.
        token: the restore point's token.
        limit_bytes_s: how much is sent in a second at most; 0: as much as the line takes.
    """
    clock, attribute = session.clock, f"{PROGRESS_PREFIX}{copied}"
    phase, since_s, looked_s = "", 0, clock.monotonic_s()
    is_published = False

    def publish(value: str) -> None:
        # Only for people: an error of it is nothing.
        with contextlib.suppress(SanctlError):
            session.publish_private(node, attribute, value)

    def look(step: CopyStep) -> None:
        nonlocal phase, since_s, looked_s, is_published
        session.reporter.update(step_text(step, limit_bytes_s))
        if step.phase != phase:
            phase, since_s = step.phase, int(clock.wall_s())
        if clock.monotonic_s() - looked_s >= _LOOK_S:
            is_published = True
            publish(str(CopyProgress(token, step, since_s, int(clock.wall_s()))))
            # After it: where the cluster is slow to answer, it is asked less often.
            looked_s = clock.monotonic_s()

    try:
        yield look
    finally:
        if is_published:
            publish(ENDED)


def step_text(step: CopyStep, limit_bytes_s: int) -> str:
    """Say how far a copy is."""
    done, total = format_bytes(step.done_bytes), format_bytes(step.total_bytes)
    if step.phase == COMPARING:
        return f"comparing: {done} of {total} read here"
    if step.phase == SENDING:
        left = _left_text(step.total_bytes - step.done_bytes, limit_bytes_s)
        return f"sending: {done} of {total} that may have changed{left}"
    return "waiting for the site to read its copy"


def _left_text(left_bytes: int, limit_bytes_s: int) -> str:
    """Say how long it takes, where the rate is limited; without a limit that is not known."""
    if not limit_bytes_s:
        return ""
    seconds = pacing.left_s(left_bytes, limit_bytes_s)
    duration = f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
    return f", {duration} left at {format_bytes(limit_bytes_s)}/s"


def copies_under_way(
    session: Session, cluster: Cluster
) -> Mapping[tuple[str, str], tuple[str, CopyProgress]]:
    """Return the copies that nodes say they make now, by device and site, with the node's name.

    Nodes are asked only where the CIB notes that a run was begun and has not ended.
    """
    now_s, found = session.clock.wall_s(), {}
    for record in cluster.cib.copies:
        if not record.attempt:
            continue
        with contextlib.suppress(SanctlError):
            published = session.published(f"{PROGRESS_PREFIX}{record.device}.{record.site}")
            progress = under_way(record, published, now_s)
            if progress is not None:
                found[record.device, record.site] = progress
    return found
