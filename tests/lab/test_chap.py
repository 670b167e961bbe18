# SPDX-License-Identifier: GPL-2.0-or-later
"""A host that logs in with CHAP (ADR 52): by its secret alone, through a failover, as it changes.

The tests build on each other's device and host, in file order. Beside the laboratory's host a
second initiator, by its IQN alone, uses the same device.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import await_healthy
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support.steps import findings

pytestmark = pytest.mark.in_order

NAME, HOST, USER = "chap0", "app1", "app1.chap"
NODES = ("n1", "n2")
SECOND = "iqn.2026-11.net.example:second"
# Made up for the laboratory; each is searched for in what is readable afterwards.
FIRST, NEXT, OTHER, TARGETS = (
    "aFirstSecret.1",
    "theNextSecret/2",
    "aWrongSecret=3",
    "theTargets-No4",
)
CHANGE_S = 120.0
MONITOR_S = 60.0
_FILE = f"/etc/sanctl/hosts/{HOST}"
_FAILED = re.compile(r"authorization failure|Authentication failed|0x0?201|\(513\)", re.IGNORECASE)


def give_secrets(
    bed: LabSession, secret: str, mutual: str = "", *, nodes: tuple[str, ...] = NODES
) -> None:
    """Put the host's secrets on nodes, as the playbook does: so that a power cut leaves them."""
    text = f"secret = {secret}\n" + (f"mutual = {mutual}\n" if mutual else "")
    for node in nodes:
        bed.sh(
            node,
            f"mkdir -p /etc/sanctl/hosts; umask 077; cat >{_FILE}.new && sync {_FILE}.new"
            f" && mv {_FILE}.new {_FILE} && sync /etc/sanctl/hosts",
            stdin=text,
        )


@pytest.fixture(scope="module")
def target(scenario: Scenario) -> Iterator[str]:
    bed = scenario.bed
    give_secrets(bed, FIRST)
    scenario.sanctl("host", "create", HOST, "--iqn", scenario.host.iqn, "--chap", USER)
    try:
        scenario.sanctl(
            "device", "create", NAME, "--size", "64M", "--prefer", "n1", "--host", HOST,
            "--initiator", SECOND, timeout_s=300,
        )  # fmt: skip
        yield f"{scenario.iqn_prefix()}.{NAME}"
    finally:
        if scenario.exists(NAME):
            scenario.delete(NAME)
        scenario.sanctl("host", "delete", HOST)
        for node in NODES:
            bed.sh(node, f"rm -f {_FILE}")


def inquiry(scenario: Scenario, portal: str, target: str, iqn: str, login: str = "") -> str:
    """Log in by libiscsi, ask who is there, and log out; return what it printed."""
    return scenario.host.sh(
        f"iscsi-inq -i {iqn} 'iscsi://{login}{portal}/{target}/0' 2>&1", ok=range(256)
    )


def is_let_in(scenario: Scenario, portal: str, target: str, secret: str) -> bool:
    out = inquiry(scenario, portal, target, scenario.host.iqn, f"{USER}%{secret}@")
    assert answers(out) != bool(_FAILED.search(out)), out
    return answers(out)


def answers(inquired: str) -> bool:
    """Whether the target answered after the login; a standby answers that it is not ready."""
    return "SANCTL" in inquired or "NOT READY(2) ASCQ:UNKNOWN(0x040b)" in inquired


def acl(scenario: Scenario, node: str, target: str, path: str) -> str:
    """Read a file of the host's entry in a node's access list; `absent` without an entry."""
    return scenario.bed.sh(
        node,
        f"cd /sys/kernel/config/target/iscsi/{target}/tpgt_{node[1:]}/acls/{scenario.host.iqn}"
        f" 2>/dev/null && cat {path} || echo absent",
    ).stdout.strip()


def set_records(scenario: Scenario, target: str, secret: str, mutual: str = "") -> None:
    """Tell the host's open-iscsi by which secrets it logs in."""
    values = {"authmethod": "CHAP", "username": USER, "password": secret}
    if mutual:
        values |= {"username_in": USER, "password_in": mutual}
    scenario.host.discover(scenario.portals()[0])
    for key, value in values.items():
        scenario.host.sh(
            f"iscsiadm -m node -T {target} -o update -n node.session.auth.{key} -v '{value}'"
        )


def has_no_session(scenario: Scenario, target: str) -> bool:
    return all(acl(scenario, node, target, "info").startswith("No active") for node in NODES)


def test_without_the_secret_nothing_is_had(scenario: Scenario, target: str) -> None:
    bed = scenario.bed
    began = {node: bed.sh(node, "date +%s.%N").stdout.strip() for node in NODES}
    for node, portal in zip(NODES, scenario.portals(), strict=True):
        out = inquiry(scenario, portal, target, scenario.host.iqn)
        assert not answers(out) and _FAILED.search(out), out
        assert not is_let_in(scenario, portal, target, OTHER)
        log = bed.sh(node, f"journalctl -k -o cat --since @{began[node]}").stdout
        print(f"{node}: the kernel says:\n{log}")
        assert "enforcing iSCSI Authentication" in log
        assert "Security negotiation failed" in log
        # The entry for the initiator without CHAP is not touched by the other's.
        assert answers(inquiry(scenario, portal, target, SECOND))
    assert has_no_session(scenario, target)


