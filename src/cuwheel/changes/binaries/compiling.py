"""Machine code from the PTX that a library holds: which PTX, for what, by which ptxas and with which options; compiled
on all cores, held against its PTX, and kept by its hash.

What is made is an entry as NVIDIA's fatbinary writes it, for the container that the PTX is in.
"""

from __future__ import annotations

import os
import re
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.changes.binaries.payloads import compressed
from cuwheel.changes.binaries.plan import registered_containers
from cuwheel.errors import ToolError, ToolTimeoutError, UnavailableError, UsageError
from cuwheel.facts.tables import tables
from cuwheel.machine import fleet, system
from cuwheel.support import codec, confined, files, log, process
from cuwheel.support.finding import finding
from cuwheel.toolchains import assembler
from cuwheel.toolchains.store import open_store
from cuwheel.verdicts.ahead_of_time import release_for
from cuwheel_core.device_code import cubin, fatbin
from cuwheel_core.device_code.libraries import Entry, Library
from cuwheel_core.errors import CuwheelError, MalformedError
from cuwheel_core.facts import gpus, toolkits, versions
from cuwheel_core.facts.arch import Arch, Capability, Suffix, looks_like_arch
from cuwheel_core.support import bounded
from cuwheel_core.support.wording import file_name
from cuwheel_core.verdicts import drivers
from cuwheel_core.verdicts.choice import Loader, capability_in_toolkit, choose, loadable_code
from cuwheel_core.verdicts.modules import device_linked
from cuwheel_core.verdicts.predict import reach_of

if TYPE_CHECKING:
    from cuwheel.machine.fleet import Machines
    from cuwheel.toolchains.assembler import Assembler
    from cuwheel_core.support.finding import Finding

_SECONDS = 3600.0  # for one piece of PTX: the largest seen take minutes
_PTX, _CUBIN = "code.ptx", "code.cubin"  # the same names wherever it is compiled: ptxas writes down how it was called
_FOLDER = "machine-code"
_COMPILE_ONLY = "--compile-only"
_SHOWN = 3  # lines of ptxas in a finding


class Aim(Struct, frozen=True, kw_only=True):
    """A GPU to make machine code for. `driver`: the CUDA that its driver came for, where that is known.

    `suffix`: asked for by name (`sm_90a`).
    """

    name: str
    capability: Capability
    suffix: Suffix = ""
    driver: str | None = None
    ptx_isa: str | None = None

    @property
    def device(self) -> Loader:
        return Loader(capability=self.capability, ptx_isa=self.ptx_isa)


def aims_of(words: Machines, env: Path | None = None) -> tuple[Aim, ...]:
    """What `--compile` names: what `--on` takes, and architectures. Raises UsageError for a machine without a GPU."""
    found = []
    for machine in fleet.machines_named(words, env=env):
        if machine.capability is None:
            raise UsageError(f"the GPU of {machine.name} is not known", hint="give the architecture: --compile sm_90")
        on = machine.os or "linux"
        found.append(
            Aim(
                name=machine.name,
                capability=gpus.current_capability(machine.capability),
                suffix=Arch.parse(machine.name).suffix if looks_like_arch(machine.name) else "",
                driver=drivers.cuda_of_driver(machine, on),
                ptx_isa=drivers.ptx_isa(machine, on),
            )
        )
    # What is made for a GPU must load on all of these machines that have it: the oldest driver decides.
    known = [(each.capability, each.driver) for each in found if each.driver]
    oldest = dict(sorted(known, key=lambda each: versions.key(each[1]), reverse=True))
    return tuple(replace(each, driver=oldest.get(each.capability)) for each in found)


class Object(Struct, frozen=True, kw_only=True):
    """A relocatable object of a device link: machine code, LTO-IR, or PTX with the options to compile it with."""

    entry: Entry
    options: tuple[str, ...] = ()


class Compilation(Struct, frozen=True, kw_only=True):
    """A piece of PTX, and what is to be made of it for which container. `cuda`: the release whose ptxas makes it.

    `objects`: what nvJitLink of that release links to one piece; `ptx` is then the first that is no machine code.
    """

    library: str
    container: int
    ptx: Entry
    arch: Arch
    cuda: str
    options: tuple[str, ...] = ()
    objects: tuple[Object, ...] = ()

    @property
    def like(self) -> Entry:
        """How it is stored, and what it is for: a link is of no single source file."""
        return replace(self.ptx, identifier="") if self.objects else self.ptx

    @property
    def bytes(self) -> int:
        """What there is to compile."""
        every = [each.entry for each in self.objects] or [self.ptx]
        return sum(each.real_bytes for each in every if each.kind != "cubin")


