# SPDX-License-Identifier: GPL-2.0-or-later
"""The collection's modules, where they guard something: pools, and changes of the CIB."""

from __future__ import annotations

import builtins
import importlib.util
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from sanctl.drivers import pool_files, pool_notes
from sanctl.errors import CommandError
from sanctl.system import state_files
from tests.fakes.faults import NUMBERS, Faults

ANSIBLE = Path(__file__).resolve().parents[3] / "ansible"
UUID = "5d4c1f6e-9d0b-4c39-8a54-0c6f6f0b7a11"


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem + "_under_test", ANSIBLE / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pools = load("plugins/modules/pools.py")
cib = load("plugins/modules/cib.py")
files = load("plugins/modules/files.py")
releases = load("plugins/modules/releases.py")
wheel = load("roles/sanctl_preflight/files/build_wheel.py")


def problems(
    path: Path, *, served: bool = False, allow_unmounted: bool = True, notes: str = "/nowhere"
) -> list[str]:
    pool = {"name": "main", "path": str(path), "uuid": UUID}
    cluster_toml = Path(f"{path}.toml")
    if served:
        cluster_toml.write_text(f'[pools.main]\nuuid = "{UUID}"\nnodes = ["n1"]\n')
    found: list[str] = pools.problems_of(
        pool,
        cluster_toml=str(cluster_toml),
        node="n1",
        allow_unmounted=allow_unmounted,
        notes=notes,
    )
    return found


@pytest.fixture(autouse=True)
def notes_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the agents read the notes that the module writes."""
    monkeypatch.setattr(pool_notes, "_FOLDER", str(tmp_path / "lib/pools"))
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))


def test_a_new_pool_is_marked_once(tmp_path: Path) -> None:
    path, notes = tmp_path / "main", str(tmp_path / "lib/pools")
    path.mkdir()
    pool = {"name": "main", "path": str(path), "uuid": UUID}
    assert problems(path, notes=notes) == []
    assert not pools.is_complete(pool, notes)
    pools.make(pool, notes)
    assert pools.is_complete(pool, notes)
    assert (path / ".sanctl-pool").read_text() == f"{UUID}\n"
    assert (path / "devices").stat().st_mode & 0o777 == 0o700
    assert problems(path, served=True, notes=notes) == []
    identifier = pools.read_ids(pool, notes)[0]
    assert len(identifier) == 32
    (path / "devices").chmod(0o755)
    pools.make(pool, notes)
    assert pools.read_ids(pool, notes) == (identifier, identifier), "it began once"


@pytest.mark.parametrize(
    ("made", "served", "allow_unmounted", "text"),
    [
        ((), False, False, "no filesystem is mounted"),
        ((), True, True, "holds no marker"),
        (("devices",), False, True, "but no marker"),
        ((".sanctl-pool",), False, True, "marked as another pool"),
    ],
)
def test_what_is_not_the_pool_is_left_alone(
    tmp_path: Path, made: tuple[str, ...], served: bool, allow_unmounted: bool, text: str
) -> None:
    for name in made:
        (tmp_path / name).write_text("another\n")
    found = problems(tmp_path, served=served, allow_unmounted=allow_unmounted)
    assert len(found) == 1
    assert text in found[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(made)


@pytest.mark.parametrize(
    ("found", "noted", "served", "is_refused"),
    [
        ("", "", True, False),
        ("a", "a", True, False),
        ("", "a", True, True),
        ("b", "a", True, True),
        ("b", "a", False, True),
        ("b", "", True, True),
        # The node's own disk is new: the filesystem is the one that it has to have.
        ("b", "", False, False),
    ],
)
def test_a_filesystem_that_the_pool_had_before_is_refused(
    tmp_path: Path, found: str, noted: str, served: bool, is_refused: bool
) -> None:
    """Its marker is the pool's, and its replicas are old."""
    path, notes = tmp_path / "main", tmp_path / "lib/pools"
    pool = {"name": "main", "path": str(path), "uuid": UUID}
    path.mkdir()
    pools.make(pool, str(notes))
    note = notes / f"{UUID}.filesystem"
    for file, identifier in ((path / ".sanctl-filesystem", found), (note, noted)):
        file.write_text(f"{identifier}\n") if identifier else file.unlink()
    told = problems(path, served=served, notes=str(notes))
    assert len(told) == is_refused and all("SAN-POOL-033" in each for each in told)
    if not is_refused:
        assert pools.is_complete(pool, str(notes)) == (found == noted), "else it is changed"
        pools.make(pool, str(notes))
        assert pools.is_complete(pool, str(notes))
        assert (note.read_text().strip() if note.exists() else "") == found


