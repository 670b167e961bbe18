# SPDX-License-Identifier: GPL-2.0-or-later
"""OCF agent ocf:sanctl:reach: publishes how many addresses of the iscsi network answer this node.

A clone that runs on every storage node (docs/adr/0012). Its monitor pings all addresses at once,
and gives the count to pacemaker-attrd where it is another than before, or a minute old. The
attribute is dampened there: one bad look does not count.

A monitor succeeds whatever the count is: 0 is for the devices' rules. A node that has no route to
an address, or whose interface is down, does not reach it. Where the node itself could not look (no
socket, no memory, a full queue), nothing is published, and what was published stays; after two
minutes without a look the monitor fails: a node about which nothing is known has no value, which
is no penalty, rather than an old one.
"""

from __future__ import annotations

import time

from sanctl.agents import ocf
from sanctl.agents.publish import attrd_cache
from sanctl.drivers import icmp_echo, node_attributes
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.cib_names import REACH_RESOURCE
from sanctl.plan.failover import reach
from sanctl.plan.failover.reach import Watch
from sanctl.system import journal, state_files
from sanctl.system.runner import LocalRunner

_RUNNER = LocalRunner()
#: For so long what was published stands without a look: twice the time after which a look of the
#: same result is published again.
_STANDS_S = 120.0
#: What a stop has where Pacemaker says no time; what a deletion of the attribute may take.
_STOP_S, _DELETE_S, _PAUSE_S = 10.0, 6.0, 1.0

METADATA = """\
<?xml version="1.0"?>
<!DOCTYPE resource-agent SYSTEM "ra-api-1.dtd">
<resource-agent name="reach" version="0.1.0">
<version>1.1</version>
<longdesc lang="en">
Pings addresses of the iscsi network, and publishes in a node attribute how many have answered. A
rule of each device has it leave a node that reaches none. Runs as a clone, made by the playbook.
</longdesc>
<shortdesc lang="en">how many addresses of the iscsi network answer a node</shortdesc>
<parameters>
<parameter name="name" required="1">
<longdesc lang="en">The node attribute. The devices' rules go by iscsi-reach.</longdesc>
<shortdesc lang="en">node attribute</shortdesc>
<content type="string"/>
</parameter>
<parameter name="host_list" required="1">
<longdesc lang="en">The addresses, of IPv4 or IPv6, separated by spaces. Not names.</longdesc>
<shortdesc lang="en">addresses</shortdesc>
<content type="string"/>
</parameter>
<parameter name="dampen" required="1">
<longdesc lang="en">How long a new count has to last before it is written to the CIB.</longdesc>
<shortdesc lang="en">dampening</shortdesc>
<content type="time"/>
</parameter>
<parameter name="attempts" required="1">
<longdesc lang="en">How many requests an address may leave unanswered.</longdesc>
<shortdesc lang="en">requests for each address</shortdesc>
<content type="integer"/>
</parameter>
<parameter name="timeout" required="1">
<longdesc lang="en">How many seconds an answer may take.</longdesc>
<shortdesc lang="en">seconds for an answer</shortdesc>
<content type="string"/>
</parameter>
</parameters>
<actions>
<action name="start" timeout="20s"/>
<action name="stop" timeout="20s"/>
<action name="monitor" interval="5s" timeout="30s" depth="0"/>
<action name="validate-all" timeout="20s"/>
<action name="meta-data" timeout="5s"/>
</actions>
</resource-agent>
"""


def start() -> int:
    """Look and publish once, and let the monitor go on."""
    watch = _watch()
    # Whatever is noted: the attribute was deleted, or the node was away.
    attrd_cache.of_reach().remove()
    _running_note().write()
    _look(watch)
    return ocf.SUCCESS


def stop() -> int:
    """Delete the attribute: a node that is not watched has no penalty."""
    _running_note().remove()
    attrd_cache.of_reach().remove()
    # No other action deletes it later, and a node that has lost its hosts would keep the penalty.
    latest_s = time.monotonic() + ocf.remaining_s(_STOP_S) - _DELETE_S
    while True:
        try:
            node_attributes.delete(_RUNNER, ocf.parameter("name"))
        except SanctlError:
            if time.monotonic() >= latest_s:
                raise
            time.sleep(_PAUSE_S)
        else:
            return ocf.SUCCESS


def monitor() -> int:
    """Look and publish, if this agent is started."""
    if not _running_note().exists():
        return ocf.NOT_RUNNING
    if ocf.is_probe():
        return ocf.SUCCESS
    watch = _watch()
    try:
        _look(watch)
    except (SanctlError, OSError) as error:
        age_s = attrd_cache.of_reach().age_s()
        if age_s is None or not 0 <= age_s < _STANDS_S:
            raise
        journal.write(
            f"whether hosts can be reached could not be looked at or published: {error}; what was "
            "published stays, and the next monitor tries again",
            priority=journal.WARNING,
            action="reach",
        )
    return ocf.SUCCESS


def validate_all() -> int:
    """Check the parameters."""
    ocf.parameter("name")
    _watch()
    return ocf.SUCCESS


def _running_note() -> state_files.StateFile:
    return state_files.of_node("reach-running")


def _watch() -> Watch:
    return reach.parse_watch(
        host_list=ocf.parameter("host_list"),
        attempts=ocf.parameter("attempts"),
        timeout=ocf.parameter("timeout"),
        dampen=ocf.parameter("dampen"),
    )


def _look(watch: Watch) -> None:
    """Look once, and publish where that is due.

    Raises:
        CommandError: SAN-AGENT-019, not each address could be looked at, and none has answered; or
            pacemaker-attrd did not take the count.
        OSError: the processes or the state files cannot be read.
    """
    found = icmp_echo.look(watch)
    count = reach.count(watch, found)
    if count is None:
        raise CommandError(
            Problem(
                "SAN-AGENT-019",
                "whether addresses of the iscsi network answer could not be looked at: "
                f"{'; '.join(reach.hindrances(found))}",
                "see 'dmesg', the node's firewall and its memory; Pacemaker tries again",
            )
        )
    attribute, cached = ocf.parameter("name"), attrd_cache.of_reach()
    pid, text = attrd_cache.attrd_pid(), f"{attribute} {count} {watch.dampening}"
    if attrd_cache.is_current(cached, pid, text):
        return
    if attrd_cache.published_fields(cached)[1:] != text.split():
        silent = reach.silent(watch, found)
        journal.write(
            f"{count} of {len(watch.addresses)} addresses of the iscsi network answer"
            + (f", not {', '.join(silent)}" if silent else ""),
            priority=journal.NOTICE if count else journal.WARNING,
            action="reach",
        )
    node_attributes.publish_dampened(_RUNNER, attribute, str(count), watch.dampening)
    attrd_cache.record(cached, pid, text)


def main(argv: list[str]) -> int:
    """Carry out one action and return its OCF exit code."""
    return ocf.run(
        # Also the name of its lock, which a device of that name must not share.
        REACH_RESOURCE,
        argv,
        {"start": start, "stop": stop, "monitor": monitor, "validate-all": validate_all},
        METADATA,
    )
