# SPDX-License-Identifier: GPL-2.0-or-later
"""What `sanctl bench cache`, `offload` and `path` print: requests a second, latency, copies."""

from __future__ import annotations

from typing import Annotated, TypedDict


class CacheFigures(TypedDict):
    """Random mixed I/O in one mode of the pool's flash, or with a read cache instead."""

    mode: Annotated[str, "`none`, `write-through`, `write-back` or `read cache in RAM`"]
    iops: Annotated[float, "requests a second"]
    factor: Annotated[float, "that by those of `none`"]
    mean_ms: Annotated[float, "mean latency"]
    read_ms: Annotated[float, "mean latency of reads"]
    write_ms: Annotated[float, "mean latency of writes"]
    p50_ms: Annotated[float, "half were answered within this time"]
    p95_ms: Annotated[float, "of twenty, all but one"]
    p99_ms: Annotated[float, "of a hundred, all but one"]
    hit_percent: Annotated[
        int | None, "reads that the serving node found there; null: not reported"
    ]


class ReferenceFigures(TypedDict):
    """The same mode in the run for comparison."""

    mode: Annotated[str, "`none`, `write-through` or `write-back`"]
    iops: Annotated[float, "requests a second"]
    mean_ms: Annotated[float, "mean latency"]


class CacheBench(TypedDict):
    """Random I/O on slow disks, by cache mode of flash or RAM."""

    what: Annotated[str, "what was done"]
    seconds: Annotated[int, "of each mode"]
    machine: Annotated[str, "where"]
    modes: Annotated[list[CacheFigures], "each mode"]
    reference: Annotated[list[ReferenceFigures], "the run for comparison"]


class PathLoad(TypedDict):
    """One kind of load on the data path."""

    kind: Annotated[str, "`read`, `write` or `mixed`, all random"]
    block_bytes: Annotated[int, "size of a request"]
    depth: Annotated[int, "requests in flight"]


class PathLayer(TypedDict):
    """A layer of the data path under one load, medians of all turns."""

    layer: Annotated[str, "`raw disk`, `LIO`, `DRBD and LIO by hand` or `sanctl`"]
    iops: Annotated[float, "requests a second"]
    mb_s: Annotated[float, "throughput in MB (10^6 bytes) a second"]
    p50_ms: Annotated[float, "half were answered within this time"]
    p99_ms: Annotated[float, "of a hundred, all but one"]


class PathResult(PathLoad):
    """One kind of load on all layers."""

    ratio: Annotated[float, "requests of sanctl by those of DRBD and LIO by hand, median of turns"]
    ratios: Annotated[list[float], "that of each turn"]
    layers: Annotated[list[PathLayer], "each layer"]


class PathRun(PathLoad):
    """One run of fio."""

    turn: Annotated[int, "which turn it was in, from 1"]
    layer: Annotated[str, "the layer"]
    iops: Annotated[float, "requests a second"]
    p50_ms: Annotated[float, "half were answered within this time"]
    p99_ms: Annotated[float, "of a hundred, all but one"]


class PathBench(TypedDict):
    """Raw disk, LIO, DRBD and LIO by hand, and sanctl, in turns in one laboratory."""

    seconds: Annotated[int, "of each run"]
    versions: Annotated[list[str], "kernel, DRBD's module and filesystem of the nodes"]
    conditions: Annotated[list[str], "what the layers are, and what they share"]
    differences: Annotated[list[str], "settings of sanctl that differ from those by hand"]
    load_average: Annotated[float, "of this machine, over 15 minutes, at the end"]
    ratio: Annotated[float, "requests of sanctl by those of DRBD and LIO by hand, median of loads"]
    goal: Annotated[float, "what the ratio should at least be"]
    loads: Annotated[list[PathResult], "each load"]
    runs: Annotated[list[PathRun], "each run, in order"]


class OffloadCopy(TypedDict):
    """One copy of half a device to its other half."""

    method: Annotated[str, "`EXTENDED COPY` or `through the host`"]
    took_s: Annotated[float, "until it was flushed"]
    iscsi_bytes: Annotated[int, "what the host has sent and got on the iscsi network"]
    sync_bytes: Annotated[int, "what the serving node has sent and got on the sync network"]
    is_equal: Annotated[bool, "whether both halves were the same afterwards"]


class OffloadBench(TypedDict):
    """Copies within a device by the node that serves it, and through the host, in turns."""

    copied_bytes: Annotated[int, "of each copy"]
    versions: Annotated[list[str], "kernel, DRBD's module and packages of the nodes"]
    load_average: Annotated[float, "of this machine, over 15 minutes, at the end"]
    ratio: Annotated[float, "time of EXTENDED COPY by that of a copy through the host, medians"]
    copies: Annotated[list[OffloadCopy], "each copy, in order"]
