# SPDX-License-Identifier: GPL-2.0-or-later
"""The tutorial's samples of what `sanctl` prints on a node, against what it prints of a cluster.

The cluster is the fake one: a line that the command prints and the page lacks, or the other way
round, fails here. That the commands do what the page says, in the laboratory, is seen by
tests/lab/test_docs.py, which takes too long for every change.
"""

from __future__ import annotations

from sanctl.model.crm_mon import Role
from tests.support.doc_samples import ROOT, Sample, consoles, is_shown, words
from tests.unit.cli.test_commands import FakeEnvironment, Run, env, run

__all__ = ["env", "run"]  # fixtures
TUTORIAL = ROOT / "docs" / "tutorial" / "first-failover.md"
_ON_NODE = ("sanctl", "lab", "ssh")
# As the fake cluster's topology has it in the targets' names.
_CLUSTER = "lab"
_STEPS = 10


def settle(env: FakeEnvironment) -> None:
    """Let the cluster do what it does meanwhile."""
    for _ in range(_STEPS):
        env.pacemaker.tick()


def cut_power(env: FakeEnvironment, node: str) -> None:
    """Switch a node off; the cluster fences it."""
    env.pacemaker.crash(node)
    settle(env)


def boot(env: FakeEnvironment, node: str) -> None:
    """Let a node that was fenced join again."""
    env.pacemaker.states[node] = "online"
    env.pacemaker.make_storage(node)
    env.pacemaker.roles[f"fence-{node}", node] = Role.STARTED


def is_sanctl_on_node(sample: Sample) -> bool:
    typed = words(sample.command)
    return tuple(typed[:3]) == _ON_NODE and typed[4:5] == ["sanctl"]


def test_the_tutorial_shows_what_is_printed(run: Run, env: FakeEnvironment) -> None:
    compared = []
    off = ""
    for sample in consoles(TUTORIAL):
        typed = words(sample.command)
        if typed[:3] == ["sanctl", "lab", "power"]:
            off = typed[3]
            cut_power(env, off)
        if not is_sanctl_on_node(sample):
            continue
        if off and sample.output is not None and "healthy" in sample.output[0]:
            boot(env, off)
        settle(env)
        _, out, err = run(*typed[5:])
        assert err == "", sample
        if sample.output is not None:
            shown = "\n".join(sample.output)
            assert is_shown(sample.output, out, _CLUSTER), (
                f"{sample}: shows\n{shown}\nand prints\n{out}"
            )
            compared.append(typed[5:7])
    assert ["device", "show"] in compared
    assert len(compared) >= 6


def test_a_line_that_is_missing_is_noticed(run: Run) -> None:
    sample = next(each for each in consoles(TUTORIAL) if "device show" in each.command)
    create = next(each for each in consoles(TUTORIAL) if "device create" in each.command)
    run(*words(create.command)[5:])
    out = run("device", "show", "vol1")[1]
    assert sample.output is not None
    assert is_shown(sample.output, out, _CLUSTER)
    for at, line in enumerate(sample.output):
        without = (*sample.output[:at], *sample.output[at + 1 :])
        assert not is_shown(without, out, _CLUSTER), line
