"""A target into its `Survey`: every library in it, a broken one being a finding and not the end."""

from __future__ import annotations

import posixpath
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from cuwheel.device_code import source, torch_symbols
from cuwheel.device_code.bitcode import bitcode_for_one_architecture
from cuwheel.device_code.contents import PythonLoad, Survey
from cuwheel.device_code.description import NAME, Description
from cuwheel.errors import NetworkError
from cuwheel.facts import packages
from cuwheel.support import log
from cuwheel_core.device_code import elf, library
from cuwheel_core.device_code.items import ZipItem, foreign, unread
from cuwheel_core.device_code.libraries import Detail, Library, Platform, Search
from cuwheel_core.errors import CuwheelError, UnreadableError
from cuwheel_core.support.buffer import MemoryBuffer
from cuwheel_core.support.patterns import matches_any

if TYPE_CHECKING:
    from cuwheel.device_code.source import Source
    from cuwheel.device_code.starts import Start
    from cuwheel.wheel.file import WheelFile
    from cuwheel_core.device_code.items import Item
    from cuwheel_core.support.finding import Finding
    from cuwheel_core.wheel.metadata import Distribution


class Sparing(NamedTuple):
    """What need not be read of a wheel on a server, as whoever judges it says.

    `decides`: whether nothing else of a distribution matters, with this library as it is. `is_elsewhere`: whether a
    library, of which only the first bytes are known, is for another kind of machine than those that are judged.
    `begins`: hears what is going to be read; it may refuse.
    """

    decides: Callable[[Library, Distribution], bool]
    is_elsewhere: Callable[[Library, Distribution], bool]
    begins: Callable[[Sequence[Item]], None]


_ARCHIVES = (".a", ".lib")  # which are linked from, and never loaded
_WORKERS = 2
_AT_ONCE = 8  # requests to a server, each of which takes a while to be answered


def survey(
    target: str | Path,
    *,
    env: Path | None = None,
    detail: Detail = "rows",
    search: Search = "data",
    python: bool = True,
) -> Survey:
    """What is in `target`. `env`: the environment where a distribution is installed.

    `detail` lists containers and entries too. `search`: where device code outside its own sections is looked
    for; "nowhere" shows all the same whether all is well. `python`: whether the package's Python is read for what it
    loads, which only a verdict or a facts file asks for, and only with containers.
    """
    with closing(source.find_source(target, env=env)) as found:
        return _survey(found, detail, search=search, python=python)


def survey_wheel(wheel: WheelFile, *, detail: Detail = "rows", sparing: Sparing | None = None) -> Survey:
    """Surveys a wheel that is open already, and leaves it open.

    With `sparing` no more is read than a verdict needs: of large libraries the start, and none without device code.
    """
    return _survey(source.source_of_wheel(wheel), detail, search="data", python=True, sparing=sparing)


def _survey(found: Source, detail: Detail, *, search: Search, python: bool, sparing: Sparing | None = None) -> Survey:
    if found.kind == "file":
        libraries = [_read_library(found.items[0], detail, lambda _: None, search=search).library]
        findings: list[Finding] = []
    else:
        libraries, findings = _read_all(found, detail, search=search, sparing=sparing)
    imported, loads = _loaded_by_python(found, libraries) if python and detail != "rows" else ((), ())
    return Survey(
        target=found.target,
        kind=found.kind,
        size=found.size,
        distribution=found.distribution,
        libraries=tuple(_of_distribution(libraries, found.description)),
        findings=(*found.findings, *findings),
        imported=imported,
        python_loads=loads,
        loads_as=_release_by_files(found, libraries),
        variant=found.variant,
        description=found.description,
        bitcode=() if sparing else tuple(bitcode_for_one_architecture(found.items)),  # no verdict goes by it
    )


