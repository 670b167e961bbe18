# SPDX-License-Identifier: GPL-2.0-or-later
"""Pacemaker for the commands: whole CIB, crm_mon status, atomic patchset, failure clean-up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sanctl.errors import CommandError, Problem, Refused, Unreachable
from sanctl.parse.attrd import parse_attributes
from sanctl.system.runner import CommandResult, Runner

_QUERY_TIMEOUT_S = 40.0
_PATCH_TIMEOUT_S = 60.0
# What is published is for people, and what publishes it has something else to do.
_PUBLISH_TIMEOUT_S = 5.0

# crm_exit_t of Pacemaker, `crm_error --exit --list`.
_EXIT_INSUFFICIENT_PRIVILEGES = frozenset({4, 77})
_EXIT_DISCONNECTED = 102
_EXIT_OLD = 103
_EXIT_QUORUM = 106
_EXIT_NO_SUCH = (6, 78, 105)  # 78 is what attrd_updater of Pacemaker 3.0.0 says
# A patchset whose source is ahead of this node's CIB exits with 1; only the text says why.
_STALE_WORDS = ("older than existing", "update diff failed", "Application of an update diff")
_NO_QUORUM_WORDS = ("no quorum", "Quorum required")
_MON_SECTIONS = "none,summary,nodes,resources,failures,fencing"


class StaleCib(CommandError):
    """The CIB has changed since the patchset was planned: query, plan and patch again."""


class PacemakerPort(Protocol):
    """What sanctl/ops needs of Pacemaker."""

    def query(self) -> str:
        """Return the CIB's text.

        Raises:
            Unreachable: Pacemaker does not run here, or does not answer.
        """
        ...

    def monitor(self) -> str:
        """Return the status as crm_mon's XML.

        Raises:
            Unreachable: Pacemaker does not run here, or does not answer.
        """
        ...

    def patch(self, patchset: str) -> None:
        """Apply a patchset, whole or not at all.

        Raises:
            StaleCib: the configuration has changed since; nothing was applied.
            Refused: no quorum; nothing was applied.
            CommandError: Pacemaker refused it.
        """
        ...

    def set_transient_attribute(self, node: str, attribute: str, value: str | None) -> None:
        """Set a transient attribute of a node; None deletes it.

        Raises:
            CommandError: Pacemaker refused or did not answer.
        """
        ...

    def publish_private(self, node: str, attribute: str, value: str) -> None:
        """Set a private transient attribute of a node, which never enters the CIB.

        Raises:
            CommandError: Pacemaker refused or did not answer.
        """
        ...

    def transient_attributes(self, attribute: str) -> Mapping[str, str]:
        """Return a transient attribute by node, also a private one, which never enters the CIB.

        Raises:
            CommandError: Pacemaker did not answer.
        """
        ...

    def remove_node(self, node: str) -> None:
        """Remove a node that Corosync has forgotten: its entries in the CIB and all daemons.

        Raises:
            CommandError: Pacemaker refused or did not answer.
        """
        ...

    def clean_up_failures(self, resource: str) -> None:
        """Make Pacemaker forget a resource's failures.

        A fail-count outlives its resource: a resource created later under the same name would
        never be started on a node where the old resource failed.

        Raises:
            CommandError: Pacemaker refused or did not answer.
        """
        ...


class Pacemaker:
    """The cluster of this node."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def query(self) -> str:
        """See PacemakerPort.query."""
        return self._read(["cibadmin", "--query"])

    def monitor(self) -> str:
        """See PacemakerPort.monitor."""
        return self._read(["crm_mon", "--output-as=xml", f"--include={_MON_SECTIONS}"])

    def transient_attributes(self, attribute: str) -> Mapping[str, str]:
        """See PacemakerPort.transient_attributes."""
        answer = self._runner.run(
            ["attrd_updater", "--query", "--all", "--name", attribute],
            timeout_s=_QUERY_TIMEOUT_S,
            ok=(0, *_EXIT_NO_SUCH),
        )
        return parse_attributes(answer.stdout) if answer.status == 0 else {}

    def _read(self, argv: list[str]) -> str:
        try:
            result = self._runner.run(argv, timeout_s=_QUERY_TIMEOUT_S, ok=range(256))
        except CommandError as error:
            raise Unreachable(
                Problem(
                    "SAN-CLU-002",
                    f"Pacemaker gives no answer: {error.problems[0].text}",
                    "run sanctl on a node of the cluster; 'systemctl status pacemaker' shows more",
                )
            ) from error
        if result.status == 0:
            return result.stdout
        raise _as_unreachable(result)

    def set_transient_attribute(self, node: str, attribute: str, value: str | None) -> None:
        """See PacemakerPort.set_transient_attribute."""
        verb = ["--delete"] if value is None else [f"--update={value}"]
        self._runner.run(
            ["attrd_updater", "--node", node, "--name", attribute, *verb],
            timeout_s=_PATCH_TIMEOUT_S,
        )

    def publish_private(self, node: str, attribute: str, value: str) -> None:
        """See PacemakerPort.publish_private."""
        verb = [f"--update={value}", "--private"]
        self._runner.run(
            ["attrd_updater", "--node", node, "--name", attribute, *verb],
            timeout_s=_PUBLISH_TIMEOUT_S,
        )

    def remove_node(self, node: str) -> None:
        """See PacemakerPort.remove_node."""
        self._runner.run(["crm_node", "--force", "--remove", node], timeout_s=_PATCH_TIMEOUT_S)

    def clean_up_failures(self, resource: str) -> None:
        """See PacemakerPort.clean_up_failures."""
        self._runner.run(
            ["crm_resource", "--cleanup", "--resource", resource], timeout_s=_PATCH_TIMEOUT_S
        )

    def patch(self, patchset: str) -> None:
        """See PacemakerPort.patch."""
        result = self._runner.run(
            ["cibadmin", "--patch", "--sync-call", "--xml-pipe"],
            stdin=patchset,
            timeout_s=_PATCH_TIMEOUT_S,
            ok=range(256),
        )
        if result.status == 0:
            return
        said = f"{result.stderr}\n{result.stdout}".strip()
        if result.status == _EXIT_OLD or any(words in said for words in _STALE_WORDS):
            raise StaleCib(Problem("SAN-CLU-004", f"the CIB has changed meanwhile: {said[-200:]}"))
        if result.status == _EXIT_QUORUM or any(words in said for words in _NO_QUORUM_WORDS):
            raise Refused(
                Problem(
                    "SAN-CLU-001",
                    "Pacemaker accepts no change: this part of the cluster has no quorum",
                    "run the command on a node of the majority, or bring nodes back first",
                )
            )
        if result.status in {_EXIT_DISCONNECTED, *_EXIT_INSUFFICIENT_PRIVILEGES}:
            raise _as_unreachable(result)
        raise CommandError(
            Problem(
                "SAN-CLU-005",
                f"Pacemaker refused a change (status {result.status}): {said[-400:]}",
                "nothing was changed; 'journalctl -u pacemaker' may say more",
            )
        )


def _as_unreachable(result: CommandResult) -> Unreachable:
    said = (result.stderr.strip() or result.stdout.strip())[-200:]
    if result.status in _EXIT_INSUFFICIENT_PRIVILEGES:
        return Unreachable(
            Problem("SAN-CLU-003", "only root may ask Pacemaker", "run the command as root")
        )
    if result.status == _EXIT_DISCONNECTED:
        return Unreachable(
            Problem(
                "SAN-CLU-002",
                "Pacemaker does not run on this node, or has only just been started",
                "'systemctl status corosync pacemaker'; run sanctl on a node of the cluster",
            )
        )
    return Unreachable(
        Problem(
            "SAN-CLU-002",
            f"{result.argv[0]} failed with status {result.status}: {said}",
            "'systemctl status corosync pacemaker' shows more",
        )
    )