class Compiled(Struct, frozen=True, kw_only=True):
    """`place`: where the cubin is kept. `ptxas`: the version that made it. `kept`: it was made before."""

    what: Compilation
    place: str
    ptxas: str
    kept: bool

    def cubin(self) -> bytes:
        return _read_kept(Path(self.place))


# What is to be compiled: pure, from a survey with every entry.


class ToCompile(NamedTuple):
    """`wanted`: what is to be compiled. `untouched`: why some of what only the driver can compile stays as it is."""

    wanted: tuple[Compilation, ...]
    untouched: tuple[Finding, ...]


def what_to_compile(library: Library, aims: Sequence[Aim], cuda: str | None = None) -> ToCompile:
    """In each container for which the driver of a GPU would compile PTX: that PTX.

    `cuda`: by the ptxas of this release and no other.
    """
    members: dict[int, list[Entry]] = {}
    for entry in library.entries:
        if entry.container is not None or library.format == "ptx":  # text, which becomes a container
            members.setdefault(entry.container or 0, []).append(entry)
    bare = library.format in ("ptx", "fatbin")  # nothing refers to its containers from within
    named = frozenset(members) if bare else registered_containers(library)
    wanted: dict[tuple[int, Arch], Compilation] = {}
    untouched: dict[tuple[str, str], set[int]] = {}  # the same container for each GPU
    for aim in aims:
        device = Loader(capability=aim.capability)  # of any driver: one that is too old for the PTX takes it, and fails
        link = _link(library, members, named, aim, cuda)
        links = link is None and reach_of(library).by_code(device).basis == "relocatable"
        if link:
            wanted[link.container, link.arch] = link
        for number, entries in members.items():
            ptx = _compiled_by_driver(entries, device)
            if ptx is None or not (ptx.linked or links):  # objects that nobody links, or that were linked just now
                continue
            if number not in named:
                words = "nothing that the CUDA runtime registers refers to the container: the library finds it itself"
                untouched.setdefault(("compile-unregistered", words), set()).add(number)
                continue
            try:
                found = _compilation(library.path, ptx, aim, cuda)
            except UnavailableError as error:
                untouched.setdefault(("compile-no-ptxas", error.message), set()).add(number)
            except MalformedError as error:
                untouched.setdefault(("compile-options", error.problem), set()).add(number)
            else:
                wanted.setdefault((number, found.arch), found)
    return ToCompile(
        tuple(wanted.values()),
        tuple(
            finding(rule, f"{file_name(library.path)}: {_containers(numbers)} as before: {words}")
            for (rule, words), numbers in untouched.items()
        ),
    )


def _containers(numbers: Collection[int]) -> str:
    return f"container {min(numbers)} stays" if len(numbers) == 1 else f"{len(numbers)} containers stay"


def _compiled_by_driver(entries: Sequence[Entry], device: Loader) -> Entry | None:
    """The PTX that the driver would compile, however old the driver; None where there is machine code, or nothing."""
    codes = [(entry, found) for entry in entries if (found := loadable_code(entry))]
    taken = choose([found for _, found in codes], device)
    return codes[taken.entry][0] if taken.how == "jit" and taken.entry is not None else None


def _compilation(library: str, ptx: Entry, aim: Aim, cuda: str | None) -> Compilation:
    """Raises UnavailableError where no ptxas can, MalformedError for options that are none."""
    # PTX with `a` compiles for that alone; other PTX, a family's too, for the plain architecture.
    suffix: Suffix = "a" if ptx.arch.suffix == "a" else aim.suffix
    isa = ptx.ptx_isa or "1.0"
    row = release_for(isa, aim.capability, suffix, aim.driver, only=cuda, oldest=not ptx.linked)
    return Compilation(
        library=library,
        container=ptx.container or 0,
        ptx=ptx,
        arch=Arch(capability_in_toolkit(row, aim.capability), suffix),
        cuda=row.version,
        options=_options(library, ptx),
    )


# A device link: what its objects come to, in the container that it made for other architectures.


