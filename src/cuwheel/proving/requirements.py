"""What a wheel requires, as wheels in a folder: resolved and downloaded for the machine that the kit goes to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from packaging.tags import sys_tags

from cuwheel.errors import MissingExtraError, ToolError
from cuwheel.network import addresses, venvs
from cuwheel.support import files, log
from cuwheel.wheel import requirements
from cuwheel.wheel.file import WheelFile, unlabelled
from cuwheel.wheel.metadata import WheelName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_DOWNLOAD_S = 3600.0
_NEWEST_GLIBC, _OLDEST_GLIBC = 39, 4  # minors of glibc 2 that manylinux tags name
_PACE = "--disable-pip-version-check", "--no-input", "--progress-bar", "off"


def download(
    wheel: Path,
    folder: Path,
    *,
    extra: Sequence[str] = (),
    python: str | None = None,
    find_links: Sequence[Path] = (),
    offline: bool = False,
) -> tuple[Path, ...]:
    """Without the wheel itself. Only wheels: on the machine nothing can be built."""
    place = folder / files.sha256_of(str(wheel).encode())[:12]
    place.mkdir()
    wheel = unlabelled(wheel, place / "plain")
    _refuse_addresses(wheel)
    options = ["--only-binary", ":all:", "--dest", str(place), *_target(wheel, python)]
    options += [word for each in find_links for word in ("--find-links", str(each))]
    options += ["--no-index"] if offline else []
    with log.progress(f"downloading what {wheel.name} requires"):
        try:
            asked = [*_pip(offline=offline), "download", *_PACE, *options, str(wheel), *extra]
            venvs.ask_installer(asked, timeout=_DOWNLOAD_S)
        except ToolError as error:
            hint = "leave out --pack-requirements and use the packages of that machine: --system-site-packages"
            raise ToolError(error.command, "could not get the requirements as wheels", error.output, hint) from error
    found = sorted(each for each in place.iterdir() if each.suffix == ".whl" and each.name != wheel.name)
    for each in found:
        _refuse_addresses(each)
    return tuple(found)


def _refuse_addresses(wheel: Path) -> None:
    """What a wheel requires by an address comes from no index of the user's, and may be a source."""
    with WheelFile(wheel) as opened:
        requires = opened.distribution.requires
    for each in filter(None, map(requirements.parse, requires)):
        if each.url and requirements.holds(each):
            raise venvs.SourceRefusedError(f"{wheel.name} requires {each.name} @ {addresses.plain(each.url)}")


def _pip(*, offline: bool) -> list[str]:
    """Any pip that is here, else the one that uv brings."""
    if found := venvs.pip():
        return found
    tool = venvs.uv()
    if tool is None:
        raise MissingExtraError(["uv"], "packing requirements", "build")
    words = ["--offline"] if offline else []
    return [tool, *words, "tool", "run", "--from", "pip", "python", *venvs.PIP_WITHOUT_PROGRAMS]


def _target(wheel: Path, python: str | None) -> Iterator[str]:
    """For the wheel's own Python and platform, where they are not those of this machine."""
    here = "{}.{}".format(*sys.version_info)
    named = WheelName.parse(wheel.name)
    tags = named.tags if named else ()
    wanted = python or _python_of(tags) or here
    platforms = {tag.rpartition("-")[2] for tag in tags if not tag.endswith("-any")}
    if wanted == here and (not platforms or platforms & {tag.platform for tag in sys_tags()}):
        return
    yield from ("--python-version", wanted, "--implementation", "cp")
    for abi in (f"cp{wanted.replace('.', '')}", "abi3", "none"):
        yield from ("--abi", abi)
    windows = sorted(each for each in platforms if each.startswith("win"))
    for platform in windows or _platforms("aarch64" if any("aarch64" in each for each in platforms) else "x86_64"):
        yield from ("--platform", platform)


def _python_of(tags: Sequence[str]) -> str | None:
    """The only Python that the wheel is for, if there is one."""
    found = {tag.split("-")[0] for tag in tags if tag.split("-")[1].startswith("cp")}
    name = found.pop() if len(found) == 1 else ""
    return f"{name[2]}.{name[3:]}" if name.startswith("cp") and name[3:].isdigit() else None


def _platforms(cpu: str) -> Iterator[str]:
    """pip takes a platform as it is spelt, older ones not included."""
    yield from (f"manylinux_2_{minor}_{cpu}" for minor in range(_NEWEST_GLIBC, _OLDEST_GLIBC, -1))
    yield from (f"{legacy}_{cpu}" for legacy in ("manylinux2014", "manylinux2010", "manylinux1", "linux"))
