"""Two hosts on one machine: network namespaces with a cable between them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Hosts:
    """Two namespaces of the network; each sees its own loopback, and the other at one address.

    Attributes:
      names: of the namespaces.
      addresses: of each, on the cable.
      cables: names of its ends.
    """

    names: tuple[str, str]
    addresses: tuple[str, str]
    cables: tuple[str, str]

    def on(self, host: int) -> list[str]:
        """A command before another one, which then runs on a host."""
        return ["ip", "netns", "exec", self.names[host]]

    def cut(self) -> None:
        """Lets nothing through any more, and tells nobody: what is sent is for a strange card."""
        self._neighbour("replace", "lladdr", "02:00:00:00:00:99", "nud", "permanent")

    def mend(self) -> None:
        """Lets everything through again."""
        self._neighbour("del")

    def _neighbour(self, what: str, *more: str) -> None:
        for host in (0, 1):
            cable = ["dev", self.cables[host]]
            _ip("-n", self.names[host], "neighbour", what, self.addresses[1 - host], *more, *cable)


@contextmanager
def two_hosts() -> Iterator[Hosts]:
    """Two hosts for the length of a block; skips the test where that is not allowed."""
    if shutil.which("ip") is None:
        pytest.skip("no network namespaces: ip(8) is missing")
    number = os.getpid()
    hosts = Hosts(
        names=(f"dpal-{number}-a", f"dpal-{number}-b"),
        addresses=("10.213.7.1", "10.213.7.2"),
        cables=(f"dp{number}a", f"dp{number}b"),
    )
    try:
        try:
            for name in hosts.names:
                _ip("netns", "add", name)
            first, second = hosts.cables
            _ip("link", "add", first, "type", "veth", "peer", "name", second)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces are allowed here: {error.stderr.decode().strip()}")
        for name, cable, address in zip(hosts.names, hosts.cables, hosts.addresses, strict=True):
            _ip("link", "set", cable, "netns", name)
            _ip("-n", name, "address", "add", f"{address}/24", "dev", cable)
            for device in (cable, "lo"):
                _ip("-n", name, "link", "set", device, "up")
        yield hosts
    finally:
        for name in hosts.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
