"""Machine code from the PTX that a library holds: which PTX, for what, by which ptxas and with which options; compiled
on all cores, held against its PTX, and kept by its hash.

What is made is an entry as NVIDIA's fatbinary writes it, for the container that the PTX is in.
"""

from __future__ import annotations

import os
import re
import struct
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.changes.binaries.changeable import registered_containers
from cuwheel.changes.binaries.payloads import compressed
from cuwheel.device_code import cubin, fatbin
from cuwheel.device_code.libraries import Entry
from cuwheel.errors import MalformedError, ToolError, UnavailableError, UsageError
from cuwheel.facts import gpus
from cuwheel.facts.arch import Arch, Capability, Suffix, looks_like_arch
from cuwheel.facts.tables import tables
from cuwheel.machine import fleet
from cuwheel.support import codec, files, log, process
from cuwheel.support.finding import Finding, finding
from cuwheel.support.wording import file_name
from cuwheel.toolchains import assembler
from cuwheel.toolchains.store import open_store
from cuwheel.verdicts import drivers
from cuwheel.verdicts.choice import Device, capability_in_toolkit, choose, loadable_code
from cuwheel.verdicts.predict import reach_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from cuwheel.device_code.libraries import Library
    from cuwheel.machine.fleet import Machine
    from cuwheel.toolchains.assembler import Assembler

_SECONDS = 3600.0  # for one piece of PTX: the largest seen take minutes
_PTX, _CUBIN = "code.ptx", "code.cubin"  # the same names wherever it is compiled: ptxas writes down how it was called
_FOLDER = "machine-code"
_COMPILE_ONLY = "--compile-only"
_DEBUG_LIMIT = 3  # lines of ptxas that a finding shows


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
    def device(self) -> Device:
        return Device(capability=self.capability, ptx_isa=self.ptx_isa)


def aims_of(words: Sequence[str | Path | Machine], env: Path | None = None) -> tuple[Aim, ...]:
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
    return tuple(found)


class Compilation(Struct, frozen=True, kw_only=True):
    """A piece of PTX, and what is to be made of it. `cuda`: the release whose ptxas makes it."""

    library: str
    ptx: Entry
    arch: Arch
    cuda: str
    options: tuple[str, ...]

    @property
    def container(self) -> int:
        return self.ptx.container or 0


class Compiled(Struct, frozen=True, kw_only=True):
    """`place`: where the cubin is kept. `ptxas`: the version that made it. `kept`: it was made before."""

    what: Compilation
    place: str
    ptxas: str
    kept: bool

    def cubin(self) -> bytes:
        return _read_kept(Path(self.place))


# What is to be compiled: pure, from a survey with every entry.


class Wishes(NamedTuple):
    """`wanted`: what is to be compiled. `left`: why some of what only the driver can compile stays as it is."""

    wanted: tuple[Compilation, ...]
    left: tuple[Finding, ...]


def wishes(library: Library, aims: Sequence[Aim], cuda: str | None = None) -> Wishes:
    """In each container for which the driver of a GPU would compile PTX: that PTX.

    `cuda`: by the ptxas of this release and no other.
    """
    members: dict[int, list[Entry]] = {}
    for entry in library.entries:
        if entry.container is not None:
            members.setdefault(entry.container, []).append(entry)
    named = registered_containers(library)
    wanted: dict[tuple[int, Arch], Compilation] = {}
    left: dict[tuple[str, str], list[int]] = {}
    for aim in aims:
        device = Device(capability=aim.capability)  # of any driver: one that is too old for the PTX takes it, and fails
        links = reach_of(library).by_code(device).basis == "relocatable"
        for number, entries in members.items():
            ptx = _compiled_by_driver(entries, device)
            if ptx is None or not (ptx.linked or links):  # objects that nobody links
                continue
            if number not in named:
                words = "nothing that the CUDA runtime registers refers to the container: the library finds it itself"
                left.setdefault(("compile-unregistered", words), []).append(number)
                continue
            try:
                found = _compilation(library.path, ptx, aim, cuda)
            except UnavailableError as error:
                left.setdefault(("compile-no-ptxas", error.message), []).append(number)
            except MalformedError as error:
                left.setdefault(("compile-options", error.problem), []).append(number)
            else:
                wanted.setdefault((number, found.arch), found)
    return Wishes(
        tuple(wanted.values()),
        tuple(
            finding(rule, f"{file_name(library.path)}: {_containers(numbers)} as before: {words}")
            for (rule, words), numbers in left.items()
        ),
    )


def _containers(numbers: Sequence[int]) -> str:
    return f"container {numbers[0]} stays" if len(numbers) == 1 else f"{len(numbers)} containers stay"


def _compiled_by_driver(entries: Sequence[Entry], device: Device) -> Entry | None:
    """The PTX that the driver would compile, however old the driver; None where there is machine code, or nothing."""
    codes = [(entry, found) for entry in entries if (found := loadable_code(entry))]
    taken = choose([found for _, found in codes], device)
    return codes[taken.entry][0] if taken.how == "jit" and taken.entry is not None else None


def _compilation(library: str, ptx: Entry, aim: Aim, cuda: str | None) -> Compilation:
    """Raises UnavailableError where no ptxas can, MalformedError for options that are none."""
    # PTX with `a` compiles for that alone; other PTX, a family's too, for the plain architecture.
    suffix: Suffix = "a" if ptx.arch.suffix == "a" else aim.suffix
    isa = ptx.ptx_isa or "1.0"
    row = assembler.release_for(isa, aim.capability, suffix, aim.driver, only=cuda)
    options = _options(library, ptx)
    if not ptx.linked and not {_COMPILE_ONLY, "-c"}.intersection(options):
        options = (_COMPILE_ONLY, *options)
    return Compilation(
        library=library,
        ptx=ptx,
        arch=Arch(capability_in_toolkit(row, aim.capability), suffix),
        cuda=row.version,
        options=options,
    )


