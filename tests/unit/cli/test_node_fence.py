# SPDX-License-Identifier: GPL-2.0-or-later
"""What the fencing of a node says before it asks."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

import sanctl.cli.environment
from sanctl.cli.main import main
from sanctl.errors import ExitStatus
from tests.fakes.stonith import FakeStonith
from tests.unit.cli.test_node_drain import Environment


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("n1",), ExitStatus.USAGE, ("node n1 serves 1: vm1", "Cut the power of node n1?")),
        (("n2",), ExitStatus.USAGE, ("node n2 serves no device", "Cut the power of node n2?")),
        (("n3",), ExitStatus.REFUSED, ("SAN-FEN-005", "'reboot'")),
        (("n3", "--yes"), ExitStatus.REFUSED, ("SAN-FEN-005",)),
    ],
)
def test_the_question_names_what_the_node_serves(
    words: tuple[str, ...],
    status: ExitStatus,
    said: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No answer is no; what is refused is not asked first."""
    fake = Environment()
    stonith = FakeStonith()
    monkeypatch.setattr(fake, "stonith", stonith, raising=False)
    host = SimpleNamespace(node_name=lambda: "n3")
    monkeypatch.setattr(fake, "host", host, raising=False)
    monkeypatch.setattr(sanctl.cli.environment, "Environment", lambda: fake)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys, "argv", ["sanctl", "node", "fence", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    err = capsys.readouterr().err
    assert int(stop.value.code or 0) == status, err
    assert [each for each in said if each not in err] == []
    assert ("Cut the power" in err) is (status is ExitStatus.USAGE)
    assert stonith.fenced == []
