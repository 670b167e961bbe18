# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds sanctl's wheel out of the tree, the same bytes for the same tree.

Standard library only, no build isolation and no registry: a controller has nothing to install for
it. Members are sorted, stored uncompressed (what zlib makes differs between versions) and dated
SOURCE_DATE_EPOCH, or 1980, so that an unchanged tree is an unchanged digest.
"""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import time
import tomllib
import zipfile
from pathlib import Path

_EPOCH_1980 = 315532800
#: What no node ever runs: the laboratory with its measurements, and the safety model.
_NOT_FOR_NODES = ("sanctl/lab/", "sanctl/safety/")


def members(source: Path) -> dict[str, bytes]:
    """Return the wheel's content by path, without its RECORD."""
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    files = {
        path.relative_to(source).as_posix(): path.read_bytes()
        for path in sorted((source / "sanctl").rglob("*"))
        if path.is_file()
        and "__pycache__" not in path.parts
        and not path.name.startswith(".")
        and not path.relative_to(source).as_posix().startswith(_NOT_FOR_NODES)
    }
    info = f"sanctl-{project['version']}.dist-info"
    scripts = "".join(f"{name} = {target}\n" for name, target in project["scripts"].items())
    requires = "".join(f"Requires-Dist: {item}\n" for item in project["dependencies"])
    files[f"{info}/METADATA"] = (
        "Metadata-Version: 2.1\n"
        f"Name: sanctl\nVersion: {project['version']}\nSummary: {project['description']}\n"
        f"Requires-Python: {project['requires-python']}\n{requires}"
    ).encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: sanctl\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{scripts}".encode()
    return files


def build(source: Path, target: Path) -> tuple[Path, bool]:
    """Write the wheel into a folder; return its path and whether its bytes are new there."""
    files = members(source)
    info = next(name for name in files if name.endswith(".dist-info/METADATA")).split("/")[0]
    record = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(content)}\n")
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()
    stamp = time.gmtime(max(_EPOCH_1980, int(os.environ.get("SOURCE_DATE_EPOCH", _EPOCH_1980))))
    target.mkdir(parents=True, exist_ok=True)
    wheel = target / f"{info.removesuffix('.dist-info')}-py3-none-any.whl"
    temporary = target / f"{wheel.name}.{os.getpid()}"
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, date_time=stamp[:6])
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, files[name])
    new = not wheel.exists() or wheel.read_bytes() != temporary.read_bytes()
    temporary.replace(wheel)
    return wheel, new


def main() -> None:
    """Build from argv[1] into argv[2]; print `new` or `same` and the wheel's path."""
    wheel, new = build(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.write(f"{'new' if new else 'same'} {wheel}\n")


if __name__ == "__main__":
    main()