@pytest.mark.parametrize("has_notes", [True, False], ids=["left the pool", "installed anew"])
@pytest.mark.parametrize("release", ["this", "older"])
def test_the_filesystem_before_is_refused_where_the_rollout_makes_the_pool_again(
    tmp_path: Path, *, has_notes: bool, release: str
) -> None:
    """With no id on both sides, or the one of the note again, the old disk passed."""
    path, notes = tmp_path / "main", tmp_path / "lib/pools"
    pool = {"name": "main", "path": str(path), "uuid": UUID}
    before: list[Path] = []
    for number in range(3):
        path.mkdir()
        assert problems(path, notes=str(notes)) == []
        pools.make(pool, str(notes))
        pool_files.check_marker(str(path), UUID)
        if release == "older" and number == 0:
            (path / ".sanctl-filesystem").unlink()
            (notes / f"{UUID}.filesystem").unlink()
            assert problems(path, served=True, notes=str(notes)) == []
            assert pools.is_complete(pool, str(notes)), "it stays as it is"
        aside = tmp_path / f"disk{number}"
        path.rename(aside)
        for old in before:
            old.rename(path)
            for served in (True, False):
                (told,) = problems(path, served=served, notes=str(notes))
                assert "SAN-POOL-033" in told
            with pytest.raises(CommandError, match="SAN-POOL-033"):
                pool_files.check_marker(str(path), UUID)
            path.rename(old)
        aside.rename(path)
        assert problems(path, served=True, notes=str(notes)) == []
        assert pools.is_complete(pool, str(notes))
        path.rename(aside)
        Path(f"{path}.toml").unlink()
        before.append(aside)
        if not has_notes:
            shutil.rmtree(notes)


@pytest.mark.parametrize("dies_at", range(3))
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_rollout_that_dies_leaves_neither_filesystem_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: int, when: str
) -> None:
    """The new one is no pool before its marker, and the old one none once the note is there."""
    path, notes, old = tmp_path / "main", tmp_path / "lib/pools", tmp_path / "old"
    pool = {"name": "main", "path": str(path), "uuid": UUID}
    path.mkdir()
    pools.make(pool, str(notes))
    path.rename(old)
    path.mkdir()
    written: list[str] = []
    real = pools.write_line

    def dying(where: str, text: str) -> None:
        if when == "before" and len(written) == dies_at:
            raise KeyboardInterrupt
        real(where, text)
        written.append(os.path.basename(where))
        if len(written) == dies_at + 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pools, "write_line", dying)
        with pytest.raises(KeyboardInterrupt):
            pools.make(pool, str(notes))
    steps = [f"{UUID}.filesystem", ".sanctl-filesystem", ".sanctl-pool"]
    assert written == steps[: dies_at + (when == "after")]
    if ".sanctl-pool" not in written:
        with pytest.raises(CommandError, match="SAN-POOL-001"):
            pool_files.check_marker(str(path), UUID)
    assert not pools.is_complete(pool, str(notes))
    assert problems(path, notes=str(notes)) == []
    pools.make(pool, str(notes))
    assert pools.is_complete(pool, str(notes))
    pool_files.check_marker(str(path), UUID)
    path.rename(tmp_path / "new")
    old.rename(path)
    with pytest.raises(CommandError, match="SAN-POOL-033"):
        pool_files.check_marker(str(path), UUID)


def test_a_missing_directory_is_no_pool(tmp_path: Path) -> None:
    assert "is not a directory" in problems(tmp_path / "gone")[0]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", ["", ".sanctl-pool", "devices"])
def test_a_disk_that_does_not_answer_is_no_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    """A pool whose folder could not be looked at was marked anew."""
    (tmp_path / "devices").mkdir()
    faults = Faults(monkeypatch)
    monkeypatch.setattr(builtins, "open", lambda path, **_: os.close(os.open(path, os.O_RDONLY)))
    faults.at(tmp_path / name, number)
    (found,) = problems(tmp_path)
    assert os.strerror(number) in found and str(tmp_path / name) in found
    assert "Nothing was changed" in found


