"""Requirements into the wheels that the user's own pip or uv would install, with their hashes."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from cuwheel import process
from cuwheel.errors import CuwheelError, UnavailableError
from cuwheel.toolchain.values import Archive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_RESOLVE_S = 300.0


def resolve(requirements: Sequence[str], *, dependencies: bool = True, offline: bool = False) -> tuple[Archive, ...]:
    """By the first tool that answers. pip first, as everywhere in cuwheel: its configuration is the older custom."""
    tried = []
    for tool in _TOOLS:
        try:
            if found := tool(requirements, dependencies=dependencies, offline=offline):
                return found
        except (CuwheelError, msgspec.DecodeError, KeyError, IndexError, TypeError) as error:
            tried.append(_first_words(error))
    raise UnavailableError("; ".join(tried) or "neither pip nor uv was found")


def _first_words(error: Exception) -> str:
    """The line of a tool's output that says most: pip and uv begin it with ERROR or a cross."""
    lines = [line.strip(" |") for line in str(error).splitlines()]
    telling = [line for line in lines[1:] if "ERROR" in line or line.startswith(("×", "error"))]
    return " ".join([lines[0], *telling[-1:]]) if lines else repr(error)


def _by_pip(requirements: Sequence[str], *, dependencies: bool, offline: bool) -> tuple[Archive, ...]:
    pip = _pip()
    if pip is None:
        return ()
    options = ["--dry-run", "--quiet", "--ignore-installed", "--only-binary=:all:"]
    options += [] if dependencies else ["--no-deps"]
    options += ["--no-index"] if offline else []
    done = process.run([*pip, "install", *options, "--report", "-", *requirements], timeout=_RESOLVE_S)
    told = msgspec.json.decode(done.stdout)["install"]
    return tuple(
        _archive(each["metadata"]["name"], each["metadata"]["version"], each["download_info"]["url"],
                 each["download_info"]["archive_info"]["hashes"]["sha256"])
        for each in told
    )  # fmt: skip


def _pip() -> list[str] | None:
    """cuwheel's own interpreter may have none: any will do for wheels that hold no Python."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip") or shutil.which("pip3")
    return [found] if found else None


def pip() -> list[str] | None:
    """The command of the pip that toolkits come through, for others who need one."""
    return _pip()


def _by_uv(requirements: Sequence[str], *, dependencies: bool, offline: bool) -> tuple[Archive, ...]:
    uv = shutil.which("uv")
    if uv is None:
        return ()
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder, "requirements.in")
        wanted.write_text("".join(f"{each}\n" for each in requirements))
        options = ["--only-binary=:all:", "--format", "pylock.toml"]
        options += [] if dependencies else ["--no-deps"]
        options += ["--offline"] if offline else []
        done = process.run([uv, "--quiet", "pip", "compile", wanted, *options], timeout=_RESOLVE_S)
    told = msgspec.toml.decode(done.stdout)["packages"]
    return tuple(_from_lock(each) for each in told)


def _from_lock(package: dict[str, Any]) -> Archive:
    """uv lists every wheel that fits; the one that an installer would take comes first."""
    wheel = min(package["wheels"], key=lambda each: _rank(each["url"]))
    return _archive(package["name"], package["version"], wheel["url"], wheel["hashes"]["sha256"], wheel.get("size"))


def _rank(url: str) -> int:
    from packaging.tags import sys_tags  # noqa: PLC0415 - uv alone needs it
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # noqa: PLC0415

    try:
        tags = parse_wheel_filename(_file_name(url))[3]
    except InvalidWheelFilename:
        return sys.maxsize
    return next((rank for rank, tag in enumerate(sys_tags()) if tag in tags), sys.maxsize)


def _file_name(url: str) -> str:
    return unquote(urlsplit(url).path).rsplit("/", maxsplit=1)[-1]


def _archive(name: str, version: str, url: str, sha256: str, size: int | None = None) -> Archive:
    parts = urlsplit(url)
    plain = urlunsplit((parts.scheme, parts.netloc, parts.path, parts.query, ""))
    return Archive(
        kind="wheel", name=name, version=version, file=_file_name(url), url=plain, sha256=sha256.lower(), size=size
    )


def with_addresses(archives: Sequence[Archive], *, offline: bool = False) -> tuple[Archive, ...]:
    """Where the index has the wheels that a lock only names. The hash decides whether it is the same file."""
    lacking = [each for each in archives if each.kind == "wheel" and not each.url]
    if not lacking or offline:
        return tuple(archives)
    found = {
        each.sha256: each.url
        for each in resolve([f"{each.name}=={each.version}" for each in lacking], dependencies=False)
    }
    return tuple(replace(each, url=each.url or found.get(each.sha256, "")) for each in archives)


def sorted_archives(archives: Iterable[Archive]) -> tuple[Archive, ...]:
    return tuple(sorted(archives, key=lambda each: (each.kind, each.name)))


_TOOLS: tuple[Callable[..., tuple[Archive, ...]], ...] = (_by_pip, _by_uv)