# The options that an entry carries. They are a stranger's words for a program: none may name a file, or another target.

_OPTION = re.compile(r"--?([A-Za-z][A-Za-z-]*?)(?:=?(\d[\w,]*)|=([\w,]+))?", re.ASCII)
_VALUE = re.compile(r"[\w,]+", re.ASCII)


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
    return tuple(found)


# Compiling.


def compile_all(
    wanted: Sequence[Compilation], read: Callable[[Compilation], bytes], folder: Path
) -> tuple[list[Compiled], list[Finding]]:
    """Whatever was made before is taken from the cache. `read`: the PTX of each. `folder`: for scratch files.

    What ptxas refuses is a finding, and the rest goes on. The cache stays as it is while the caller holds
    `cache_in_use`.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - 20 ms, where there is work to do

    tools = {cuda: assembler.assembler_of(cuda) for cuda in sorted({each.cuda for each in wanted})}
    made: dict[Compilation, Compiled] = {}
    failed: list[Finding] = []
    lock = threading.Lock()
    order = sorted(
        wanted, key=lambda each: -each.ptx.real_bytes
    )  # or one core would be left with the largest at the end
    with log.progress("compiling PTX", sum(each.ptx.real_bytes for each in wanted)) as progress:

        def work(what: Compilation) -> None:
            try:
                done: Compiled | Finding = _compile(what, read(what), tools[what.cuda], folder)
            except ToolError as error:
                done = _refused(what, tools[what.cuda], error)
            with lock:
                if isinstance(done, Compiled):
                    made[what] = done
                else:
                    failed.append(done)
                progress.advance(what.ptx.real_bytes)

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            futures = [pool.submit(work, each) for each in order]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    return [made[each] for each in wanted if each in made], failed


def _refused(what: Compilation, tool: Assembler, error: ToolError) -> Finding:
    lines = [line.strip(" |") for line in error.message.splitlines()[1:] if line.strip(" |")]
    return finding(
        "compile-failed",
        f"{file_name(what.library)}: container {what.container} stays as before: ptxas {tool.version} does not make "
        f"{what.arch} of its {what.ptx.arch}",
        evidence=tuple(lines[:_DEBUG_LIMIT]),
    )


def cache_in_use() -> AbstractContextManager[None]:
    """While what is kept is needed nobody prunes it."""
    return open_store().locked(_FOLDER, shared=True)


def _compile(what: Compilation, data: bytes, tool: Assembler, folder: Path) -> Compiled:
    text = data.rstrip(b"\0")
    key = files.sha256_of(codec.encode([files.sha256_of(text), str(what.arch), what.options, tool.version]))
    place = files.cache_folder() / _FOLDER / key[:2] / f"{key}.zst"
    done = Compiled(what=what, place=str(place), ptxas=tool.version, kept=True)
    with suppress(OSError, MalformedError):
        _read_kept(place)
        os.utime(place)  # `cuwheel cache` removes what was not used for long
        return done
    with tempfile.TemporaryDirectory(prefix="ptx-", dir=folder) as name:
        scratch = Path(name)
        (scratch / _PTX).write_bytes(text)
        words = [tool.program, f"-arch={what.arch}", "-m64", *what.options, _PTX, "-o", _CUBIN]
        process.run(words, timeout=_SECONDS, cwd=scratch)
        code = (scratch / _CUBIN).read_bytes()
    _must_be_of(code, text, what)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        files.write(place, _with_checksum(code))
    except OSError as error:  # a cache that is full, or others'
        log.debug("%s", error)
        place = folder / place.name
        files.write(place, _with_checksum(code))
    return replace(done, place=str(place), kept=False)


def _must_be_of(code: bytes, text: bytes, what: Compilation) -> None:
    """Machine code for that architecture with the kernels of the PTX, relocatable where that was asked for."""
    found = cubin.read_cubin(what.library, code)
    kernels = {each.name for each in found.kernels()}
    expected = {each.name for each in cubin.ptx_kernels(text)}
    relocatable = not what.ptx.linked
    if found.arch.capability != what.arch.capability or kernels != expected or found.linked == relocatable:
        raise MalformedError(
            what.library,
            f"what ptxas made of the {what.ptx.arch} of container {what.container} is not what was asked for",
        )


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
_KEPT_FLAGS = 0x1 | fatbin.FLAG_DEBUG | 0x10 | 0x40  # 64-bit, debug; Linux, Windows
_SUFFIXES: Mapping[str, int] = {"": 0, "a": fatbin.FLAG_SPECIFIC, "f": fatbin.FLAG_FAMILY}
_COMPRESSIONS = {"none": 0, "lz4": fatbin.FLAG_LZ4, "zstd": fatbin.FLAG_ZSTD}


def entry_of(code: bytes, arch: Arch, like: Entry) -> bytes:
    """Header and payload. Compressed as the PTX is that it was made of: whoever loads that one can read it."""
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


def _attributes(found: cubin.Cubin) -> bytes:
    """What the header repeats of the cubin, where that has a second form of its code, as those since Blackwell do."""
    section = found.elf.named(_COMPAT)
    if section is None or not any(each.name.startswith(_CAPSULES) for each in found.elf.headers):
        return b""
    return found.elf.data(section, 1 << 16)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)
