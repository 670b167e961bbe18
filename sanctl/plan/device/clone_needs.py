# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which restore points have to stay, as devices are being made from them.

A clone is new until it is first active (`sanctl-new` in the CIB). Until then its replicas are made
from the files of the restore point, so these stay. It is first active only once all its replicas
are connected, so afterwards each has its data, or is being filled from one that has.
"""

from __future__ import annotations

from collections.abc import Collection

from sanctl.errors import Problem
from sanctl.model.clone_origin import CloneOrigin
from sanctl.model.cluster import Cluster
from sanctl.model.names import NodeName
from sanctl.model.restore_point import RestorePoint


def needed_by_clones(
    cluster: Cluster, points: Collection[RestorePoint], *, on: Collection[NodeName] | None = None
) -> tuple[Problem, ...]:
    """Return which clones that are being made need the files of restore points.

    Args:
        cluster: as it is.
        points: the restore points whose files are to go.
        on: the nodes from which they are to go; None: from all.
    """
    tokens, problems = {point.token for point in points}, []
    for clone in cluster.cib.devices:
        origin = clone.origin
        if origin is None or not clone.is_new or origin.token not in tokens:
            continue
        if on is not None and not any(
            node in clone.nodes and node.value in origin.nodes for node in on
        ):
            continue
        problems.append(
            Problem(
                "SAN-CLONE-005",
                f"device {clone.name} is being made from restore point {origin.name}, and has not "
                "been served yet",
                f"try again when 'sanctl device show {clone.name}' shows it served; one that "
                "cannot be made has to be deleted first",
            )
        )
    return (*problems, *_needed_by_unreadable(cluster, tokens))


def _needed_by_unreadable(cluster: Cluster, tokens: Collection[str]) -> tuple[Problem, ...]:
    """Return which clones that cannot be read may need restore points: new ones, for all we know.

    A clone whose origin cannot be read either may be being made from any of them.
    """
    return tuple(
        Problem(
            "SAN-CLONE-005",
            f"device {identifier} cannot be read, and may be being made from such a restore point",
            "upgrade sanctl on this node if a later release made the device; else correct its "
            f"entry: cibadmin --query --xpath \"//clone[@id='sanctl-{identifier}']\"",
        )
        for identifier, text in cluster.cib.unreadable_origins
        if tokens and ((origin := CloneOrigin.parse(text)) is None or origin.token in tokens)
    )
