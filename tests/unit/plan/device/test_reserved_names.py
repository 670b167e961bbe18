# SPDX-License-Identifier: GPL-2.0-or-later
"""No device can be created whose ids are the cluster's, whatever writes those."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanctl.errors import UsageError
from sanctl.model.cib_names import clone_id
from sanctl.model.names import DeviceName
from sanctl.plan.device.reserved_names import id_suffixes, reserved_name_problem

_ROOT = Path(__file__).resolve().parents[4]
_TEMPLATE = _ROOT / "ansible/roles/sanctl_pacemaker/templates/cib.xml.j2"
#: `sanctl-…` in texts that are no id and no node attribute.
_ELSEWHERE = {
    "sanctl-ram",  # what a ramfs is mounted from
    "sanctl-new",  # meta attributes
    "sanctl-host-groups",
    "sanctl-reservations",  # a unit
    "sanctl-backup-",  # units
    "sanctl-site",  # a user of the server of a second site
    "sanctl-cib-number",  # a cluster property
    "sanctl-written",  # an attribute of a node, for a moment
}


def is_refused(text: str) -> bool:
    try:
        return reserved_name_problem(DeviceName.parse(text)) is not None
    except UsageError:
        return True


def playbook_ids() -> Iterator[str]:
    """Return the ids in the template, of a cluster with one node."""
    text = re.sub(r"\{[%#].*?[%#]\}", "", _TEMPLATE.read_text(), flags=re.DOTALL)
    text = re.sub(r"\{\{ *fence\.id *\}\}", "fence-n1", text)
    for found in re.findall(r'\bid="([^"]+)"', text):
        yield re.sub(r"\{\{.*?\}\}", "n1", found)


def names_that_meet(identifier: str) -> Iterator[str]:
    """Return the names of devices one of whose ids this is."""
    for suffix in ("", *id_suffixes()):
        ending = re.escape(suffix).replace(r"\*", ".+")
        found = re.fullmatch(f"(?P<stem>.+?){ending}", identifier)
        if found:
            yield found["stem"]
            yield found["stem"].removeprefix("sanctl-")


def test_ids_of_the_playbook() -> None:
    found = list(playbook_ids())
    assert {"sanctl-reached", "fence-n1-params", "drained-serves-nothing-rule"} <= set(found)
    assert [
        (name, each) for each in found for name in names_that_meet(each) if not is_refused(name)
    ] == []


def test_ids_and_attributes_in_the_package() -> None:
    """A text that begins with `sanctl-` is a device's clone, or a name that devices cannot have."""
    texts = set()
    for path in (_ROOT / "sanctl").rglob("*.py"):
        if not {"lab", "safety", "cli"} & set(path.relative_to(_ROOT).parts):
            texts |= set(re.findall(r"""["'](sanctl-[a-z][a-z-]*)(?=["'{])""", path.read_text()))
    assert {"sanctl-reached", "sanctl-minor-", "sanctl-votes"} <= texts
    names = [text.removeprefix("sanctl-").rstrip("-") for text in texts - _ELSEWHERE]
    assert [name for name in names if not (is_refused(name) and is_refused(f"{name}-x"))] == []


@pytest.mark.parametrize(
    "name",
    ["reach", "reached", "reach-nodes", "fence", "drained", "drained-serves-nothing", "nodes-1",
     "status-1", "cib-bootstrap-options", "votes", "minor", "a-start-0s", "a-reach-rule",
     "a-params-size", "a-replicas-not-n1", "a-move-until"],
)  # fmt: skip
def test_reserved(name: str) -> None:
    assert is_refused(name)


@pytest.mark.parametrize(
    "name", ["vm1", "db-01", "move", "start", "fences", "reaching", "a-start", "params", "node-1"]
)
def test_free(name: str) -> None:
    assert not is_refused(name)


def test_every_id_of_a_device_is_made_of_its_name() -> None:
    suffixes = id_suffixes()
    assert {"-params", "-params-*", "-meta-*", "-replicas-not-*", "-move-until", "-start-0s"} <= (
        suffixes
    )
    for suffix in suffixes:
        assert is_refused(f"a{suffix.replace('*', 'b')}"), suffix
    assert clone_id("a") == "sanctl-a"