def _link(
    library: Library, members: Mapping[int, Sequence[Entry]], named: Collection[int], aim: Aim, cuda: str | None
) -> Compilation | None:
    """Plans a device link; None where the GPU has linked code already, or something is missing for it.

    Then the objects are compiled by themselves, if the driver would link them.
    """
    linked = device_linked(library) & frozenset(named)
    objects = [entries for entries in members.values() if not all(each.linked for each in entries)]
    if len(linked) != 1 or not objects:
        return None
    (container,) = linked
    device = Loader(capability=aim.capability)
    there = [code for entry in members.get(container, ()) if (code := loadable_code(entry))]
    if choose(there, device).how in ("native", "compatible"):
        return None
    try:
        found = [_object(library.path, entries, device) for entries in objects]
    except MalformedError:
        return None
    parts = [each for each in found if each]
    source = next((each.entry for each in parts if each.entry.kind != "cubin"), None)
    if source is None or len(parts) < len(found) or any(each.entry.arch.suffix for each in parts):
        return None
    optimising = {each.options for each in parts if each.entry.kind == "lto-ir"}
    if len(optimising) > 1:  # one link has one set of them
        return None
    isas = [each.entry.ptx_isa for each in parts if each.entry.ptx_isa]
    isas += [toolkits.find_release(each).ptx_isa for each in library.toolkits if source.kind == "lto-ir"]
    try:
        row = release_for(max(isas, key=versions.key, default="1.0"), aim.capability, "", aim.driver, cuda)
    except UnavailableError:
        return None
    if not assembler.has_linker(row):
        return None
    return Compilation(
        library=library.path,
        container=container,
        ptx=source,
        arch=Arch(capability_in_toolkit(row, aim.capability)),
        cuda=row.version,
        options=next(iter(optimising), ()),
        objects=tuple(parts),
    )


def _object(library: str, entries: Sequence[Entry], device: Loader) -> Object | None:
    """The code of one container to link: machine code for that GPU, else PTX that the driver takes, else LTO-IR."""
    for entry in entries:
        if entry.kind == "cubin" and entry.arch == Arch(device.capability):
            return Object(entry=entry)
    if ptx := _compiled_by_driver([each for each in entries if each.kind == "ptx"], device):
        return Object(entry=ptx, options=_options(library, ptx))
    fitting = [each for each in entries if each.kind == "lto-ir" and each.arch.capability <= device.capability]
    if not fitting:
        return None
    best = max(fitting, key=lambda each: each.arch.capability)
    words = best.options.split()
    if unknown := [each for each in words if not _LTO_OPTION.fullmatch(each)]:
        raise MalformedError(library, f"its LTO-IR carries the option {unknown[0]!r}, which is not known")
    return Object(entry=best, options=("-lto", *(each.replace("_", "-").replace("-fmad", "-fma") for each in words)))


# The options that an entry carries. They are a stranger's words for a program: none may name a file, or another target.

_OPTION = re.compile(r"--?([A-Za-z][A-Za-z-]*?)(?:=?(\d[\w,]*)|=([\w,]+))?", re.ASCII)
_VALUE = re.compile(r"[\w,]+", re.ASCII)
# As nvcc writes them; nvJitLink's are spelt otherwise.
_LTO_OPTION = re.compile(r"-(?:ftz|prec_div|prec_sqrt|fmad)=[01]")


def _options(library: str, ptx: Entry) -> tuple[str, ...]:
    """Raises MalformedError for anything but an option that says how to compile."""
    known = tables().toolchains.ptxas
    found: list[str] = []
    words = iter(ptx.options.split())
    for word in words:
        match = _OPTION.fullmatch(word)
        name, value = (match[1], match[2] or match[3]) if match else ("", None)
        if name in known.valued and value is None:
            value = next(words, "")
            if not _VALUE.fullmatch(value):
                name = ""
        if name not in (known.valued if value is not None else known.flags):
            problem = f"its PTX carries the options {ptx.options!r}, of which {word!r} is not known"
            raise MalformedError(library, problem)
        if name not in known.dropped:
            long = "--" if word.startswith("--") else "-"
            found.append(f"{long}{name}" if value is None else f"{long}{name}={value}")
    if not ptx.linked and not {_COMPILE_ONLY, "-c"}.intersection(found):
        found.insert(0, _COMPILE_ONLY)
    return tuple(found)


# Compiling.