def test_a_host_without_chap_logs_in_while_the_target_asks(scenario: Scenario, target: str) -> None:
    """For a moment it does, whenever an initiator with CHAP is added to the list."""
    portal = scenario.portals()[0]
    attribute = f"/sys/kernel/config/target/iscsi/{target}/tpgt_1/attrib/authentication"
    scenario.bed.sh("n1", f"echo 1 >{attribute}")
    try:
        assert answers(inquiry(scenario, portal, target, SECOND))
        assert not is_let_in(scenario, portal, target, OTHER)
    finally:
        scenario.bed.sh("n1", f"echo 0 >{attribute}")


def test_open_iscsi_without_and_with_a_wrong_secret(scenario: Scenario, target: str) -> None:
    host = scenario.host
    assert set(scenario.portals()) == {
        path.partition(":")[0]
        for name, path in host.discovered_paths(scenario.portals()[0])
        if name == target
    }
    login = f"iscsiadm -m node -T {target} --login 2>&1"
    assert "authorization failure" in host.sh(login, ok=range(1, 256))
    set_records(scenario, target, OTHER)
    assert "authorization failure" in host.sh(login, ok=range(1, 256))
    assert has_no_session(scenario, target) and not host.sessions(target)


def test_the_journal_names_who_failed(scenario: Scenario, target: str) -> None:
    """Not by the kernel's lines: these name nobody."""
    bed, portal = scenario.bed, scenario.portals()[0]
    began_s = float(bed.sh("n1", "date +%s").stdout)

    def lines() -> list[str]:
        log = bed.sh(
            "n1", f"journalctl -o cat SYSLOG_IDENTIFIER=sanctl --since @{began_s:.0f}"
        ).stdout
        return [line for line in log.splitlines() if "SAN-HOST-021" in line]

    # A line of the failures before may have been a moment ago.
    def fail() -> bool:
        assert not is_let_in(scenario, portal, target, OTHER)
        return bool(lines())

    wait_for("a line", fail, within_s=2 * MONITOR_S + 60, every_s=3.0)
    print(lines()[-1])
    assert f"device {NAME}: " in lines()[-1] and scenario.host.iqn in lines()[-1]
    assert " from " in lines()[-1] and OTHER not in lines()[-1]
    took_s = float(bed.sh("n1", "date +%s").stdout) - began_s
    assert len(lines()) <= took_s // 60 + 1


def test_the_host_logs_in_on_all_paths(scenario: Scenario, target: str) -> None:
    host = scenario.host
    set_records(scenario, target, FIRST)
    for portal in scenario.portals():
        assert is_let_in(scenario, portal, target, FIRST)
    host.sh(f"iscsiadm -m node -T {target} --login", timeout_s=120)
    assert set(host.sessions(target)) == set(scenario.portals())
    wait_for("two paths", lambda: len(host.paths(target, scenario.portals())) == 2, within_s=60)


@pytest.mark.faults
def test_a_failover_goes_on(scenario: Scenario, target: str) -> None:
    """The host is logged in to both; the node that comes back has it authenticate again."""
    bed, host = scenario.bed, scenario.host
    (name,) = set(host.paths(target, scenario.portals()).values())
    run = host.start_ledger(NAME, f"/dev/mapper/{name}", "--rate", "50")
    active = collect.active_node(bed, NAME)
    (lost,) = scenario.portals([active])
    bed.cut_power(active)
    try:
        wait_for(
            "the other node to serve", lambda: collect.active_node(bed, NAME) != active, within_s=60
        )
    finally:
        bed.ensure_power(active)
        await_healthy(bed, "n1" if active == "n2" else "n2")
    wait_for(
        "the host's session with the node that is back",
        lambda: not acl(scenario, active, target, "info").startswith(("No active", "absent")),
        within_s=180,
    )
    assert lost in host.sessions(target)
    assert acl(scenario, active, target, "attrib/authentication") == "1"
    host.stop_ledger(run)
    result = host.check_ledger(run)
    print(result)
    assert result["errors"] == result["lost"] == 0 and not result["findings"]


def test_a_changed_secret_holds_for_new_logins(scenario: Scenario, target: str) -> None:
    bed, host = scenario.bed, scenario.host
    before = host.sessions(target)
    assert len(before) == 2
    give_secrets(bed, NEXT)
    for node in NODES:
        wait_for(
            f"{node} to have the new secret",
            lambda node=node: acl(scenario, node, target, "auth/password") == NEXT,  # type: ignore[misc]
            within_s=MONITOR_S,
        )
    assert host.sessions(target) == before
    for portal in scenario.portals():
        assert not is_let_in(scenario, portal, target, FIRST)
        assert is_let_in(scenario, portal, target, NEXT)
    set_records(scenario, target, NEXT)


