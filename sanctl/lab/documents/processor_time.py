# SPDX-License-Identifier: GPL-2.0-or-later
"""What `sanctl bench cost` and `bench status` print: what agents and commands take."""

from __future__ import annotations

from typing import Annotated, TypedDict


class ProgramCost(TypedDict):
    """What one program cost, by median."""

    program: Annotated[str, "what was run"]
    cpu_s: Annotated[float, "processor time, kernel and children included"]
    wall_s: Annotated[float, "time from start to end"]
    runs: Annotated[int, "how often it was run"]


class NodeCpu(TypedDict):
    """What a node's processors did in some time."""

    node: Annotated[str, "the node"]
    seconds: Annotated[float, "for how long"]
    cpu_s: Annotated[float, "processor time of all that ran, kernel included"]
    actions_s: Annotated[float, "of that, in sanctl-actions.service: agents' actions and handlers"]
    pacemaker_s: Annotated[
        float, "of that, in pacemaker.service: its daemons, and the clients that they start"
    ]


class Costs(TypedDict):
    """What sanctl costs beside what people run today."""

    device: Annotated[str, "the device that was monitored"]
    node: Annotated[str, "where"]
    devices: Annotated[int, "how many devices the status had to show"]
    costs: Annotated[list[ProgramCost], "each program"]
    monitor_ratio: Annotated[
        float, "processor time of our monitor, where nothing has changed, by that of the stock one"
    ]
    whole_ratio: Annotated[
        float, "processor time of our monitor that does all of its work by that of the stock one"
    ]
    minute_ratio: Annotated[
        float,
        "processor time of a minute of our monitors, one of twelve a whole one, by that of the"
        " stock one's",
    ]
    goal: Annotated[float, "what `minute_ratio` may be at most"]
    idle: Annotated[
        list[NodeCpu], "each storage node, with nothing asked of it; empty without `--idle`"
    ]
    status_ratio: Annotated[float, "processor time of `sanctl status` by that of `crm_mon -1`"]


class StatusCost(TypedDict):
    """What `sanctl status` of a cluster that is made up took, by median."""

    situation: Annotated[
        str, "`healthy`, `n3 lost`, or `n3 returned`: its replicas do not resync yet"
    ]
    cpu_s: Annotated[float, "processor time, kernel and children included"]
    wall_s: Annotated[float, "time from start to end"]
    cib_bytes: Annotated[int, "size of the CIB"]
    compressed_bytes: Annotated[int, "the same, by bzip2, as Pacemaker compresses it"]


class StatusCosts(TypedDict):
    """What `sanctl status` of many devices takes."""

    devices: Annotated[int, "how many"]
    runs: Annotated[int, "of each"]
    costs: Annotated[list[StatusCost], "each cluster"]