def compile_all(
    wanted: Sequence[Compilation], read: Callable[[str, Entry], bytes], folder: Path
) -> dict[Compilation, Compiled | Finding]:
    """Whatever was made before is taken from the cache. `folder`: for scratch files.

    `read`: what an entry of a library holds; of LTO-IR, which only NVIDIA's tools unpack, a fat binary with that entry.

    What ptxas refuses, or takes too long for, is a finding, and the rest goes on. The cache stays as it is while the
    caller holds `cache_in_use`.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - 20 ms, where there is work to do

    tools = {cuda: assembler.assembler_of(cuda) for cuda in sorted({each.cuda for each in wanted})}
    linkers = {cuda: assembler.linker_of(cuda) for cuda in sorted({each.cuda for each in wanted if each.objects})}
    made: dict[Compilation, Compiled | Finding] = {}
    lock = threading.Lock()
    cores, memory = system.available_resources()
    bench = _Bench(folder, threading.Event(), _Room(memory))
    order = sorted(wanted, key=lambda each: -each.bytes)  # or one core would be left with the largest at the end
    with log.progress("compiling PTX", sum(each.bytes for each in wanted)) as progress:

        def work(what: Compilation, *, alone: bool = False) -> Compilation | None:
            """What ran out of memory beside others is tried once more: returned."""
            try:
                done: Compiled | Finding = _compile(what, read, tools[what.cuda], linkers.get(what.cuda), bench)
            except (ToolError, ToolTimeoutError, MalformedError) as error:
                if isinstance(error, _OutOfMemoryError) and not alone:
                    return what
                done = _refused(what, tools[what.cuda], error)
            with lock:
                made[what] = done
                progress.advance(what.bytes)
            return None

        with ThreadPoolExecutor(cores) as pool:
            futures = [pool.submit(work, each) for each in order]
            try:
                again = [each for future in futures if (each := future.result())]
            except BaseException:
                bench.stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        for each in again:
            work(each, alone=True)
    return {each: made[each] for each in wanted}


class _OutOfMemoryError(ToolError):
    """The system ended a program, as it does where memory ran out, or the program itself says that there is none."""


_KILLED = -9
_NO_MEMORY = re.compile(r"memory allocation failure|out of memory|bad_alloc", re.IGNORECASE)


class _Room:
    """The memory that compilers may take together: one that would take more waits, unless it is the only one."""

    def __init__(self, size: int | None) -> None:
        self._size, self._taken, self._changed = size, 0, threading.Condition()

    @contextmanager
    def taken(self, size: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._taken or self._size is None or self._taken + size <= self._size)
            self._taken += size
        try:
            yield
        finally:
            with self._changed:
                self._taken -= size
                self._changed.notify_all()


class _Bench(NamedTuple):
    """`folder`: for scratch files. `stop`: set once nobody waits for what is being made."""

    folder: Path
    stop: threading.Event
    room: _Room

    def run(self, words: Sequence[str], scratch: Path, memory: int) -> None:
        """`memory`: what it takes, at most."""
        with self.room.taken(memory):
            done = process.run(words, timeout=_SECONDS, cwd=scratch, stop=self.stop, check=False)
        if done.status:
            told = done.stdout + done.stderr
            kind = _OutOfMemoryError if done.status == _KILLED or _NO_MEMORY.search(told) else ToolError
            problem = "was ended by the system, as where memory runs out" if done.status == _KILLED else ""
            raise kind(words, problem or f"failed with status {done.status}", told)


def _refused(what: Compilation, tool: Assembler, error: CuwheelError) -> Finding:
    first, *rest = error.message.splitlines()
    lines = [line.strip(" |") for line in rest if line.strip(" |")] or [first]  # which names the program
    return finding(
        "compile-failed",
        f"{file_name(what.library)}: container {what.container} stays as before: ptxas {tool.version} does not make "
        f"{what.arch} of its {what.ptx.arch}",
        evidence=tuple(lines[:_SHOWN]),
    )


def cache_in_use() -> AbstractContextManager[None]:
    """While what is kept is needed nobody prunes it."""
    return open_store().locked(_FOLDER, shared=True)


def _compile(
    what: Compilation, read: Callable[[str, Entry], bytes], tool: Assembler, linker: Assembler | None, bench: _Bench
) -> Compiled:
    if linker is None or not what.objects:
        text = read(what.library, what.ptx).rstrip(b"\0")
        place, kept = _assembled(what.library, text, what.arch, what.options, tool, bench)
        return Compiled(what=what, place=str(place), ptxas=tool.version, kept=kept)
    parts: list[tuple[str, bytes]] = []
    for each in what.objects:
        data = read(what.library, each.entry)
        if each.entry.kind == "ptx":
            made, _ = _assembled(what.library, data.rstrip(b"\0"), what.arch, each.options, tool, bench)
            data = _read_kept(made)
        parts.append(("fatbin" if each.entry.kind == "lto-ir" else "cubin", data))
    parts = _without_runtime(what.library, parts)
    known = [str(what.arch), what.options, linker.version, *(files.sha256_of(data) for _, data in parts)]

    def make(scratch: Path) -> bytes:
        inputs = []
        for number, (kind, data) in enumerate(parts):
            (scratch / f"{number}.{kind}").write_bytes(data)
            inputs.append(f"{number}.{kind}")
        options = [f"-arch={what.arch}", *what.options]
        call = Path(__file__).with_name("device_link_call.py")
        words = [sys.executable, "-I", str(call), linker.program, _CUBIN, *options, *inputs]
        # LTO-IR is compiled from an earlier stage than PTX.
        least = system.MEMORY_A_COMPILER if any(kind == "fatbin" for kind, _ in parts) else 0
        bench.run(words, scratch, max(least, gpus.memory_to_compile(sum(len(data) for _, data in parts))))
        return (scratch / _CUBIN).read_bytes()

    def check(code: bytes) -> None:
        wanted = {each.name for kind, data in parts if kind == "cubin" for each in _kernels_of(what.library, data)}
        _must_be(what.library, code, what.arch, wanted, linked=True)

    place, kept = _from_cache(known, make, check, bench.folder)
    return Compiled(what=what, place=str(place), ptxas=tool.version, kept=kept)


def _assembled(
    library: str, text: bytes, arch: Arch, options: tuple[str, ...], tool: Assembler, bench: _Bench
) -> tuple[Path, bool]:
    """PTX compiled: where it is kept, and whether it was before."""

    def make(scratch: Path) -> bytes:
        (scratch / _PTX).write_bytes(text)
        memory = gpus.memory_to_compile(len(text))
        bench.run([tool.program, f"-arch={arch}", "-m64", *options, _PTX, "-o", _CUBIN], scratch, memory)
        return (scratch / _CUBIN).read_bytes()

    def check(code: bytes) -> None:
        kernels = {each.name for each in cubin.ptx_kernels(text)}
        _must_be(library, code, arch, kernels, linked=not {_COMPILE_ONLY, "-c"}.intersection(options))

    return _from_cache([files.sha256_of(text), str(arch), options, tool.version], make, check, bench.folder)


def _from_cache(
    known: Sequence[object], make: Callable[[Path], bytes], check: Callable[[bytes], None], folder: Path
) -> tuple[Path, bool]:
    """`known`: all that decides what is made. What is kept and does not pass the same check is made again."""
    key = files.sha256_of(codec.encode(known))
    place = files.cache_folder() / _FOLDER / key[:2] / f"{key}.zst"
    with suppress(OSError, MalformedError):
        check(_read_kept(place))
        os.utime(place)  # `cuwheel cache` removes what was not used for long
        return place, True
    with tempfile.TemporaryDirectory(prefix="ptx-", dir=folder) as name:
        code = make(Path(name))
    check(code)
    made = _with_checksum(code)
    try:
        confined.make_folders(files.cache_folder(), f"{_FOLDER}/{key[:2]}")
        files.write(place, made)
    except (OSError, CuwheelError) as error:  # a cache that is full, or others'
        log.debug("%s", error)
        place = folder / place.name
        files.write(place, made)
    return place, False


def _without_runtime(library: str, parts: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Without objects of libcudadevrt that no other needs: nvlink takes those of an archive only where they are."""
    if any(kind != "cubin" for kind, _ in parts):  # what LTO-IR needs only NVIDIA's tools know
        return parts
    symbols = [cubin.read_cubin(library, data).symbols() for _, data in parts]
    needed = {name for each in symbols if not each.of_runtime for name in each.wanted}
    return [
        part
        for part, each in zip(parts, symbols, strict=True)
        if not each.of_runtime or needed.intersection(each.functions)
    ]


