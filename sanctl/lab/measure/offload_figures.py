# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of copies within a device: by the node (EXTENDED COPY) and through the host. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sanctl.model.names import format_bytes

#: How much of what is copied may cross the network of hosts where the node copies.
NETWORK_GOAL = 0.05


class Method(StrEnum):
    """How a range of a device is copied to another range of it."""

    OFFLOAD = "EXTENDED COPY"
    HOST = "through the host"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeCopy:
    """One copy within a device.

    Attributes:
        method: how it was made.
        seconds: until it was flushed.
        iscsi_bytes: what the host has sent and got on the iscsi network meanwhile.
        sync_bytes: what the node that serves has sent and got on the sync network meanwhile.
        is_equal: whether the range that was written is the one that was read.
    """

    method: Method
    seconds: float
    iscsi_bytes: int
    sync_bytes: int
    is_equal: bool


def time_ratio(copies: Sequence[RangeCopy]) -> float:
    """Return the median time of a copy by the node, by that of one through the host."""
    by_node, by_host = (_seconds(copies, method) for method in Method)
    return statistics.median(by_node) / statistics.median(by_host)


def is_good(copies: Sequence[RangeCopy], copied_bytes: int) -> bool:
    """Whether each copy is equal, and none by the node has crossed the network of hosts."""
    return all(copy.is_equal for copy in copies) and all(
        copy.iscsi_bytes <= NETWORK_GOAL * copied_bytes
        for copy in copies
        if copy.method is Method.OFFLOAD
    )


COLUMNS = ("COPIED", "TOOK (LEAST-MOST)", "ISCSI NETWORK", "SYNC NETWORK", "EQUAL")


def rows(copies: Sequence[RangeCopy]) -> list[tuple[str, ...]]:
    """Return a row for each method: medians, with the least and the most time."""
    found: list[tuple[str, ...]] = []
    for method in Method:
        of_method = [copy for copy in copies if copy.method is method]
        seconds = _seconds(copies, method)
        found.append(
            (
                method.value,
                f"{statistics.median(seconds):.2f} s ({min(seconds):.2f}-{max(seconds):.2f})",
                format_bytes(int(statistics.median(copy.iscsi_bytes for copy in of_method))),
                format_bytes(int(statistics.median(copy.sync_bytes for copy in of_method))),
                f"{sum(copy.is_equal for copy in of_method)} of {len(of_method)}",
            )
        )
    return found


def _seconds(copies: Sequence[RangeCopy], method: Method) -> list[float]:
    return [copy.seconds for copy in copies if copy.method is method]
