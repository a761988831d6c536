"""What pip or uv is configured with, as far as it says where packages are and how to get at them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.network.addresses import Login, parted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """`url` has no login in it."""

    url: str
    login: Login | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """`indexes` are those that somebody named, in order; `public`: the tool's own default is asked beside them."""

    indexes: tuple[Index, ...] = ()
    public: bool = True
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    certificates: tuple[str, ...] = ()  # files and folders, in place of the usual authorities
    client_certificate: str = ""
    trusted_hosts: tuple[str, ...] = ()  # `host` or `host:port`, whose certificates are not checked
    proxies: tuple[tuple[str, str], ...] = ()  # scheme and address, which may hold a login
    keyring: bool = False
    timeout: float | None = None  # seconds without a single byte

    @property
    def chooses(self) -> bool:
        """Whether it says where packages come from."""
        return bool(self.indexes or self.find_links or self.no_index)


def index(url: str) -> Index:
    address, login = parted(url)
    return Index(url=address, login=login)


def unique(indexes: Iterable[Index]) -> tuple[Index, ...]:
    return tuple({each.url.rstrip("/"): each for each in reversed(tuple(indexes))}.values())[::-1]


def home(environ: Mapping[str, str]) -> Path:
    names = ("USERPROFILE", "HOME") if os.name == "nt" else ("HOME", "USERPROFILE")
    return Path(environ.get(names[0]) or environ.get(names[1]) or "/nonexistent")


def user_folder(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("APPDATA") or environ.get("XDG_CONFIG_HOME") or home(environ) / ".config")


def system_folders(environ: Mapping[str, str]) -> list[Path]:
    """Most important last."""
    if os.name == "nt":
        return [Path(environ.get("PROGRAMDATA") or "C:\\ProgramData")]
    folders = environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    return [Path(each) for each in reversed(folders.split(":")) if each]


def seconds(text: str | None) -> float | None:
    """A time limit that somebody set; None where it is none."""
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if 0 < found < float("inf") else None


def is_true(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes", "on", "y", "t")