def test_a_node_without_the_secret_lets_the_host_in_by_no_means(
    scenario: Scenario, target: str
) -> None:
    bed, host = scenario.bed, scenario.host
    standby = "n1" if collect.active_node(bed, NAME) == "n2" else "n2"
    (portal,), (other,) = (
        scenario.portals([standby]),
        scenario.portals([node for node in NODES if node != standby]),
    )
    began = bed.sh(standby, f"date +%s; rm {_FILE}").stdout.strip()
    scenario.sanctl("node", "standby", standby, timeout_s=300)
    scenario.sanctl("node", "online", standby, timeout_s=300)
    wait_for(
        f"the replica on {standby}",
        lambda: answers(inquiry(scenario, portal, target, SECOND)),
        within_s=CHANGE_S,
    )
    assert acl(scenario, standby, target, "info") == "absent"
    for login in ("", f"{USER}%{NEXT}@", f"{USER}%{FIRST}@"):
        assert not answers(inquiry(scenario, portal, target, host.iqn, login))
    assert is_let_in(scenario, other, target, NEXT)
    wait_for(
        "the finding",
        lambda: f"SAN-HLT-094 device {NAME}" in findings(bed, "n3", "status"),
        within_s=MONITOR_S,
    )
    log = bed.sh(
        standby,
        f"journalctl -o cat --since @{began} SANCTL_DEVICE={NAME} SANCTL_ACTION=access-list",
    ).stdout
    print(log)
    # By the monitor that found it missing, maybe, and by the start: not with each monitor.
    assert 1 <= log.count("SAN-HOST-011") <= 2
    # Too open a file is as good as none.
    give_secrets(bed, NEXT, nodes=(standby,))
    bed.sh(standby, f"chmod 0644 {_FILE}")
    assert acl(scenario, standby, target, "info") == "absent"
    bed.sh(standby, f"chmod 0600 {_FILE}")
    wait_for(
        f"{standby} to let the host in",
        lambda: acl(scenario, standby, target, "attrib/authentication") == "1",
        within_s=MONITOR_S,
    )
    assert is_let_in(scenario, portal, target, NEXT)
    assert bed.sh(
        standby,
        f"cat /sys/kernel/config/target/iscsi/{target}/tpgt_{standby[1:]}/attrib/authentication",
    ).stdout.split() == ["0"]
    assert not answers(inquiry(scenario, portal, target, host.iqn))
    wait_for(
        "no finding",
        lambda: f"SAN-HLT-094 device {NAME}" not in findings(bed, "n3", "status"),
        within_s=MONITOR_S,
    )


def test_mutual(scenario: Scenario, target: str) -> None:
    """The host refuses a target that does not know the target's secret."""
    bed, host = scenario.bed, scenario.host
    host.logout(target)
    give_secrets(bed, NEXT, TARGETS)
    scenario.sanctl("host", "set", HOST, "--mutual", timeout_s=CHANGE_S)
    login = f"iscsiadm -m node -T {target} --login 2>&1"
    set_records(scenario, target, NEXT, OTHER)
    assert "login failure" in host.sh(login, ok=range(1, 256), timeout_s=120)
    assert not host.sessions(target)
    set_records(scenario, target, NEXT, TARGETS)
    host.sh(login, timeout_s=120)
    assert len(host.sessions(target)) == 2
    for node in NODES:
        assert acl(scenario, node, target, "auth/authenticate_target") == "1"


def test_no_secret_is_readable(scenario: Scenario, target: str) -> None:
    bed = scenario.bed
    for node in (*NODES, "n3"):
        seen = bed.sh(
            node,
            "cibadmin --query; journalctl -o export --no-pager; cat /var/log/pacemaker/*.log;"
            " cat /run/sanctl/devices/*/* /run/sanctl/node/* 2>/dev/null; true",
            timeout_s=120,
        ).stdout
        assert USER in seen
        assert not [secret for secret in (FIRST, NEXT, TARGETS) if secret in seen]
    for node in NODES:
        folder = (
            f"/sys/kernel/config/target/iscsi/{target}/tpgt_{node[1:]}/acls/{scenario.host.iqn}"
        )
        for path in (f"{folder}/auth/password", f"{folder}/auth/password_mutual", _FILE):
            done = bed.sh(node, f"setpriv --reuid 65534 --clear-groups cat {path}", ok=range(256))
            assert done.status != 0 and not done.stdout


def test_without_chap_again(scenario: Scenario, target: str) -> None:
    host = scenario.host
    before = host.sessions(target)
    scenario.sanctl("host", "set", HOST, "--no-chap", timeout_s=CHANGE_S)
    assert host.sessions(target) == before
    for portal in scenario.portals():
        assert answers(inquiry(scenario, portal, target, host.iqn))
    host.logout(target)
