# SPDX-License-Identifier: GPL-2.0-or-later
"""Corosync's libraries say of quorum and members what corosync-quorumtool says, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sanctl.lab.harness.lab_session import LabSession

#: With what a handler uses. Corosync is stopped for less time than it takes to be missed.
_ASK = """
cd /opt/sanctl/current && python3 - <<'SCRIPT'
import json, os, signal, subprocess
from sanctl.drivers import quorum_library
from sanctl.errors import CommandError
from sanctl.parse.corosync import parse_quorumtool
by_tool = parse_quorumtool(subprocess.run(
    ["corosync-quorumtool", "-s"], capture_output=True, text=True).stdout)
by_library = quorum_library.membership(within_s=5.0)
corosync = int(subprocess.check_output(["pidof", "corosync"]))
os.kill(corosync, signal.SIGSTOP)
try:
    while_stopped = repr(quorum_library.membership(within_s=0.2))
except CommandError as error:
    while_stopped = error.problems[0].code
finally:
    os.kill(corosync, signal.SIGCONT)
again = quorum_library.membership(within_s=5.0)
plain = [each and [*each[:1], *map(sorted, each[1:3]), *each[3:]]
    for each in (by_tool, by_library, again)]
print(json.dumps([*plain, while_stopped]))
SCRIPT
"""


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_they_say_what_the_tool_says_and_no_answer_is_an_error(bed: LabSession, node: str) -> None:
    answers: list[Any] = json.loads(bed.sh(node, _ASK).stdout)
    by_tool, by_library, again, while_stopped = answers
    assert by_tool[0] is True and len(by_tool[1]) == len(bed.cluster)
    assert by_library == again == by_tool
    assert while_stopped == "SAN-CMD-002"