def _of_distribution(libraries: Iterable[Library], described: Description | None) -> Iterator[Library]:
    """Adds the distribution of CUDA for arm64 that the build wrote down, where a library does not show it itself."""
    tools = (described.toolchain, *(each.toolchain for each in described.merged)) if described else ()
    names = {each.arm64 for each in tools if each}
    name = names.pop() if len(names) == 1 else None
    for each in libraries:
        if name and each.device_code and each.machine == "aarch64" and each.platform is None:
            yield replace(each, platform=Platform(name=name, evidence=f"{NAME} says so"))
        else:
            yield each


def _loaded_by_python(found: Source, libraries: Sequence[Library]) -> tuple[tuple[str, ...], tuple[PythonLoad, ...]]:
    """What the package's Python loads: at import, and otherwise.

    Asked only where it can change an answer: one library with device code is judged by itself.
    """
    if sum(bool(each.device_code) for each in libraries) <= 1:
        return (), ()
    from cuwheel.device_code import python_loads  # noqa: PLC0415 - ast costs some milliseconds

    name = found.distribution.name if found.distribution else None
    certain = python_loads.libraries_that_import_loads(found.texts, name, [each.path for each in libraries])
    others = [each.path for each in libraries if each.path not in certain.loaded and each.format in ("elf", "pe")]
    return certain.loaded, python_loads.places_that_load(found.texts, others, certain.files)


def _release_by_files(found: Source, libraries: list[Library]) -> str | None:
    """The release by whose rules it chooses among its libraries, by the files beside those; None: nothing shows it."""
    if found.distribution is None:  # and the table of packages need not be read
        return None
    name = found.distribution.name
    profile = packages.find_profile(name)
    if profile is None or profile.recognised_by is None:
        return None
    paths = [each.path.replace("\\", "/") for each in libraries]
    for folder in sorted({posixpath.dirname(each) for each in paths if packages.made_for(profile, each)}):
        if release := packages.shown_release(name, _texts_in(found, folder)):
            return release
    return None


def _texts_in(found: Source, folder: str) -> Callable[[str], str]:
    def read(file: str) -> str:
        name = posixpath.join(folder, file)
        return (found.texts.read(name) or "") if name in found.texts.names else ""

    return read


def _start(item: Item) -> Start | None:
    """Reads the start of a large library, where that suffices: any part of what is not deflated can be read."""
    from zipfile import ZIP_DEFLATED  # noqa: PLC0415 - costs 15 ms

    from cuwheel.device_code import starts  # noqa: PLC0415 - most wheels are on this machine

    if not isinstance(item, ZipItem) or item.member.stored <= starts.LARGE:
        return None
    if item.member.method != ZIP_DEFLATED:
        return None
    return starts.read_start(item.path, item.size, item.reader.pieces(item.member))


def items_that_decide(found: Source) -> tuple[list[Item], list[Item]]:
    """Those that may have device code and be loaded; and libraries that never have any, by the table of packages."""
    about = found.distribution
    profile = packages.find_profile(about.name, about.version) if about else None
    items = [each for each in found.items if not each.path.endswith(_ARCHIVES)]
    host = [each for each in items if profile and matches_any(each.path, profile.host)]
    return [each for each in items if each not in host], host


