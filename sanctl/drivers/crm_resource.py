# SPDX-License-Identifier: GPL-2.0-or-later
"""Meta attributes of one resource, and clean-up of one failed operation (crm_resource(8))."""

from __future__ import annotations

from sanctl.drivers import cib
from sanctl.system.runner import Runner


def meta_attribute(runner: Runner, resource: str, name: str, *, timeout_s: float) -> str:
    """Return a meta attribute of a resource's own, empty where the resource has none.

    Raises:
        CommandError: Pacemaker did not answer.
    """
    # Not `crm_resource --get-parameter`: it takes the whole CIB over and runs the scheduler on it,
    # which many devices at once have pacemaker-based do as many times.
    found = cib.query(runner, _path(resource, name), timeout_s=timeout_s)
    if found is None:
        return ""
    return next((pair.get("value", "") for pair in found.iter("nvpair")), "")


def _path(resource: str, name: str) -> str:
    return f"//primitive[@id='{resource}']/meta_attributes/nvpair[@name='{name}']"


def delete_meta_attribute(runner: Runner, resource: str, name: str, *, timeout_s: float) -> None:
    """Delete a meta attribute of a resource's own; one that is not there is fine.

    Raises:
        CommandError: Pacemaker refused or did not answer; the attribute may still be there.
    """
    # Not `crm_resource --delete-parameter`, for the same reason.
    cib.delete_at(runner, [_path(resource, name)], timeout_s=timeout_s)


def clean_up(
    runner: Runner, resource: str, *, node: str, operation: str, interval_ms: str, timeout_s: float
) -> None:
    """Have Pacemaker forget one failed operation of a resource on a node; without one fine.

    Raises:
        CommandError: Pacemaker refused or did not answer.
    """
    runner.run(
        ["crm_resource", "--cleanup", "--resource", resource, "--node", node,
         "--operation", operation, "--interval", f"{interval_ms}ms"],
        timeout_s=timeout_s,
        ok=(0, 105),  # no such resource: its device was deleted meanwhile
    )  # fmt: skip
