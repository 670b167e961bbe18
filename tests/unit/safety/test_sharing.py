# SPDX-License-Identifier: GPL-2.0-or-later
"""Two devices that share a change of the CIB: nothing is found, and without any rule something."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.safety.__main__ import broken_sharing_table, main
from sanctl.safety.sharing import BROKEN_SHARING, BrokenSharing, SharingRules, explore_sharing

_DOC = Path(__file__).parents[3] / "docs/explanation/safety-model.md"


def test_nothing_goes_wrong_while_every_rule_is_kept() -> None:
    result = explore_sharing(SharingRules())
    assert result.found is None
    assert result.states > 100_000, "the exploration did not get far"


@pytest.mark.parametrize("variant", BROKEN_SHARING, ids=lambda variant: variant.name)
def test_each_broken_rule_is_found(variant: BrokenSharing) -> None:
    found = explore_sharing(variant.rules).found
    assert found is not None
    assert found.what.endswith(variant.finds)
    assert len(found.steps) == variant.steps


def test_every_rule_is_broken_by_a_variant() -> None:
    broken = [variant.rules for variant in BROKEN_SHARING]
    assert all(any(not getattr(rules, name) for rules in broken) for name in SharingRules._fields)


def test_the_documentation_says_what_is_found() -> None:
    assert broken_sharing_table() in _DOC.read_text(encoding="utf-8")


def test_the_command_prints_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--devices", "2", "--rules", "dead-request"]) == 1
    printed = capsys.readouterr().out
    assert "the handler of x marks" in printed
    assert printed.endswith("=> the peer of y serves, and is marked\n")


def test_a_rule_of_the_other_model_is_refused() -> None:
    for argv in (["--rules", "dead-request"], ["--devices", "2", "--rules", "no-freeze"]):
        with pytest.raises(SystemExit):
            main(argv)
