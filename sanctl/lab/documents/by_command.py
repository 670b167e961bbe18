# SPDX-License-Identifier: GPL-2.0-or-later
"""Which JSON document each command of `sanctl lab` and `sanctl bench` prints (--output json)."""

from __future__ import annotations

from collections.abc import Mapping

from sanctl.cli.documents.by_command import DOCUMENTS
from sanctl.lab.documents.host_pauses import DevicesCrashes, Levels, PartnerLosses, PointPauses
from sanctl.lab.documents.machines import KernelCheck, Lab, LabPower, Labs
from sanctl.lab.documents.processor_time import Costs, StatusCosts
from sanctl.lab.documents.second_site import CopyBench, SiteBench
from sanctl.lab.documents.stock_agents import Peers
from sanctl.lab.documents.throughput import CacheBench, OffloadBench, PathBench

#: What `data` holds when a command succeeds, by the command's words: those of a checkout, which
#: has the laboratory's commands, too.
ALL_DOCUMENTS: Mapping[str, object] = {
    **DOCUMENTS,
    "bench cache": CacheBench,
    "bench cost": Costs,
    "bench failover": DevicesCrashes,
    "bench levels": Levels,
    "bench offload": OffloadBench,
    "bench partner": PartnerLosses,
    "bench path": PathBench,
    "bench peers": Peers,
    "bench replicate": CopyBench,
    "bench site": SiteBench,
    "bench snapshot": PointPauses,
    "bench status": StatusCosts,
    "lab kernel-check": KernelCheck,
    "lab list": Labs,
    "lab power": LabPower,
    "lab status": Lab,
    "lab up": Lab,
}
