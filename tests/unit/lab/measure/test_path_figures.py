# SPDX-License-Identifier: GPL-2.0-or-later
"""Layers of the data path: fio's real document read, medians, ratios, judgement, differences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sanctl.lab.measure import fio_result, path_figures
from sanctl.lab.measure.path_figures import BY_HAND, LAYERS, LIO, OURS, RAW, Cell, Figures, Run

READ = Cell("read", 4096, 1)
WRITE = Cell("write", 1 << 20, 32)


def runs(cell: Cell, turn: int, iops: dict[str, float]) -> list[Run]:
    return [
        Run(turn, cell, layer, Figures(iops=each, p50_s=0.001, p99_s=0.01))
        for layer, each in iops.items()
    ]


def turn(number: int, by_hand: float, ours: float, cell: Cell = READ) -> list[Run]:
    return runs(cell, number, {RAW: 1000.0, LIO: 500.0, BY_HAND: by_hand, OURS: ours})


def test_a_cells_ratio_is_the_median_of_its_turns_each_with_its_own_noise() -> None:
    # The machine was twice as slow in the second turn: both stacks are, and their ratio is not.
    found = [*turn(0, 100.0, 90.0), *turn(1, 50.0, 48.0), *turn(2, 100.0, 99.0)]
    (result,) = path_figures.summarize(found)
    assert result.ratios == pytest.approx((0.9, 0.96, 0.99))
    assert result.ratio == pytest.approx(0.96)
    assert result.medians[BY_HAND].iops == 100.0
    assert result.megabytes_s(BY_HAND) == pytest.approx(0.4096)


def test_a_turn_in_which_a_layer_is_missing_does_not_count() -> None:
    found = [*turn(0, 100.0, 90.0), *turn(1, 100.0, 10.0)[:-1], *turn(0, 1.0, 1.0, WRITE)[1:]]
    (result,) = path_figures.summarize(found)
    assert (result.cell, result.ratios) == (READ, (0.9,))
    assert path_figures.summarize(turn(0, 1.0, 1.0)[:3]) == []


@pytest.mark.parametrize(
    ("ours", "is_held"),
    [((96.0, 97.0, 120.0), True), ((96.9, 96.9, 120.0), False), ((97.0, 10.0, 97.0), True)],
)
def test_the_goal_is_about_the_median_of_the_cells(ours: tuple[float, ...], is_held: bool) -> None:
    cells = path_figures.cells([4096], [1])
    assert [cell.kind for cell in cells] == ["read", "write", "mixed"]
    found = path_figures.summarize(
        run for cell, each in zip(cells, ours, strict=True) for run in turn(0, 100.0, each, cell)
    )
    assert path_figures.is_held(found) is is_held


def test_nothing_measured_holds_no_goal() -> None:
    assert not path_figures.is_held([])


def test_cells_are_all_combinations() -> None:
    cells = path_figures.cells([4096, 65536, 1 << 20], [1, 32])
    assert len(set(cells)) == 18
    assert str(cells[0]) == "read 4k, 1 in flight"
    assert str(cells[-1]) == "mixed 1M, 32 in flight"
    assert path_figures.block_text(512) == "512"


def sample(kind: str) -> str:
    return (Path(__file__).parent / "fio" / f"{kind}.json").read_text()


def test_what_fio_prints_is_read() -> None:
    mixed = path_figures.parse("fio: a note\n" + sample("randrw"))
    reads, writes = fio_result.parse(sample("randrw"))
    assert mixed.iops == pytest.approx(reads.iops + writes.iops)
    assert sum(reads.bins.values()) == reads.total
    assert sum(writes.bins.values()) == writes.total
    assert 0 < mixed.p50_s < mixed.p99_s


def test_one_side_alone_has_fios_own_percentiles() -> None:
    reads, writes = fio_result.parse(sample("randread"))
    assert (writes.total, writes.iops, writes.bins) == (0, 0, {})
    found = path_figures.parse(sample("randread"))
    assert found.iops == reads.iops
    said = json.loads(sample("randread"))["jobs"][0]["read"]["lat_ns"]["percentile"]
    # fio names the upper end of a bin, its histogram the middle.
    fio_s = (said["50.000000"] / 1e9, said["99.000000"] / 1e9)
    assert (found.p50_s, found.p99_s) == pytest.approx(fio_s, rel=0.02)


def test_a_run_that_did_nothing_is_refused() -> None:
    text = sample("randread")
    with pytest.raises(ValueError, match="error 5"):
        fio_result.parse(text.replace('"error" : 0', '"error" : 5'))
    with pytest.raises(ValueError, match="substring"):
        fio_result.parse("fio: no such file")
    nothing = '{"jobs": [{"error": 0, "read": %s, "write": %s}]}'
    side = '{"iops": 0, "total_ios": 0, "lat_ns": {"mean": 0}}'
    with pytest.raises(ValueError, match="wrote nothing"):
        fio_result.parse(nothing % (side, side))


def test_tables_have_each_layer_and_the_ratio_once(tmp_path: Path) -> None:
    found = path_figures.summarize(
        [*turn(0, 100.0, 90.0), *turn(1, 100.0, 99.0), *turn(0, 10.0, 9.9, WRITE)]
    )
    rows = path_figures.rows(found)
    assert [row[1] for row in rows] == [*LAYERS, *LAYERS]
    assert [row[-1] for row in rows if row[-1]] == ["0.95 (0.90-0.99)", "0.99 (0.99-0.99)"]
    assert {len(row) for row in rows} == {len(path_figures.COLUMNS)}
    lines = path_figures.markdown(found).splitlines()
    assert len(lines) == 4
    assert len({line.count("|") for line in lines}) == 1
    for path in path_figures.draw(found, "title", tmp_path / "path"):
        assert path.stat().st_size > 1000


SHOWN = """\
resource vm1 {
    options {
        on-no-data-accessible	suspend-io;
    }
    net {
        protocol            	C;
        max-buffers         	8000; # default
        shared-secret       	"0123";
    }
    _this_host {
        address			ipv4 10.77.2.1:7001;
        volume 0 {
            device			minor 1;
            disk			"/dev/loop1";
            disk {
                size            	196608s; # bytes
                al-extents          	67;
            }
        }
    }
}
"""


def test_drbds_options_are_read_without_addresses_and_the_secret() -> None:
    assert path_figures.drbd_options(SHOWN) == {
        "options on-no-data-accessible": "suspend-io",
        "net protocol": "C",
        "net max-buffers": "8000",
        "disk size": "196608s",
        "disk al-extents": "67",
    }


def test_what_differs_is_said_for_both() -> None:
    ours = path_figures.settings("emulate_pr:0\nalua_support:1\nqueue_depth:128\n")
    by_hand = path_figures.settings("emulate_pr:1\nqueue_depth:128\nemulate_dpo:1\nno setting\n")
    assert path_figures.differences("LIO:", ours, by_hand) == [
        "LIO: alua_support: sanctl 1, by hand absent",
        "LIO: emulate_dpo: sanctl absent, by hand 1",
        "LIO: emulate_pr: sanctl 0, by hand 1",
    ]
