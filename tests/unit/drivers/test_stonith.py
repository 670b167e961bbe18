# SPDX-License-Identifier: GPL-2.0-or-later
"""A query of a fencing device by its fence agent, on this node, with the CIB's options."""

from __future__ import annotations

from collections.abc import Sequence

from sanctl.drivers.stonith import Stonith
from tests.fakes.runner import Answer, FakeRunner

_PRIMITIVE = """
<primitive id="fence-n1" class="stonith" type="fence_ipmilan">
  <meta_attributes id="m"><nvpair id="a" name="failure-timeout" value="60s"/></meta_attributes>
  <instance_attributes id="fence-n1-params">
    <nvpair id="b" name="ip" value="10.77.3.201"/>
    <nvpair id="c" name="password_script" value="cat /etc/sanctl/fence/n1"/>
    <nvpair id="d" name="pcmk_host_list" value="n1"/>
  </instance_attributes>
  <operations><op id="o" name="monitor" interval="120s"/></operations>
</primitive>
"""


def asked(outcome: Answer) -> tuple[str, FakeRunner]:
    def answer(argv: Sequence[str]) -> Answer:
        return _PRIMITIVE if argv[0] == "cibadmin" else outcome

    runner = FakeRunner(answer)
    return Stonith(runner).ask("fence-n1"), runner


def test_the_fence_agent_gets_the_fencers_options() -> None:
    reason, runner = asked("")
    assert reason == ""
    argv, stdin = runner.calls[-1]
    assert argv == ("/usr/sbin/fence_ipmilan",)
    assert (stdin or "").splitlines() == [
        "ip=10.77.3.201",
        "password_script=cat /etc/sanctl/fence/n1",
        "action=monitor",
    ]


def test_an_agent_that_fails_is_the_reason() -> None:
    reason, _ = asked((1, "", "Connection timed out"))
    assert "fence_ipmilan: exit status 1" in reason


def test_a_confirmation_switches_nothing() -> None:
    runner = FakeRunner(lambda _: "")
    Stonith(runner).confirm_off("n1")
    assert runner.calls[-1][0] == ("stonith_admin", "--confirm", "n1")
