# SPDX-License-Identifier: GPL-2.0-or-later
"""What a device gets that is to hold a copy at a second site, and the proof that it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sanctl.drivers import site_delta, site_source
from sanctl.drivers.site_delta import SiteDelta
from sanctl.drivers.site_link import SiteLink
from sanctl.drivers.site_source import SiteSource
from sanctl.errors import CommandError, Problem
from sanctl.model.site import ProvenCopy, Site
from sanctl.model.site_copy import SiteCopy


class SiteCopySource:
    """A copy at a site."""

    def __init__(self, site: Site, copy: SiteCopy) -> None:
        self._site, self._copy = site, copy
        self._size_bytes = 0
        #: What came over the line.
        self.received_bytes = 0

    @contextmanager
    def image(self, device: str) -> Iterator[SiteSource]:
        """Give the copy's content, once the site has read all of it and it is what was proven.

        Args:
            device: the path of the device that is to hold it; what it holds already is not sent.

        Raises:
            Refused: this node does not have the site's key.
            CommandError: the site cannot be reached, has no such copy, or it is damaged.
        """
        with SiteLink.by_ssh(self._site) as link:
            copies = link.open(self._site.path, self._site.mark, self._copy.folder)
            self._size_bytes = self._found(copies).size_bytes
            chunks = link.read(self._copy.token, self._size_bytes)
            yield SiteSource(link, self._copy, device, self._size_bytes, chunks)
            self.received_bytes = link.received_bytes

    @contextmanager
    def changes(self, device: str, base: SiteCopy) -> Iterator[SiteDelta | None]:
        """Give what has changed since an earlier copy, for a device that is that one.

        The site reads what has changed before. None: it does not have both copies in one folder and
        of one size, with right lists of their chunks, or what it reads is not as its list says.

        Args:
            device: the path of the device.
            base: the copy that the device is.

        Raises:
            Refused: this node does not have the site's key.
            CommandError: the site cannot be reached, or does not have the later copy.
        """
        if (base.site, base.folder) != (self._copy.site, self._copy.folder):
            yield None
            return
        with SiteLink.by_ssh(self._site) as link:
            copies = link.open(self._site.path, self._site.mark, self._copy.folder)
            size_bytes = self._found(copies).size_bytes
            lists = link.changes(base.token, self._copy.token, size_bytes)
            if lists is None or not site_delta.are_of((base, self._copy), lists, size_bytes):
                yield None
                return
            with SiteDelta(link, self._copy, device, size_bytes, lists) as delta:
                yield delta
            self.received_bytes = link.received_bytes

    def _found(self, copies: tuple[ProvenCopy, ...]) -> ProvenCopy:
        for each in copies:
            if each.token == self._copy.token:
                return each
        raise CommandError(
            Problem(
                "SAN-SITE-018",
                f"there is no copy {self._copy.name} any more",
                "use another one: 'sanctl site copies' lists them",
            )
        )

    def check(self, device: str) -> str:
        """Read a device that was filled, and compare its digest with the copy's; return it.

        Raises:
            CommandError: it is another one.
            OSError: the device cannot be read.
        """
        found = site_source.digest_of_device(device, self._size_bytes)
        if found != self._copy.digest:
            raise CommandError(
                Problem(
                    "SAN-SITE-017",
                    f"the device was filled from copy {self._copy.name}, and has another digest",
                    "it is tried again; if it stays so, a disk or its memory does not keep what "
                    "was written",
                )
            )
        return found
