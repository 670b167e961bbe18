# SPDX-License-Identifier: GPL-2.0-or-later
"""The comparison of a kernel's configuration with kernel-configs/."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.errors import ConfigError
from sanctl.lab.machines import kernel_config
from sanctl.lab.machines.kernel_config import Option

CONFIG = """\
# Automatically generated file; DO NOT EDIT.
CONFIG_A=y
CONFIG_B=m
# CONFIG_C is not set
CONFIG_D="text"
"""


def test_what_is_not_set_is_not_there() -> None:
    found = kernel_config.parse_config(CONFIG)
    assert found == {"CONFIG_A": "y", "CONFIG_B": "m", "CONFIG_D": '"text"'}


@pytest.mark.parametrize(
    ("name", "wanted", "is_missing"),
    [
        ("CONFIG_A", "y", False),
        ("CONFIG_A", "m", False),  # built in is as good as a module
        ("CONFIG_B", "m", False),
        ("CONFIG_B", "y", True),  # a module is not as good as built in
        ("CONFIG_C", "m", True),
        ("CONFIG_E", "y", True),
    ],
)
def test_missing(name: str, wanted: str, is_missing: bool) -> None:
    option = Option(name, wanted, "why")
    lacks = kernel_config.missing_options(kernel_config.parse_config(CONFIG), [option])
    assert lacks == ([option] if is_missing else [])


def test_a_comment_is_the_reason_of_all_options_right_below_it() -> None:
    text = "# About the file.\n\n# One\n# reason.\nCONFIG_A=y\nCONFIG_B=m\n\nCONFIG_C=y\n"
    assert kernel_config.parse_fragment(text) == [
        Option("CONFIG_A", "y", "One reason."),
        Option("CONFIG_B", "m", "One reason."),
        Option("CONFIG_C", "y", ""),
    ]


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    kernel_config.parse_config(text)
    kernel_config.parse_fragment(text)


@pytest.mark.parametrize("purpose", kernel_config.PURPOSES)
def test_every_option_of_our_fragments_says_what_it_is_for(purpose: str) -> None:
    options = kernel_config.fragment(purpose)
    assert options
    assert [option.name for option in options if len(option.reason) < 10] == []
    names = [option.name for option in options]
    assert len(names) == len(set(names))


def test_plain_and_packed_files_are_read(tmp_path: Path) -> None:
    plain, packed = tmp_path / "config", tmp_path / "config.gz"
    plain.write_text(CONFIG)
    packed.write_bytes(gzip.compress(CONFIG.encode()))
    assert kernel_config.read(str(plain)) == kernel_config.read(str(packed)) == CONFIG


def test_a_configuration_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--config FILE"):
        kernel_config.read(str(tmp_path / "none"))
