"""NVIDIA's label channels through micromamba, mamba or conda, with a host compiler of conda's own."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from cuwheel.errors import UnavailableError
from cuwheel.facts import toolchain_parts
from cuwheel.facts.tables import tables
from cuwheel.support import codec, process
from cuwheel.toolchains.store import size_of
from cuwheel.toolchains.toolchain import Archive, HostCompiler, Recipe, processors_of
from cuwheel.toolchains.workplace import nvcc_version, write_stub
from cuwheel_core.errors import MalformedError

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.facts.rows.toolchains import Component
    from cuwheel.toolchains.toolchain import Installed, Wanted
    from cuwheel.toolchains.workplace import Surroundings, Workplace

_TOOLS = ("micromamba", "mamba", "conda")
_CREATE_S = 3600.0
_ASK_S = 60.0


def decide(wanted: Wanted, around: Surroundings) -> Recipe:
    tool = next((path for name in _TOOLS for path in around.machine.which_all(name)), None)
    if tool is None:
        raise _no_tool()
    release = wanted.exact or toolchain_parts.release_of(wanted.cuda, "conda")
    if release is None:
        raise UnavailableError(f"no patch release of {wanted.cuda} is known: give one in full")
    facts = tables().toolchains.conda
    gcc = wanted.toolkit.host_compilers.gcc_max
    packages = [name for row in wanted.components for name in _packages(row)]
    compiler = f"{facts.compiler[wanted.cpu]}{f'={gcc}' if gcc else ''}"
    channels = ["--override-channels", "-c", facts.channel.format(release=release), "-c", facts.also]
    offline = ["--offline"] if wanted.offline else []
    return Recipe(
        provider="conda",
        cuda=wanted.cuda,
        release=release,
        platform=f"linux-{wanted.cpu}",
        components=tuple(row.name for row in wanted.components),
        commands=((tool.name, "create", "--yes", *offline, "--prefix", "{root}", *channels, *packages, compiler),),
        found_via=f"{tool}, channel {facts.channel.format(release=release)}",
    )


def _packages(row: Component) -> tuple[str, ...]:
    if not row.conda and not row.base:
        raise UnavailableError(f"conda has no {row.name}")
    return row.conda


def make(recipe: Recipe, workplace: Workplace) -> Installed:
    """At its last place from the start, which conda writes into files: the store's folder only holds the note of it."""
    root = workplace.supply.store.folder / "conda" / workplace.final.name
    shutil.rmtree(root, ignore_errors=True)  # without a note: of an attempt that was interrupted
    root.parent.mkdir(parents=True, exist_ok=True)
    # The list of a locked environment: the very files, by address.
    explicit = workplace.scratch / "explicit.txt"
    explicit.write_text("@EXPLICIT\n" + "".join(f"{each.url}\n" for each in recipe.archives), encoding="utf-8")
    for command in recipe.commands or _locked_commands():
        words = [word.format(root=root, explicit=explicit) for word in command]
        process.run(words, timeout=_CREATE_S)
    archives = _archives(root)
    # conda checks less than a lock promises.
    listed = {each.file: each.sha256 for each in archives}
    wrong = [each.file for each in recipe.archives if listed.get(each.file) != each.sha256]
    if wrong:
        raise MalformedError(", ".join(wrong), "does not match the lock: another file has this name")
    if not (root / "lib64").exists():
        (root / "lib64").symlink_to("lib")
    headers = next((path.parent.parent for path in root.glob("targets/*/include/cuda.h")), root)
    if not any(root.glob("**/stubs/libcuda.so")):
        write_stub(headers, workplace.scratch / "stubs", processors_of(recipe.platform)[0])
    path = next((root / "bin").glob("*-conda-linux-gnu-g++"), None)
    if path is None:
        raise UnavailableError(f"conda brought no host compiler into {root / 'bin'}")
    version = process.run([path, "-dumpfullversion", "-dumpversion"], timeout=_ASK_S).stdout.strip()
    noted = workplace.note(
        recipe,
        root=root,
        version=nvcc_version(root / "bin" / "nvcc"),
        host_compiler=HostCompiler(kind="gcc", version=version, path=str(path), found_via="conda's own"),
    )
    return replace(noted, archives=archives, size=size_of(root))


def _locked_commands() -> tuple[tuple[str, ...], ...]:
    tool = next((name for name in _TOOLS if shutil.which(name)), None)
    if tool is None:
        raise _no_tool()
    return ((tool, "create", "--yes", "--prefix", "{root}", "--file", "{explicit}"),)


def _no_tool() -> UnavailableError:
    return UnavailableError(f"no {', '.join(_TOOLS[:-1])} or {_TOOLS[-1]} was found on PATH")


def _archives(root: Path) -> tuple[Archive, ...]:
    """What conda notes of each package that it installed."""
    found = []
    for path in sorted((root / "conda-meta").glob("*.json")):
        try:
            record = codec.decode(path.read_bytes())
            found.append(
                Archive(
                    kind="conda",
                    name=record["name"],
                    version=record["version"],
                    file=record["fn"],
                    url=record["url"],
                    sha256=record.get("sha256", ""),
                    size=record.get("size"),
                )
            )
        except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
            raise MalformedError(path, f"is not a package record: {error!r}") from error
    return tuple(found)
