# SPDX-License-Identifier: GPL-2.0-or-later
"""Single elements of the CIB, read and deleted by XPath for agents and handlers (cibadmin(8)).

A query is answered from this node's own CIB, a change by the whole partition. The commands read
the whole CIB, through sanctl/drivers/pacemaker.py and sanctl/parse/cib.py; marks are in
sanctl/drivers/outdated_marks.py.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from sanctl.parse.xml_output import parse_xml
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET

_TIMEOUT_S = 20.0
#: cibadmin's exit status for an XPath that matches nothing: before Pacemaker 2.0, and since.
_NO_SUCH_OBJECT = (6, 105)


def query(
    runner: Runner, xpath: str, *, with_children: bool = True, timeout_s: float = _TIMEOUT_S
) -> ET.Element | None:
    """Return the element that an XPath matches, or one that holds all matches; None without.

    Raises:
        CommandError: the CIB gave no answer.
    """
    depth = [] if with_children else ["--no-children"]
    answer = runner.run(
        ["cibadmin", "--query", *depth, "--xpath", xpath],
        timeout_s=timeout_s,
        ok=(0, *_NO_SUCH_OBJECT),
    )
    if answer.status != 0:
        return None
    return parse_xml(answer.stdout, "cibadmin")


def delete_at(runner: Runner, paths: Collection[str], *, timeout_s: float) -> None:
    """Delete the elements of the CIB at some XPaths in one change; one that is not there is fine.

    Raises:
        CommandError: refused, or no answer came; the elements may have been deleted.
    """
    if paths:
        runner.run(
            ["cibadmin", "--delete-all", "--force", "--sync-call", "--xpath", "|".join(paths)],
            timeout_s=timeout_s,
            ok=(0, *_NO_SUCH_OBJECT),
        )


def node_state(runner: Runner, node: str) -> ET.Element | None:
    """Return the `node_state` of a node without its children, None where the CIB has none.

    Raises:
        CommandError: the CIB gave no answer.
    """
    return query(runner, f"//node_state[@uname='{node}']", with_children=False)


def cluster_property(runner: Runner, name: str, *, default: str) -> str:
    """Return a cluster property, as crm_attribute(8) reads it.

    Raises:
        CommandError: the CIB gave no answer.
    """
    answer = runner.run(
        ["crm_attribute", "--type", "crm_config", "--name", name, "--query",
         "--quiet", "--default", default],
        timeout_s=_TIMEOUT_S,
    )  # fmt: skip
    return answer.stdout.strip()