@pytest.mark.parametrize("number", NUMBERS)
def test_a_cluster_toml_that_cannot_be_read_is_a_problem_of_the_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It ended the module with a traceback, and the play without what to do."""
    path = tmp_path / "pool"
    path.mkdir()
    faults = Faults(monkeypatch)
    monkeypatch.setattr(builtins, "open", lambda path, **_: os.close(os.open(path, os.O_RDONLY)))
    faults.at(tmp_path / "pool.toml", number)
    (found,) = problems(path)
    assert os.strerror(number) in found and str(tmp_path / "pool.toml") in found
    assert "Nothing was changed" in found and not list(path.iterdir())


@pytest.mark.parametrize(
    ("text", "served"),
    [
        (f'[pools.main]\nuuid = "{UUID}"\nnodes = ["n1", "n2"]\n', True),
        # The file is the same on all nodes: this one has lost its place there, or never had one.
        (f'[pools.main]\nuuid = "{UUID}"\nnodes = ["n2"]\n', False),
        ('[pools.main]\nuuid = "another"\nnodes = ["n1"]\n', False),
        ("", False),
        # Whatever cannot be read is taken for a pool of this node.
        (f'[pools.main]\nuuid = "{UUID}"\n', True),
        (f"uuid = {UUID}\n", True),
    ],
)
def test_a_node_serves_the_pools_that_list_it(tmp_path: Path, text: str, served: bool) -> None:
    file = tmp_path / "cluster.toml"
    assert not pools.is_served(str(file), UUID, "n1")
    file.write_text(text)
    assert pools.is_served(str(file), UUID, "n1") is served


WANTED = """
<configuration>
  <crm_config><nvpair name="stonith-enabled" value="true"/></crm_config>
  <resources>
    <primitive id="fence-n1" class="stonith" type="fence_ipmilan">
      <instance_attributes id="fence-n1-params">
        <nvpair id="fence-n1-params-ip" name="ip" value="192.0.2.1"/>
        <nvpair id="fence-n1-params-lanplus" name="lanplus" value="1"/>
      </instance_attributes>
    </primitive>
  </resources>
  <constraints>
    <rsc_location id="fence-n1-elsewhere" rsc="fence-n1" node="n1" score="-INFINITY"/>
  </constraints>
</configuration>
"""


def changed(configuration: ET.Element, *owned: str) -> list[str]:
    return [name for name, _, _ in cib.apply(ET.fromstring(WANTED), configuration, [*owned])]


def test_a_bare_cib_gets_everything_and_then_nothing() -> None:
    configuration = ET.fromstring("<configuration><crm_config/></configuration>")
    assert changed(configuration) == ["stonith-enabled", "fence-n1", "fence-n1-elsewhere"]
    assert changed(configuration) == []


def test_order_and_white_space_do_not_count() -> None:
    configuration = ET.fromstring("<configuration/>")
    changed(configuration)
    attributes = configuration.find("resources/primitive/instance_attributes")
    assert attributes is not None
    attributes[:] = list(attributes)[::-1]
    attributes.text = "\n    "
    assert changed(configuration) == []


def test_what_operators_and_devices_added_stays() -> None:
    configuration = ET.fromstring("<configuration/>")
    changed(configuration)
    resources = configuration.find("resources")
    assert resources is not None
    primitive = resources[0]
    primitive.append(
        ET.fromstring(
            '<meta_attributes id="fence-n1-meta_attributes">'
            '<nvpair id="x" name="target-role" value="Stopped"/></meta_attributes>'
        )
    )
    resources.append(ET.fromstring('<clone id="sanctl-vol1"/>'))
    primitive[0][0].set("value", "192.0.2.9")
    assert changed(configuration) == ["fence-n1"]
    assert [item.get("id") for item in resources] == ["fence-n1", "sanctl-vol1"]
    kept = resources[0].find("meta_attributes/nvpair")
    assert kept is not None
    assert kept.get("value") == "Stopped"
    address = resources[0].find("instance_attributes/nvpair")
    assert address is not None
    assert address.get("value") == "192.0.2.1"
    assert changed(configuration) == []


def test_what_is_not_asked_for_any_more_goes_and_nothing_else() -> None:
    configuration = ET.fromstring("<configuration/>")
    cib.apply(
        ET.fromstring(
            WANTED.replace("n1", "n2").replace(
                "</constraints>",
                '</constraints><fencing-topology><fencing-level id="fence-n2_level1" target="n2"'
                ' index="1" devices="fence-n2"/></fencing-topology>',
            )
        ),
        configuration,
        [],
    )
    by_hand = WANTED.replace("n1", "n3").replace("-params", "-instance_attributes")
    cib.apply(ET.fromstring(by_hand), configuration, [])
    changed(configuration)
    owned = [f"fence-n{number}-params" for number in (1, 2, 3)]
    assert changed(configuration, *owned, "fence-n2-elsewhere", "fence-n2_level1") == [
        "fence-n2_level1",
        "fence-n2-elsewhere",
        "fence-n2",
    ]
    left = [item.get("id") for item in configuration.findall("*/*") if item.get("id")]
    assert left == ["cib-bootstrap-options", "fence-n3", "fence-n1", "fence-n3-elsewhere",
                    "fence-n1-elsewhere"]  # fmt: skip
    assert changed(configuration, *owned) == []


def test_a_clone_that_holds_such_a_part_is_not_ours() -> None:
    configuration = ET.fromstring("<configuration/>")
    changed(configuration)
    resources = configuration.find("resources")
    assert resources is not None
    clone = ET.SubElement(resources, "clone", {"id": "theirs"})
    clone.append(
        ET.fromstring('<primitive id="x"><instance_attributes id="x-params"/></primitive>')
    )
    assert changed(configuration, "x-params") == []


def test_levels_of_others_are_named_and_not_added_to() -> None:
    def levels(*ids: tuple[str, str]) -> ET.Element:
        inner = "".join(f'<fencing-level id="{name}" target="{node}"/>' for name, node in ids)
        return ET.fromstring(
            f"<configuration><fencing-topology>{inner}</fencing-topology></configuration>"
        )

    wanted = levels(("fence-n1_level1", "n1"), ("fence-n1_level2", "n1"))
    owned = ["fence-n1_level1", "fence-n1_level3"]
    for present, foreign in (
        (levels(), []),
        (levels(("fence-n1_level2", "n1"), ("fence-n1_level3", "n1")), []),
        (levels(("fl-n1-1", "n1"), ("fl-n2-1", "n2")), ["fl-n1-1"]),
    ):
        assert cib.foreign_levels(wanted, present, owned) == foreign
    assert cib.foreign_levels(levels(), levels(("fl-n1-1", "n1")), owned) == []


REACH = """
<configuration><resources>
  <clone id="sanctl-reach"><meta_attributes id="sanctl-reach-meta"/>
    <primitive id="sanctl-reached" class="ocf" provider="sanctl" type="reach"/>
  </clone>
