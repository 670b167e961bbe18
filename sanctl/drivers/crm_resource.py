# SPDX-License-Identifier: GPL-2.0-or-later
"""Meta attributes of one resource, and clean-up of one failed operation (crm_resource(8))."""

from __future__ import annotations

from sanctl.system.runner import Runner

#: No such attribute or resource: since Pacemaker 2.0, and before.
_NO_SUCH = (105, 6)


def meta_attribute(runner: Runner, resource: str, name: str, *, timeout_s: float) -> str:
    """Return a meta attribute of a resource, empty where the resource has none.

    Raises:
        CommandError: Pacemaker did not answer.
    """
    answer = runner.run(
        ["crm_resource", "--resource", resource, "--meta", "--get-parameter", name],
        timeout_s=timeout_s,
        ok=(0, *_NO_SUCH),
    )
    return answer.stdout.strip() if answer.status == 0 else ""


def delete_meta_attribute(runner: Runner, resource: str, name: str, *, timeout_s: float) -> None:
    """Delete a meta attribute of a resource.

    Raises:
        CommandError: Pacemaker refused or did not answer; the attribute may still be there.
    """
    runner.run(
        ["crm_resource", "--resource", resource, "--meta", "--delete-parameter", name],
        timeout_s=timeout_s,
    )


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
