# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether hosts are let in to a device that awaits what its second sites say.

The decision is made once after the whole cluster was started anew. From then on it is known on each
node by itself, and passed on to nodes that start later. What is not known is no.

Light: the agents import it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from sanctl.model.admission import LET_IN_KEY
from sanctl.model.packed_states import unpack

_BOOT_DIGITS = 12
_RUN = re.compile(rf"[0-9a-f]{{{_BOOT_DIGITS}}}-[0-9]+")


class Evidence(NamedTuple):
    """What a node has at hand, without asking anybody.

    Attributes:
        run: the run of the cluster software on this node; empty: not known.
        noted: the run in which this node has noted that hosts are let in; empty: none.
        released: the runs in which they are let in by an order in the CIB.
        serves_hosts: the node serves the device now, and the kernel has entries in its access list.
    """

    run: str
    noted: str
    released: str
    serves_hosts: bool


def run_of(boot_id: str, start_id: str) -> str:
    """Return what no other run of the cluster software has, on any node; empty: not known.

    Args:
        boot_id: the kernel's, a new one for each boot.
        start_id: what tells a start of the cluster software from others of that boot.
    """
    boot = boot_id.strip().replace("-", "")[:_BOOT_DIGITS]
    return f"{boot}-{start_id}" if len(boot) == _BOOT_DIGITS and start_id.isdecimal() else ""


def is_let_in(evidence: Evidence) -> bool:
    """Whether this node knows by itself that hosts are let in.

    A start and a promotion close the access list before the node serves, if it is not known. So a
    node that serves hosts was allowed to, or the setting has come while it did.
    """
    if evidence.serves_hosts:
        return True
    return bool(evidence.run) and (
        evidence.noted == evidence.run or evidence.run in evidence.released.split()
    )


def is_said_by_another(device: str, packed: Iterable[str]) -> bool:
    """Whether another node with a replica says that hosts are let in.

    Args:
        device: the device's name.
        packed: what these nodes publish of all their replicas (model/packed_states.py). It ends
            with their membership: a node that was started anew says nothing before it knows. What
            it has on tmpfs of an earlier run it does not publish (publish/node_states.py), and it
            says in which run it speaks; one that does not know that is not believed.
    """
    return any(
        key == LET_IN_KEY and _RUN.fullmatch(run)
        for text in packed
        for word in unpack(text).get(device, "").split()
        for key, _, run in (word.partition("="),)
    )
