# SPDX-License-Identifier: GPL-2.0-or-later
"""What the pool agent reads of the CIB, and what it publishes there of the pools."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from sanctl.agents import deleted_devices
from sanctl.agents.publish import attrd_cache, node_states
from sanctl.drivers import cib, node_attributes
from sanctl.model.outdated_mark import PREFIX as MARK_PREFIX
from sanctl.model.pool_cache import MODE_ATTRIBUTE_PREFIX
from sanctl.model.restore_point import POINTS_ID
from sanctl.model.site import SITES_ID
from sanctl.model.vote_mode import DROPPED_MEMBER_ATTRIBUTE, VOTES_ATTRIBUTE
from sanctl.system import journal

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET

    from sanctl.system.runner import Runner

_POOL_ATTRIBUTE = "sanctl-pool-"
#: Before the UUID of a device with a replica here, among what is read of the CIB.
_PLACED = "uuid "


def read(runner: Runner) -> dict[str, str]:
    """Return the node attributes in the CIB that are for this agent, and those of this agent.

    For this agent: tombstones of deleted devices, wanted cache modes and vote mode; the restore
    points and their schedules, which are cluster properties; replicas' states that an earlier
    release has published; promotion scores; the marks of other nodes' replicas, a constraint by
    its id; and `uuid UUID` of each device with a replica here.
    """
    here = os.uname().nodename
    found = cib.query(
        runner,
        f"//configuration/nodes/node[@uname='{here}']"
        f"//nvpair[starts-with(@name,'{deleted_devices.TOMBSTONE}')"
        f" or starts-with(@name,'{MODE_ATTRIBUTE_PREFIX}') or @name='{VOTES_ATTRIBUTE}'"
        f" or @name='{DROPPED_MEMBER_ATTRIBUTE}']"
        f"|//status/node_state[@uname='{here}']/transient_attributes"
        f"//nvpair[starts-with(@name,'{_POOL_ATTRIBUTE}') or starts-with(@name,'master-')"
        f" or (starts-with(@name,'{node_states.EARLIER_PREFIX}')"
        f" and starts-with(@value,'{node_states.EARLIER_BEGIN}'))]"
        f"|//configuration/crm_config/cluster_property_set[@id='{POINTS_ID}']/nvpair"
        f"|//configuration/crm_config/cluster_property_set[@id='{SITES_ID}']/nvpair"
        f"|//configuration/nodes/node[@uname!='{here}']"
        f"//nvpair[starts-with(@name,'{MARK_PREFIX}')]"
        f"|//configuration/constraints"
        f"/rsc_location[starts-with(@id,'{MARK_PREFIX}')][@node!='{here}']"
        f"|//configuration/resources/clone/primitive[@provider='sanctl' and @type='device']"
        f"[instance_attributes/nvpair[@name='nodes'"
        f" and contains(concat(' ',normalize-space(@value),' '),' {here} ')]]"
        f"/instance_attributes/nvpair[@name='uuid']",
    )
    if found is None:
        return {}
    return {
        _key(each): each.get("value", "")
        for each in found.iter()
        if each.tag in {"nvpair", "rsc_location"}
    }


def _key(element: ET.Element) -> str:
    name = element.get("name", element.get("id", ""))
    return f"{_PLACED}{element.get('value', '')}" if name == "uuid" else name


def has_own(attributes: Mapping[str, str]) -> bool:
    """Whether the CIB has what this agent publishes: without that it has lost all of the node."""
    return any(name.startswith(_POOL_ATTRIBUTE) for name in attributes)


def placed(attributes: Mapping[str, str]) -> frozenset[str]:
    """Return the UUIDs of the devices that have a replica here, in whatever pool."""
    found = {name.removeprefix(_PLACED) for name in attributes if name.startswith(_PLACED)}
    return frozenset(found - {stem.rpartition(".")[2] for stem in deleted(attributes)})


def deleted(attributes: Mapping[str, str]) -> frozenset[str]:
    """Return `NAME.UUID` of the devices whose files are to be removed."""
    return frozenset(
        f"{name.removeprefix(deleted_devices.TOMBSTONE)}.{value.partition(' ')[0]}"
        for name, value in attributes.items()
        if name.startswith(deleted_devices.TOMBSTONE)
    )


def publish_pools(runner: Runner, lines: list[str], *, unread: Collection[str] = ()) -> None:
    """Publish what the pools have, if that has changed; take back what a pool had that is gone.

    Args:
        runner: runs attrd_updater.
        lines: `POOL=VALUE` of each pool.
        unread: pools of which nothing can be said now: what was published of them stays.

    Raises:
        CommandError: pacemaker-attrd did not take it.
    """
    cached, attrd_pid = attrd_cache.of_pools(), attrd_cache.attrd_pid()
    values = dict(line.split("=", 1) for line in lines)
    given_pid, _, noted = cached.read().partition(" ")
    before = noted.splitlines()
    # It stays noted, too: else nobody would take it back if it left cluster.toml while unread. A
    # daemon that was started since has nothing of it.
    stay = set(unread).difference(values) if given_pid == attrd_pid else set()
    kept = [line for line in before if line.partition("=")[0] in stay]
    text = "\n".join([*lines, *kept])
    if attrd_cache.is_current(cached, attrd_pid, text):
        return
    for name in {line.partition("=")[0] for line in before}.difference(values, unread, [""]):
        # It has left cluster.toml: what it said of the node would stay for good.
        node_attributes.delete(runner, f"{_POOL_ATTRIBUTE}{name}")
    for name, value in values.items():
        node_attributes.publish(runner, f"{_POOL_ATTRIBUTE}{name}", value)
    attrd_cache.record(cached, attrd_pid, text)


def refresh_lost(runner: Runner, attributes: Mapping[str, str]) -> None:
    """Make pacemaker-attrd write this node's attributes again where the CIB has lost them.

    A controller that restarts removes all transient attributes of its node from the CIB as it
    joins. pacemaker-attrd still holds them, and writes a value again only when the value changes:
    promotion scores would be missing for good (docs/adr/0036).
    """
    has_published = len(attrd_cache.published_fields(attrd_cache.of_pools())) > 1
    if (
        has_own(attributes)
        or not has_published
        or not attrd_cache.must_be_in_cib(attrd_cache.of_pools(), attrd_cache.attrd_pid())
    ):
        return
    journal.write(
        "the CIB has lost this node's attributes: pacemaker-attrd writes them again",
        priority=journal.WARNING,
        action="attributes",
    )
    node_attributes.refresh(runner)
    # The daemon may have lost them, too, where its node was cut off and is back: this monitor gives
    # it these again, and scores are looked for once these are in the CIB. The next monitor of
    # agents/reach.py gives it that one.
    try:
        attrd_cache.have_published_again(attrd_cache.of_pools())
        attrd_cache.have_published_again(attrd_cache.of_reach())
    except OSError as error:
        journal.write(
            f"what was published cannot be noted: {error}; the next monitor tries again",
            priority=journal.WARNING,
            action="attributes",
        )