def _kernels_of(library: str, code: bytes) -> Iterable[cubin.Kernel]:
    """But for those of the device runtime, which nobody launches."""
    found = cubin.read_cubin(library, code)
    return () if found.symbols().of_runtime else found.kernels()


def _must_be(library: str, code: bytes, arch: Arch, kernels: set[str], *, linked: bool) -> None:
    """Machine code for that architecture with these kernels, relocatable where that was asked for."""
    found = cubin.read_cubin(library, code)
    lost = kernels - {each.name for each in found.kernels()}
    if found.arch.capability != arch.capability or lost or found.linked != linked:
        raise MalformedError(library, f"what was made of its PTX is not {arch} with the same kernels")


def _with_checksum(code: bytes) -> bytes:
    import zstandard  # noqa: PLC0415 - only here

    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(code)


def _read_kept(place: Path) -> bytes:
    import zstandard  # noqa: PLC0415 - only here

    try:
        return zstandard.ZstdDecompressor().decompress(place.read_bytes(), max_output_size=fatbin.PAYLOAD_LIMIT)
    except zstandard.ZstdError as error:
        raise MalformedError(place, f"it is damaged: {error}") from error


# An entry of machine code, as NVIDIA's fatbinary writes it.

_ENTRY_VERSION = 0x0101
_CUBIN_MAJOR = 1
_COMPAT, _CAPSULES = ".nv.compat", ".nv.merc."
_ALIGNMENT = 8
PLAIN_FLAGS = 0x1 | 0x10  # 64-bit, Linux
_KEPT_FLAGS = 0x1 | fatbin.FLAG_DEBUG | 0x10 | 0x40  # 64-bit, debug; Linux, Windows
_SUFFIXES: Mapping[str, int] = {"": 0, "a": fatbin.FLAG_SPECIFIC, "f": fatbin.FLAG_FAMILY}
_COMPRESSIONS = {"none": 0, "lz4": fatbin.FLAG_LZ4, "zstd": fatbin.FLAG_ZSTD}


