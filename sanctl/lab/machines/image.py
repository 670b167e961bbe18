# SPDX-License-Identifier: GPL-2.0-or-later
"""The root filesystem image that all nodes boot from: built with mmdebstrap, cached by a digest."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sanctl.lab.machines import guest_files, lab_state
from sanctl.lab.machines.apt import AptSource, mmdebstrap_argv
from sanctl.lab.machines.lab_state import CACHE_ROOT, locked
from sanctl.lab.machines.process import run_logged
from sanctl.lab.machines.spec import digest
from sanctl.system.runner import Runner

# Raised when the way an image is made changes without any of its inputs changing.
_FORMAT = "1"
_ROOT_SIZE_MIB = 4096
_BUILD_DEADLINE_S = 1200.0
_MKFS_DEADLINE_S = 300.0

# Called with the line to show for a long step's progress.
ShowProgress = Callable[[str], None]


def image_path(release: str, source: AptSource) -> Path:
    """Return the folder of the image with exactly these inputs, built or not."""
    files = {
        path: [file.content.decode(), file.mode] for path, file in guest_files.image_files().items()
    }
    inputs = (
        _FORMAT,
        release,
        json.dumps(source),
        json.dumps(guest_files.packages(release)),
        json.dumps([guest_files.masked_units(), guest_files.disabled_units()]),
        json.dumps(files, sort_keys=True),
    )
    return CACHE_ROOT / f"node-{release}-{digest(*inputs)}"


def ensure(release: str, source: AptSource, runner: Runner, tick: ShowProgress) -> Path:
    """Return the folder with the nodes' image `root.img`, building it if it is not there.

    Raises:
        CommandError: the build failed; only its log is left.
    """
    wanted = image_path(release, source)
    with locked(CACHE_ROOT / ".lock"):
        if (wanted / "root.img").exists():
            return wanted
        with build_folder(f"node-{release}") as work:
            root = work / "root"
            run_logged(
                mmdebstrap_argv(
                    source,
                    suite=release,
                    target=str(root),
                    variant="minbase",
                    include=guest_files.packages(release),
                ),
                log=build_log(f"node-{release}"),
                timeout_s=_BUILD_DEADLINE_S,
                tick=tick,
            )
            customise(root)
            result = work / "result"
            result.mkdir()
            make_ext4(
                root, result / "root.img", size_mib=_ROOT_SIZE_MIB, label="root", runner=runner
            )
            result.rename(wanted)
        _forget_old_images(release, wanted)
    return wanted


def _forget_old_images(release: str, current: Path) -> None:
    """Remove images of older inputs that no laboratory boots from."""
    used = {lab.image for lab in map(lab_state.find, lab_state.names()) if lab is not None}
    a_day_ago = time.time() - 86400
    for folder in CACHE_ROOT.glob(f"node-{release}-*"):
        # A younger one may belong to a laboratory that another command is creating.
        if folder != current and folder not in used and folder.stat().st_mtime < a_day_ago:
            shutil.rmtree(folder)


def customise(root: Path) -> None:
    """Turn a freshly installed Debian tree into the laboratory's node image."""
    for unit in guest_files.masked_units():
        link = root / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    disabled = set(guest_files.disabled_units())
    units = root / "etc/systemd/system"
    # `requires`: sbd.service makes Corosync depend on it.
    for wants in (*units.glob("*.wants"), *units.glob("*.requires")):
        for link in list(wants.iterdir()):
            if link.name in disabled or (
                link.is_symlink() and link.name in guest_files.masked_units()
            ):
                link.unlink()
    # Made when the packages were installed, hence the same in every node: removed, so that sshd
    # fails in a node that has none of its own.
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (root / "etc/iscsi/initiatorname.iscsi").unlink(missing_ok=True)
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/resolv.conf").write_text("")
    shutil.rmtree(root / "usr/lib/modules", ignore_errors=True)
    for folder in ("usr/lib/modules", "var/log/journal", "srv/sanctl"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for path, file in guest_files.image_files().items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)


def make_ext4(
    folder: Path | None, target: Path, *, size_mib: int, label: str, runner: Runner
) -> None:
    """Make a sparse ext4 image with the contents of a folder, or an empty one."""
    content = ("-d", str(folder)) if folder else ()
    runner.run(
        ["mke2fs", "-q", "-F", "-t", "ext4", "-L", label, "-m", "0",
         "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard",
         *content, str(target), f"{size_mib}M"],
        timeout_s=_MKFS_DEADLINE_S,
    )  # fmt: skip


def build_log(what: str) -> Path:
    """Return the log file of the latest build of an image or kernel."""
    CACHE_ROOT.mkdir(parents=True, exist_ok=True)
    return CACHE_ROOT / f"build-{what}.log"


@contextmanager
def build_folder(what: str) -> Iterator[Path]:
    """Make a work folder in the cache, and remove it afterwards in any case."""
    log = build_log(what)
    log.unlink(missing_ok=True)
    work = CACHE_ROOT / f".building-{what}-{os.getpid()}"
    work.mkdir(parents=True)
    try:
        yield work
    finally:
        shutil.rmtree(work)