def _read_all(
    found: Source, detail: Detail, *, search: Search, sparing: Sparing | None = None
) -> tuple[list[Library], list[Finding]]:
    """The libraries of a target in order of their paths, several at a time: zlib works beside Python."""
    findings: list[Finding] = []
    read: dict[str, _ReadLibrary] = {}
    known: Start | None = None  # of the largest, which is read before the others: it may decide by itself
    if sparing:
        items, by_head = _worth_reading(found, findings, sparing)
        read |= {each.path: _ReadLibrary(each) for each in by_head}
        sparing.begins(items)
        known = _start(max(items, key=lambda each: each.size)) if items else None
        if known and found.distribution and sparing.decides(known.library, found.distribution):
            return [known.library], [known.how_far]
    else:
        items = [item for item in found.items if is_library(item, findings)]
    broken: list[CuwheelError] = []
    lock, stop = threading.Lock(), threading.Event()
    with log.progress("reading", sum(item.size for item in items)) as progress:

        def advance(count: int) -> None:
            if stop.is_set():
                raise _StoppedError
            with lock:
                progress.advance(count)

        def work(item: Item) -> None:
            try:
                started = known if known and known.library.path == item.path else _start(item) if sparing else None
                if started:
                    read[item.path] = _ReadLibrary(started.library)
                    findings.append(started.how_far)
                    advance(item.size)
                    return
                read[item.path] = _read_library(item, detail, advance, search=search)
            except _StoppedError:
                return
            except CuwheelError as error:
                if _is_transfer_failure(item, error):
                    broken.append(error)
                    stop.set()
                else:
                    findings.append(unread(item.path, error))

        # The largest first, or one worker would be left with it at the end.
        _in_parallel(work, sorted(items, key=lambda item: -item.size), stop, _AT_ONCE // 2 if sparing else _WORKERS)
    if broken:
        raise broken[0]
    inside = {name for each in read.values() for name in each.torch_defined}
    libraries = torch_symbols.from_outside([read[path].library for path in sorted(read)], inside)
    return libraries, sorted(findings, key=lambda each: each.message)


def _worth_reading(found: Source, findings: list[Finding], sparing: Sparing) -> tuple[list[Item], list[Library]]:
    """Libraries that are to be read, and the others by their first bytes, which come several at a time."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - most wheels are on this machine

    from cuwheel.device_code import starts  # noqa: PLC0415

    def by_head(item: Item) -> Library:
        return starts.by_head(item.path, item.size, item.head())

    def look(item: Item) -> tuple[Item, Library | None] | None:
        """With the library where it is none for these machines."""
        if not is_library(item, findings):
            return None
        if found.distribution and library.recognise(MemoryBuffer(item.path, item.head())) in ("elf", "pe"):
            start = by_head(item)
            return item, start if sparing.is_elsewhere(start, found.distribution) else None
        return item, None

    deciding, host = items_that_decide(found)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        hosts = list(pool.map(by_head, host))
        seen = [each for each in pool.map(look, deciding) if each]
    findings += [starts.not_read(host)] if host else []
    return [item for item, start in seen if start is None], [*hosts, *(start for _, start in seen if start)]


class _ReadLibrary(NamedTuple):
    """`torch_defined`: symbols in torch's namespaces that the others may take from this one."""

    library: Library
    torch_defined: frozenset[str] = frozenset()


def _read_library(item: Item, detail: Detail, advance: Callable[[int], None], *, search: Search) -> _ReadLibrary:
    with closing(item.open(advance)) as buffer:
        found = library.read_library(buffer, detail=detail, search=search, wanted=torch_symbols.imported)
        gives = bool(found.torch_symbols) and not torch_symbols.is_torch(found)
        return _ReadLibrary(found, torch_symbols.defined(elf.read_elf(buffer)) if gives else frozenset())


def is_library(item: Item, findings: list[Finding]) -> bool:
    """Whether a file is to be read, by its first bytes. What cannot be told of one is added to `findings`."""
    try:
        head = item.head()
    except CuwheelError as error:
        if _is_transfer_failure(item, error):
            raise
        findings.append(unread(item.path, error))
        return False
    if library.is_foreign(head):
        findings.append(foreign(item.path))
        return False
    return library.recognise(MemoryBuffer(item.path, head)) is not None


def _is_transfer_failure(item: Item, error: CuwheelError) -> bool:
    """Whether the way to the bytes failed, and not the file: the next attempt may read it."""
    return isinstance(error, NetworkError) or (isinstance(item, ZipItem) and isinstance(error, UnreadableError))


class _StoppedError(Exception):
    """Somebody pressed Ctrl-C, or another library cannot be read: whoever waits for the rest waits in vain."""


def _in_parallel(work: Callable[[Item], None], items: list[Item], stop: threading.Event, workers: int) -> None:
    if len(items) <= 1 or sys.platform == "emscripten":  # a browser has no threads
        for item in items:
            work(item)
        return
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - a single library is read without it

    with ThreadPoolExecutor(workers) as pool:
        try:
            for _ in pool.map(work, items):
                pass
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
