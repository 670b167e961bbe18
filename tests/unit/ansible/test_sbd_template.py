# SPDX-License-Identifier: GPL-2.0-or-later
"""SBD's settings are read by a shell: what is in a disk's name stays a name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import jinja2
from hypothesis import example, given, settings
from hypothesis import strategies as st

_TEMPLATE = (
    Path(__file__).resolve().parents[3] / "ansible" / "roles/sanctl_sbd/templates/sbd.j2"
).read_text()
_TEXTS = st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=20)


def rendered(disk: str) -> str:
    # As Ansible's template module does it, with its filter.
    environment = jinja2.Environment(trim_blocks=True, autoescape=False)
    environment.filters["regex_replace"] = lambda text, pattern, by: re.sub(pattern, by, text)
    return environment.from_string(_TEMPLATE).render(
        sanctl_sbd_mode="disk",
        sanctl_sbd_devices=[disk],
        sanctl_sbd_watchdog_device="/dev/watchdog",
        sanctl_sbd_watchdog_timeout_s=5,
    )


@settings(max_examples=60, deadline=None)
@given(_TEXTS)
@example('"; touch /x; "')
@example("$(id)`id`\\")
def test_a_shell_reads_the_name_that_was_given(text: str) -> None:
    script = rendered(f"/dev/{text}") + '\nprintf %s "$SBD_DEVICE"\n'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"/dev/{text}"
