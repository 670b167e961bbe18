# SPDX-License-Identifier: GPL-2.0-or-later
"""How a connection to a second site ends that says nothing, or the wrong thing."""

from __future__ import annotations

import json
import os

import pytest

from sanctl.drivers.site_link import SiteLink
from sanctl.errors import CommandError

SAID = json.dumps({"code": "SAN-SITE-014", "error": "a disk has ended nothing"})
#: A frame with that, as printf(1) takes it.
HUNG = f"J\\0\\0\\0\\{len(SAID):o}{SAID}"


def test_a_site_that_says_nothing_or_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sanctl.drivers.site_connection._SILENCE_S", 0.2)
    for argv, code in (
        (["sh", "-c", "exec sleep 1", "sh"], "SAN-SITE-005.*said nothing"),
        # The disk hangs: it reads no more, and what it says before it hangs is why.
        (["sh", "-c", "exec sleep 2", "hung"], "SAN-SITE-005.*said nothing"),
        (["sh", "-c", f"printf '{HUNG}'; exec sleep 2", "hung"], "SAN-SITE-014.*ended nothing"),
        (
            ["sh", "-c", "echo Host key verification failed. >&2; exit 255", "x"],
            "SAN-SITE-015.*'sanctl site set far --host-key SHA256:...'",
        ),
        (["sh", "-c", "echo no route >&2; exit 255", "x"], "SAN-SITE-005.*reached: no route"),
        (
            ["sh", "-c", "exit 3", "x"],
            "SAN-SITE-005.*ended the connection: ssh ended with status 3",
        ),
        (["sh", "-c", "printf 'J\\0\\0\\0\\1x'; cat >/dev/null", "x"], "SAN-SITE-008"),
        (["/nonexistent"], "SAN-CMD-001"),
    ):
        # More than a pipe holds, for those that read nothing and end.
        script = os.urandom(1 if argv[-1] == "sh" else 1 << 20)
        link = SiteLink(argv, "far", script)
        with pytest.raises(CommandError, match=code), link:
            link.hello()
