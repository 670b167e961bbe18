"""Filters for what the controller knows: the inventory, the wheel, the agents."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

# In a checkout this file is ansible/plugins/filter/inventory.py, reached through a link or not.
_CHECKOUT = Path(__file__).resolve().parents[3]


def survey(
    hostvars: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return what is wrong with the inventory, or what the rollout needs to know of it.

    There is one validator, the one that also guards cluster.toml on the nodes.
    """
    if sys.version_info < (3, 11):
        raise AnsibleFilterError("ansible-playbook must run with Python 3.11 or newer")
    try:
        from sanctl.config import inventory  # noqa: PLC0415 - may need the path set below
    except ImportError:
        if not (_CHECKOUT / "sanctl" / "config").is_dir():
            raise AnsibleFilterError(
                f"the Python that runs ansible-playbook ({sys.executable}) has no sanctl:"
                " install its wheel there (pip install sanctl-*.whl), or run from a checkout"
            ) from None
        sys.path.insert(0, str(_CHECKOUT))
        from sanctl.config import inventory  # noqa: PLC0415 - only now it can be found
    return inventory.survey(hostvars, groups)


def release(wheel: str) -> str:
    """Return the folder name of a wheel: its version and the start of its digest."""
    path = Path(wheel)
    parts = path.name.split("-")
    if path.suffix != ".whl" or parts[0] != "sanctl" or len(parts) < 5:
        raise AnsibleFilterError(f"{wheel} is not a wheel of sanctl")
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise AnsibleFilterError(f"{wheel}: {error.strerror}") from error
    return f"{parts[1]}-{digest[:12]}"


def programs(source: str, target: str) -> list[dict[str, str]]:
    """Return the programs of a folder as the module `files` takes them, to be put into `target`."""
    files = sorted(path for path in Path(source).iterdir() if path.is_file())
    if not files:
        raise AnsibleFilterError(f"{source} is empty")
    return [
        {
            "path": f"{target}/{path.name}",
            "content": path.read_text(encoding="utf-8"),
            "mode": "0755",
        }
        for path in files
        if not path.name.startswith(".")
    ]


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name the filters."""
        return {"survey": survey, "release": release, "programs": programs}
