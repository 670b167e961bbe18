# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs `sanctl` on files instead of a cluster: `python -m ... FOLDER status`, for `bench status`.

Each of Pacemaker's programs is replaced by one that prints a file of the folder, so that all of the
command's own work is done: starting programs, reading what they print, deciding, writing.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from sanctl.cli import environment
from sanctl.cli.main import main
from sanctl.drivers.pacemaker import Pacemaker
from sanctl.lab.bench.made_up_cluster import MadeUpCluster, cluster_toml
from sanctl.model.packed_states import STATES_ATTRIBUTE
from sanctl.system.runner import CommandResult, LocalRunner

_CLUSTER_TOML = "cluster.toml"


def write_files(cluster: MadeUpCluster, folder: Path) -> None:
    """Write what the programs print."""
    (folder / "cibadmin").write_text(cluster.cib)
    (folder / "crm_mon").write_text(cluster.monitor)
    (folder / "attrd_updater").write_text(
        "".join(
            f'name="{STATES_ATTRIBUTE}" host="{node}" value="{value}"\n'
            for node, value in cluster.states.items()
        )
    )
    (folder / _CLUSTER_TOML).write_text(cluster_toml())


class _PrintedFiles:
    """A Runner that prints the file named like the program that it is to run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: str | None = None,
        ok: Collection[int] = (0,),
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """See Runner.run."""
        return LocalRunner().run(
            ["cat", str(self._folder / argv[0])], timeout_s=timeout_s, stdin=stdin, ok=ok, env=env
        )


def _run(folder: Path, words: Sequence[str]) -> None:
    """Run a command of sanctl with these files in place of the cluster's answers."""

    class MadeUpEnvironment(environment.Environment):
        def __init__(self) -> None:
            super().__init__()
            self.runner = _PrintedFiles(folder)
            self.pacemaker = Pacemaker(self.runner)

    environment.Environment = MadeUpEnvironment  # type: ignore[misc]
    environment.CLUSTER_TOML = str(folder / _CLUSTER_TOML)
    sys.argv = ["sanctl", *words]
    main()


if __name__ == "__main__":
    _run(Path(sys.argv[1]), sys.argv[2:])
