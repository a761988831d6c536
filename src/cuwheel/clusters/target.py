"""Which cluster: one that runs at an address, this machine, or one that Slurm starts.

Who reaches a cluster can run programs as the one who started it, and every user of a machine reaches its loopback: so
all addresses need TLS, unless somebody says `insecure+tcp` of one on this machine.
"""

from __future__ import annotations

import ipaddress
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from cuwheel.errors import UsageError

Kind: TypeAlias = Literal["address", "local", "slurm"]
_HINT = "tls://HOST:8786, local, local:4, slurm or slurm:20"
_INSECURE = "insecure+tcp"
_MOST = 10_000
_SHOWN = 60
_NAMES = ("localhost",)


class Target(Struct, frozen=True, kw_only=True):
    """`workers`: how many to start, where that is ours to do; 0: as many as there are cores for."""

    kind: Kind
    address: str = ""
    workers: int = 0

    @property
    def secured(self) -> bool:
        return not self.address.startswith("tcp://")


def parse(text: str) -> Target:
    """Raises UsageError where it is none of these, or would let others in."""
    name, _, count = text.partition(":")
    if name in ("local", "slurm") and (text == name or (count.isdecimal() and 0 < int(count) <= _MOST)):
        return Target(kind="local" if name == "local" else "slurm", workers=int(count or 0))
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts_wrong(text) or not host or not port:
        raise UsageError(f"{text[:_SHOWN]!r} is not the address of a cluster", hint=_HINT)
    if parts.scheme == "tls":
        return Target(kind="address", address=f"tls://{parts.netloc}")
    hint = f"tls://{parts.netloc}, with certificates made by: cuwheel cluster init"
    if not is_loopback(host):
        raise UsageError(
            f"{text}: off this machine a cluster needs TLS, since who reaches it can run programs there", hint=hint
        )
    if parts.scheme == "tcp":
        raise UsageError(
            f"{text}: without TLS every user of this machine can run programs there as the one who started it",
            hint=f"{hint}; where nobody else is on this machine: {_INSECURE}://{parts.netloc}",
        )
    return Target(kind="address", address=f"tcp://{parts.netloc}")


def parts_wrong(text: str) -> bool:
    """Anything but a scheme, a host and a port."""
    scheme, _, rest = text.partition("://")
    return (
        scheme not in ("tcp", "tls", _INSECURE) or not text.isprintable() or any(letter in rest for letter in "/@?# ")
    )


def is_loopback(host: str) -> bool:
    if host in _NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