</resources><constraints/></configuration>
"""
AGENTS = {
    "fence-n1": ["stonith"],
    "sanctl-reached": ["ocf:sanctl:reach", "ocf:heartbeat:ethmonitor", "ocf:pacemaker:ping"],
}


def taken(wanted: str, present: str) -> list[str]:
    found: list[str] = cib.foreign_elements(ET.fromstring(wanted), ET.fromstring(present), AGENTS)
    return found


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("vm1", []),
        ("reach", ["primitive reach in clone sanctl-reach"]),
        ("reached", ["clone sanctl-reached"]),
    ],
)
def test_a_device_with_the_id_of_a_part_is_not_replaced(device: str, expected: list[str]) -> None:
    present = f"""
    <configuration><resources><clone id="sanctl-{device}">
      <primitive id="{device}" class="ocf" provider="sanctl" type="device"/>
    </clone></resources><constraints/></configuration>
    """
    assert taken(REACH, present) == expected


def test_own_parts_may_get_another_agent_and_others_may_not() -> None:
    assert taken(REACH, REACH) == []
    carrier = REACH.replace(
        'provider="sanctl" type="reach"', 'provider="heartbeat" type="ethmonitor"'
    )
    assert taken(carrier, REACH) == taken(REACH, carrier) == []
    stock = REACH.replace('provider="sanctl" type="reach"', 'provider="pacemaker" type="ping"')
    assert taken(REACH, stock) == []
    device = REACH.replace('provider="sanctl" type="reach"', 'provider="sanctl" type="device"')
    assert taken(REACH, device) == ["ocf:sanctl:device sanctl-reached"]
    assert taken(WANTED, WANTED.replace("fence_ipmilan", "fence_redfish")) == []
    other = WANTED.replace('class="stonith" type="fence_ipmilan"', 'class="systemd" type="x"')
    assert taken(WANTED, other) == ["systemd:x fence-n1"]
    assert taken(WANTED, WANTED.replace("rsc_location", "rsc_order")) == [
        "rsc_order fence-n1-elsewhere"
    ]
    bare = "<configuration/>"
    assert taken(WANTED, bare) == []


def test_nothing_is_changed_before_there_is_a_controller() -> None:
    node = '<configuration><nodes><node uname="n1"/></nodes></configuration>'
    ready = f'<cib dc-uuid="1" crm_feature_set="3.16.2" have-quorum="1">{node}</cib>'
    assert cib.missing_of(None, ["n1"]) == "Pacemaker does not answer"
    assert cib.missing_of(ET.fromstring("<cib/>"), ["n1"]) == "no controller is elected"
    alone = ET.fromstring(ready.replace('have-quorum="1"', 'have-quorum="0"'))
    assert cib.missing_of(alone, ["n1"]) == "there is no quorum"
    assert cib.missing_of(ET.fromstring(ready), ["n1", "n2"]) == "n2 have not joined"
    assert cib.missing_of(ET.fromstring(ready), ["n1"]) == ""


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("theirs")
    link = tmp_path / "link"
    link.symlink_to(target)
    assert files.current(str(link)) is None
    assert files.current(str(target))[0] == b"theirs"


def test_the_same_tree_is_the_same_wheel(tmp_path: Path) -> None:
    root = ANSIBLE.parent
    first, new = wheel.build(root, tmp_path / "a")
    assert new
    second, new = wheel.build(root, tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    assert new
    assert wheel.build(root, tmp_path / "a") == (first, False)
    names = zipfile.ZipFile(first).namelist()
    assert "sanctl/cli/main.py" in names
    assert not [name for name in names if "__pycache__" in name]


OLD, BEFORE, NOW, NEXT = (f"0.1.0-{digit * 12}" for digit in "abcd")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    for name in (OLD, BEFORE, NOW, "new", "0.1.0-not-ours"):
        (tmp_path / name).mkdir()
    (tmp_path / "current").symlink_to(NOW)
    (tmp_path / "previous").symlink_to(BEFORE)
    return tmp_path


def test_the_way_back_is_kept(installed: Path) -> None:
    """Whatever is removed now, a second run must find nothing more."""
    assert releases.unneeded(installed, NOW) == [OLD]
    # A new one is about to come: then the current one is the way back.
    assert releases.unneeded(installed, NEXT) == [OLD, BEFORE]


def test_where_nothing_is_installed_nothing_is_removed(tmp_path: Path) -> None:
    assert releases.unneeded(tmp_path / "none", NOW) == []
    assert releases.link(tmp_path, "current") == ""


def test_an_open_release_is_seen(installed: Path) -> None:
    handle = os.open(installed / OLD, os.O_RDONLY)
    try:
        assert str(installed / OLD) in releases.opened(Path("/proc"))
    finally:
        os.close(handle)
    assert str(installed / OLD) not in releases.opened(Path("/proc"))


def test_the_release_of_a_node_has_neither_laboratory_nor_safety_model(tmp_path: Path) -> None:
    built, _ = wheel.build(ANSIBLE.parent, tmp_path)
    with zipfile.ZipFile(built) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "release")
    assert "sanctl/agents/device.py" in names
    assert not [
        name
        for name in names
        if name.startswith(("sanctl/lab/", "sanctl/rollout/", "sanctl/safety/"))
    ]

    # Without the finder of an editable install, which would find the checkout's laboratory.
    run = (
        "import sys; sys.path.insert(0, ''); "
        "sys.meta_path[:] = [each for each in sys.meta_path if 'editable' not in repr(each)]; "
        "from sanctl.cli.main import main; main()"
    )

    def sanctl(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", run, *words],
            cwd=tmp_path / "release", capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert "chaos" not in sanctl("--help").stdout
    refused = sanctl("lab", "up")
    assert refused.returncode == 2
    assert "part of a checkout" in refused.stderr


def test_a_pool_path_through_a_link_is_refused(tmp_path: Path) -> None:
    """The kernel names the device files below by another path than agents look for."""
    (tmp_path / "real" / "pool").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (found,) = problems(tmp_path / "link" / "pool")
    assert "leads through a symbolic link to" in found
    assert problems(tmp_path / "real" / "pool") == []


def test_a_release_is_on_the_disk_before_it_has_its_name() -> None:
    """After a loss of power it was there with empty files, and no later run looked into it."""
    tasks = (ANSIBLE / "roles/sanctl_software/tasks/main.yml").read_text()
    steps = [
        "compileall -q new",
        "sync -f new",
        "mv -T new {{ sanctl_preflight_release }}",
        "mv -T current.new current",
        "sync -f .",
    ]
    found = [tasks.index(step) for step in steps]
    assert found == sorted(found)
