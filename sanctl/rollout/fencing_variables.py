# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks an inventory's fencing variables: fence agents, options, passwords, fallback devices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sanctl.config.document import Document
from sanctl.model.topology import RISK_NO_FENCING, Strategy
from sanctl.rollout import fence_times

_AGENT = re.compile(r"fence_[a-z0-9_]+")
_OPTION = re.compile(r"[a-z][a-z0-9_-]*")
# These would end up in the CIB, which every member of the group haclient may read.
_SECRETS = frozenset({"password", "passwd", "password_script", "passwd_script", "snmp_priv_passwd"})
# With these a device could fence another node than its own; the rollout sets them itself.
_OURS = frozenset({"pcmk_host_list", "pcmk_host_map", "pcmk_host_check", "action"})
_ASK = "pcmk_monitor_timeout"
_TOGETHER = "pcmk_action_limit"
_TIMEOUT = "sanctl_pacemaker_fence_timeout_s"
_ASK_OF_ALL = "sanctl_pacemaker_fence_ask_s"
#: Where the inventory does not say: the defaults of the role sanctl_pacemaker.
DEFAULTS_S = {_TIMEOUT: 30, _ASK_OF_ALL: 20}


@dataclass(frozen=True, slots=True)
class _Kind:
    """One fencing device of a node: which keys of the document are about it."""

    options: str
    agent: str
    password: str


_FIRST = _Kind("fence", "agent", "password")
# Used when the first device has failed.
_FALLBACK = _Kind("fallback", "fallback_agent", "fallback_password")

#: The host variables that are read here, by their keys.
FENCE_VARIABLES = {
    _FIRST.agent: "sanctl_fence_agent",
    _FIRST.options: "sanctl_fence_options",
    _FIRST.password: "sanctl_fence_password",
    _FALLBACK.agent: "sanctl_fence_fallback_agent",
    _FALLBACK.options: "sanctl_fence_fallback_options",
    _FALLBACK.password: "sanctl_fence_fallback_password",
}

Hosts = Mapping[str, Mapping[str, Any]]


def check_fencing(
    document: Document, names: Sequence[str], hostvars: Hosts, *, has_sbd: bool, may_lack: bool
) -> bool:
    """Add the problems of the nodes' fencing devices.

    Args:
        document: collects the problems.
        names: the cluster's nodes.
        hostvars: the inventory's variables by host.
        has_sbd: whether SBD fences nodes without a fencing device.
        may_lack: whether the operator has accepted the risk of no fencing.

    Returns:
        Whether any node has a fencing device.
    """
    has_fencing = any(_of(hostvars[name], _FIRST.options) for name in names)
    is_diskless = hostvars[names[0]].get("sanctl_sbd_mode") == "diskless"
    if not has_sbd and (has_fencing or not may_lack):
        _check_all_have_one(document, names, hostvars)
    seen: dict[str, str] = {}
    for name in names:
        for kind in (_FIRST, _FALLBACK):
            _check_device(document, name, hostvars[name], kind, seen)
        if _of(hostvars[name], _FALLBACK.options) and not _of(hostvars[name], _FIRST.options):
            document.note(
                "SAN-CONF-032",
                ("nodes", name, _FALLBACK.options),
                "is a fallback without a first fencing device",
                f"state a single device in {FENCE_VARIABLES[_FIRST.options]}",
            )
        if _of(hostvars[name], _FALLBACK.options) and is_diskless:
            document.note(
                "SAN-CONF-032",
                ("nodes", name, _FALLBACK.options),
                "is there beside diskless SBD",
                "the watchdog is the fallback itself, and with fencing levels Pacemaker does not "
                "reach it",
            )
    return has_fencing


def _of(variables: Mapping[str, Any], key: str) -> Any:
    return variables.get(FENCE_VARIABLES[key])