def entry_of(code: bytes, arch: Arch, like: Entry) -> bytes:
    """Header and payload. Compressed as `like` is, which it was made of: whoever loads that one can read it."""
    found = cubin.read_cubin("", code)
    flags = like.flags & _KEPT_FLAGS | _SUFFIXES[arch.suffix]
    payload, wanted = code, like.compression
    if wanted != "none":
        packed = compressed(code, wanted)
        payload, wanted = (packed, wanted) if len(packed) < len(code) else (code, "none")
    flags |= _COMPRESSIONS[wanted]
    identifier = like.identifier.encode("utf-8", "surrogateescape")
    extra = _padded(identifier + b"\0") if identifier else b""
    options_at = 0
    if attributes := _attributes(found):
        flags |= fatbin.FLAG_ATTRIBUTES
        options_at = fatbin.ENTRY.size + len(extra)
        extra += _padded(struct.pack("<II", options_at + 8, len(attributes)) + b"\0" + attributes)
    stored = _padded(payload)
    header = fatbin.ENTRY.pack(
        fatbin.KIND_CUBIN,
        _ENTRY_VERSION,
        fatbin.ENTRY.size + len(extra),
        len(stored),
        len(payload) if wanted != "none" else 0,
        options_at,
        found.abi,
        _CUBIN_MAJOR,
        arch.capability.number,
        fatbin.ENTRY.size if identifier else 0,
        len(identifier),
        flags,
        0,
        len(code) if wanted != "none" else 0,
    )
    return header + extra + stored


def text_entry(text: bytes, ptx: Entry) -> bytes:
    """PTX as an entry, stored raw. The block of options must be there, and may be empty."""
    stored = _padded(text.rstrip(b"\0") + b"\0")
    major, minor = map(bounded.digits, (ptx.ptx_isa or "1.0").split("."))
    at = fatbin.ENTRY.size
    options = struct.pack("<II", at + 8, 0) + bytes(8)
    number, flags = ptx.arch.capability.number, PLAIN_FLAGS | _SUFFIXES[ptx.arch.suffix]
    fields = (fatbin.KIND_PTX, _ENTRY_VERSION, at + len(options), len(stored), 0, at, minor, major, number)
    return fatbin.ENTRY.pack(*fields, 0, 0, flags, 0, 0) + options + stored


def _attributes(found: cubin.Cubin) -> bytes:
    """What the header repeats of the cubin, where that has a second form of its code, as those since Blackwell do."""
    section = found.elf.named(_COMPAT)
    if section is None or not any(each.name.startswith(_CAPSULES) for each in found.elf.headers):
        return b""
    return found.elf.data(section, 1 << 16)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)
