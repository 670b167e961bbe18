# SPDX-License-Identifier: GPL-2.0-or-later
"""A second site as the CIB holds it, and what the cluster knows of a device's copies there.

NamedTuples, as restore points are.
"""

from __future__ import annotations

import binascii
import re
from typing import NamedTuple

from sanctl.errors import Problem, UsageError
from sanctl.model.names import format_bytes, parse_bytes
from sanctl.model.point_schedule import PointSchedule, Rule

#: The id of the cluster_property_set with the sites, what is known of copies and their schedules,
#: and the beginnings of the properties' names and ids. The latter two end with DEVICE.SITE.
SITES_ID = "sanctl.sites"
SITE_PREFIX = "sanctl-site."
COPY_PREFIX = "sanctl-copy."
COPY_SCHEDULE_PREFIX = "sanctl-copying."

DEFAULT_PORT = 22
#: The bounds of a limit of the rate, in bytes a second.
LOWEST_LIMIT_BYTES_S, HIGHEST_LIMIT_BYTES_S = 16 << 10, 4 << 30
_NO_LIMIT = "none"
#: The private key by which nodes log in to sites, unless another file is named.
DEFAULT_IDENTITY = "/etc/sanctl/site_key"

# Short: the restore points that are made for a site have its name in theirs.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,14}[a-z0-9])?")
_USER = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]")
_HOST_AND_PORT = re.compile(r"(\[[^\]]*\]|[^:]*)(?::([0-9]{1,5}))?")
_PATH = re.compile(r"(?:/[A-Za-z0-9_+=@.-]+)+")
_KEY = re.compile(r"[a-z0-9@.-]{1,64} [A-Za-z0-9+/]{16,1200}={0,2}")
_LIMIT = re.compile(r"0|[1-9][0-9]{4,9}")
_MARK = re.compile(r"[0-9a-f]{32}")
_TOKEN = re.compile(r"[0-9a-f]{16}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_POINT = re.compile(r"[a-z0-9-]{1,40}")
_NOTHING = "-"
#: How many of a proven copy's fields the CIB has.
_NOTED_FIELDS = 8


class Site(NamedTuple):
    """A server with a directory that takes copies of restore points.

    Attributes:
        name: its name here.
        user: the user that nodes log in as.
        host: its name or address; an IPv6 address in brackets.
        port: the TCP port of its sshd.
        path: the directory.
        identity: the file on each node with the private key to log in with.
        mark: 32 hex digits that the directory carries: that it is this one, and mounted.
        host_key: the type of the server's key and the key, as a known_hosts file has them.
        limit_bytes_s: how much is sent there in a second at most; 0: as much as the line takes.
    """

    name: str
    user: str
    host: str
    port: int
    path: str
    identity: str
    mark: str
    host_key: str
    limit_bytes_s: int = 0

    @property
    def id(self) -> str:
        """The id and the name of its property."""
        return f"{SITE_PREFIX}{self.name}"

    @property
    def value(self) -> str:
        """The value of its property."""
        limit = f" {self.limit_bytes_s}" if self.limit_bytes_s else ""
        return f"{self.address} {self.path} {self.identity} {self.mark} {self.host_key}{limit}"

    @property
    def address(self) -> str:
        """USER@HOST:PORT."""
        return f"{self.user}@{self.host}:{self.port}"

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the server's key, as `ssh-keygen -l` shows it."""
        return fingerprint_of(self.host_key)

    @classmethod
    def parse(cls, identifier: str, value: str) -> Site | None:
        """Read a property; None for one that is no site as this release writes them."""
        words = value.split(" ")
        if not identifier.startswith(SITE_PREFIX) or len(words) not in {6, 7}:
            return None
        try:
            name = parse_site_name(identifier.removeprefix(SITE_PREFIX))
            user, host, port = parse_address(words[0])
            path, identity = parse_path(words[1]), parse_path(words[2])
        except UsageError:
            return None
        mark, key = words[3], f"{words[4]} {words[5]}"
        limit = words[6] if len(words) > 6 else "0"
        if not (_MARK.fullmatch(mark) and is_host_key(key) and _LIMIT.fullmatch(limit)):
            return None
        return cls(name, user, host, port, path, identity, mark, key, int(limit))


class CopyRecord(NamedTuple):
    """What the cluster knows of a device's copies at a site.

    Attributes:
        device: the device's name.
        site: the site's name.
        uuid: the device's UUID.
        attempt: the token of the restore point that was made for a copy which has not been proven
            yet; empty: there is none.
        proven: the newest copy that was proven; None: none was yet.
    """

    device: str
    site: str
    uuid: str
    attempt: str
    proven: ProvenCopy | None

    @property
    def id(self) -> str:
        """The id and the name of its property."""
        return f"{COPY_PREFIX}{self.device}.{self.site}"

    @property
    def value(self) -> str:
        """The value of its property."""
        words = (self.uuid, self.attempt or _NOTHING)
        return " ".join((*words, *(self.proven.words if self.proven else ())))

    @property
    def read_id(self) -> str:
        """The id and the name of the property that says when the copy was read as a whole.

        One of its own: earlier releases take a record with a word more for none. They leave this
        one as it is, and it counts for the copy that it names alone.
        """
        return f"{self.id}.read"

    @property
    def read_value(self) -> str:
        """The value of that property; empty: the copy was read as a whole when it was proven."""
        copy = self.proven
        return f"{copy.token} {copy.read_s}" if copy and copy.read_s else ""

    def with_read(self, value: str) -> CopyRecord:
        """Return it with what that property says; empty: there is none."""
        token, _, read_s = value.partition(" ")
        if self.proven is None or self.proven.token != token or not read_s.isdecimal():
            return self
        return self._replace(proven=self.proven._replace(read_s=int(read_s)))

    @classmethod
    def parse(cls, identifier: str, value: str) -> CopyRecord | None:
        """Read a property; None for one that is none as this release writes them."""
        device, _, site = identifier.removeprefix(COPY_PREFIX).partition(".")
        words = value.split(" ")
        if (
            not identifier.startswith(COPY_PREFIX)
            or not device
            or not _NAME.fullmatch(site)
            or len(words) < 2
            or not _MARK.fullmatch(words[0])
            or not (words[1] == _NOTHING or _TOKEN.fullmatch(words[1]))
        ):
            return None
        proven = ProvenCopy.parse(words[2:])
        if proven is None and len(words) > 2:
            return None
        return cls(device, site, words[0], words[1].strip(_NOTHING), proven)


class CopySchedule(NamedTuple):
    """When a device is copied to a site by itself.

    Attributes:
        device: the device's name.
        site: the site's name.
        set_s: since when, in seconds since 1970.
        rule: how often, and how many copies the site keeps.
    """

    device: str
    site: str
    set_s: int
    rule: Rule

    @property
    def id(self) -> str:
        """The id and the name of its property."""
        return f"{COPY_SCHEDULE_PREFIX}{self.device}.{self.site}"

    @property
    def value(self) -> str:
        """The value of its property: as a schedule of restore points with one rule."""
        return PointSchedule(self.set_s, (self.rule,)).value

    @classmethod
    def parse(cls, identifier: str, value: str) -> CopySchedule | None:
        """Read a property; None for one that is none as this release writes them."""
        device, _, site = identifier.removeprefix(COPY_SCHEDULE_PREFIX).partition(".")
        found = PointSchedule.parse(value)
        if (
            not identifier.startswith(COPY_SCHEDULE_PREFIX)
            or not device
            or not _NAME.fullmatch(site)
            or found is None
            or len(found.rules) != 1
        ):
            return None
        return cls(device, site, found.set_s, found.rules[0])


class ProvenCopy(NamedTuple):
    """A copy of a restore point at a site that was found equal to it.

    Attributes:
        name: the name of the restore point.
        token: its token: it is the base of the next copy for as long as the cluster has it.
        made_s: when the restore point was made, in seconds since 1970.
        proven_s: when both digests had been compared.
        size_bytes: the size of the device then.
        changed_bytes: what differed from the copy before.
        sent_bytes: what went over the line for that, compressed.
        digest: the digest of the content (drivers/site_protocol.py), 64 hex digits.
        group: the folders at the site, DEVICE.UUID, of all devices whose restore points were made
            at that moment; empty: of this device alone. The site has it, the cluster does not.
        left: the folders of devices that had left the group by then.
        number: the later it was proven the higher, as the site counts; 0: an earlier release has
            proven it, alone.
        after: the highest number that the device's copies had there before the restore point was
            made, so it is newer than those; -1: not known, an earlier release has proven it.
        read_s: when the copy that it goes back to by what has changed alone was read as a whole, in
            seconds since 1970; 0: it was read as a whole itself, when it was proven.
    """

    name: str
    token: str
    made_s: int
    proven_s: int
    size_bytes: int
    changed_bytes: int
    sent_bytes: int
    digest: str
    group: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    number: int = 0
    after: int = -1
    read_s: int = 0

    @property
    def read_whole_s(self) -> int:
        """When it was read as a whole last, or the copy that it goes back to."""
        return self.read_s or self.proven_s

    @property
    def is_numbered(self) -> bool:
        """Whether the site's numbers say which of the device's copies are older."""
        return self.number > 0 and self.after >= 0

    @property
    def words(self) -> tuple[str, ...]:
        """Its part of a property's value."""
        return tuple(map(str, self[:_NOTED_FIELDS]))

    @classmethod
    def parse(cls, words: list[str]) -> ProvenCopy | None:
        """Read what `words` gave; None for anything else."""
        if (
            len(words) != _NOTED_FIELDS
            or not _POINT.fullmatch(words[0])
            or not _TOKEN.fullmatch(words[1])
            or not all(word.isdecimal() for word in words[2:7])
            or not _DIGEST.fullmatch(words[7])
        ):
            return None
        made_s, proven_s, size_bytes, changed_bytes, sent_bytes = map(int, words[2:7])
        return cls(
            words[0], words[1], made_s, proven_s, size_bytes, changed_bytes, sent_bytes, words[7]
        )


def parse_site_name(text: str) -> str:
    """Return the name of a site.

    Raises:
        UsageError: it is none.
    """
    if not _NAME.fullmatch(text):
        raise _wrong(
            f"site name {text!r} is not valid",
            "use 1 to 16 of a-z, 0-9 and '-', the first and last a letter or digit",
        )
    return text


def parse_address(text: str) -> tuple[str, str, int]:
    """Read `USER@HOST[:PORT]`, the host a name, an IPv4 address or an IPv6 address in brackets.

    Raises:
        UsageError: it is not that.
    """
    user, _, rest = text.partition("@")
    found = _HOST_AND_PORT.fullmatch(rest)
    port = int(found[2] or DEFAULT_PORT) if found else 0
    if found is None or not (
        _USER.fullmatch(user) and _HOST.fullmatch(found[1]) and 0 < port < 65536
    ):
        raise _wrong(
            f"{text!r} is no address of a site's server",
            "write USER@HOST or USER@HOST:PORT, an IPv6 address in brackets",
        )
    return user, found[1], port


def parse_path(text: str) -> str:
    """Return an absolute path of letters, digits and -_+=@. only, without '..'.

    Raises:
        UsageError: it is none.
    """
    if not _PATH.fullmatch(text) or ".." in text.split("/") or len(text) > 200:
        raise _wrong(
            f"{text!r} is no path that a site can have",
            "an absolute path, of letters, digits and '-_+=@.', without '..'",
        )
    return text


def parse_limit(text: str) -> int:
    """Read a limit of the rate to a site: `10M` is 10 MiB a second; `none` is 0.

    Raises:
        UsageError: it is none, or out of bounds.
    """
    if text == _NO_LIMIT:
        return 0
    hint = (
        f"write {format_bytes(LOWEST_LIMIT_BYTES_S)[:-4]}K to "
        f"{format_bytes(HIGHEST_LIMIT_BYTES_S)[:-4]}G, in bytes a second: 500K, 10M, 1G; or none"
    )
    try:
        limit = parse_bytes(text)
    except UsageError:
        limit = 0
    if not LOWEST_LIMIT_BYTES_S <= limit <= HIGHEST_LIMIT_BYTES_S:
        raise _wrong(f"{text[:40]!r} is no limit of a rate", hint)
    return limit


def is_host_key(text: str) -> bool:
    """Whether a text is a key as a known_hosts file has it: its type, and itself in base64."""
    if not _KEY.fullmatch(text):
        return False
    try:
        binascii.a2b_base64(text.split(" ")[1], strict_mode=True)
    except binascii.Error:
        return False
    return True


def fingerprint_of(host_key: str) -> str:
    """Return the fingerprint of a server's key, as `ssh-keygen -l` shows it."""
    import hashlib  # noqa: PLC0415 - loads OpenSSL, and agents read sites, too

    digest = hashlib.sha256(binascii.a2b_base64(host_key.split(" ")[1])).digest()
    return "SHA256:" + binascii.b2a_base64(digest, newline=False).decode().rstrip("=")


def _wrong(text: str, hint: str) -> UsageError:
    return UsageError(Problem("SAN-SITE-001", text, hint))