def _check_all_have_one(document: Document, names: Sequence[str], hostvars: Hosts) -> None:
    is_heartbeat = hostvars[names[0]].get("sanctl_strategy") == Strategy.HEARTBEAT
    risk = f"; or accept {RISK_NO_FENCING} for all nodes" if is_heartbeat else ""
    for name in names:
        if not _of(hostvars[name], _FIRST.options):
            document.note(
                "SAN-CONF-031",
                ("nodes", name, _FIRST.options),
                "is missing",
                f"state how this node is fenced: address, user; or SBD (sanctl_sbd_mode){risk}",
            )


def _check_device(
    document: Document, name: str, variables: Mapping[str, Any], kind: _Kind, seen: dict[str, str]
) -> None:
    path = ("nodes", name, kind.options)
    options = _of(variables, kind.options)
    if not options:
        return
    password = _of(variables, kind.password)
    if password is not None and not str(password).strip():
        document.note(
            "SAN-CONF-032",
            ("nodes", name, kind.password),
            "is empty: it would replace the password in use",
            "an environment variable that is not set? An agent without a password needs none here",
        )
    if not isinstance(options, Mapping):
        document.note("SAN-CONF-032", path, "must be a table of the agent's options")
        return
    agent = str(_of(variables, kind.agent) or "fence_ipmilan")
    if not _AGENT.fullmatch(agent):
        document.note(
            "SAN-CONF-032", ("nodes", name, kind.agent), f"{agent!r} is not a fence agent's name"
        )
    _check_options(document, name, kind, options)
    _check_ask(document, name, kind, variables, options)
    identity = f"{agent} {sorted((str(key), str(item)) for key, item in options.items())}"
    if identity in seen:
        document.note("SAN-CONF-033", path, f"is the same as that of {seen[identity]}")
    seen.setdefault(identity, name)


def _check_options(document: Document, name: str, kind: _Kind, options: Mapping[str, Any]) -> None:
    for key, value in options.items():
        place = ("nodes", name, kind.options, str(key))
        if key in _SECRETS:
            document.note(
                "SAN-CONF-032",
                place,
                "a secret would be readable in the CIB",
                f"set {FENCE_VARIABLES[kind.password]} for the host instead",
            )
        elif key == _TOGETHER and str(value) != "1":
            document.note(
                "SAN-CONF-032",
                place,
                "must be 1: with more, two orders or monitors of one device at once can end "
                "Pacemaker's fencing daemon",
                "leave it out",
            )
        elif key in _OURS:
            document.note("SAN-CONF-032", place, "is set by the rollout itself")
        elif not _OPTION.fullmatch(str(key)):
            document.note("SAN-CONF-032", place, "is not the name of an option")
        elif not isinstance(value, str | int | float):
            document.note("SAN-CONF-032", place, "must be a text, a number or a truth value")


def _check_ask(
    document: Document,
    name: str,
    kind: _Kind,
    variables: Mapping[str, Any],
    options: Mapping[str, Any],
) -> None:
    """Add a problem where an order to fence that waits for a monitor would be given up first."""
    is_own = _ASK in options
    told = options[_ASK] if is_own else variables.get(_ASK_OF_ALL, DEFAULTS_S[_ASK_OF_ALL])
    timeout = variables.get(_TIMEOUT, DEFAULTS_S[_TIMEOUT])
    place = ("nodes", name, kind.options, _ASK) if is_own else ("nodes", name, _ASK_OF_ALL)
    ask_s = fence_times.seconds_of(str(told))
    timeout_s = fence_times.seconds_of(str(timeout))
    if ask_s is None:
        document.note("SAN-CONF-032", place, f"{told!r} is not a time above zero, such as 20s")
    elif timeout_s is None:
        document.note("SAN-CONF-032", ("nodes", name, _TIMEOUT), f"{timeout!r} is no time")
    elif ask_s > (most_s := fence_times.longest_ask_s(timeout_s)):
        needed_s = -(-(ask_s + fence_times.BMC_S) * 10 // 12)
        document.note(
            "SAN-CONF-032",
            place,
            f"{ask_s} s is more than {most_s} s: an order to fence that waits for a monitor would "
            f"be given up, and nothing taken over, where a fencing may take {timeout_s} s",
            f"lower it, or set {_TIMEOUT}: {needed_s} for all nodes",
        )
