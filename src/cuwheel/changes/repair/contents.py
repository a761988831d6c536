"""What a wheel holds that its repair goes by, and what this machine has of the libraries that it needs."""

from __future__ import annotations

import glob
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from cuwheel.changes.repair.answer import Looked
from cuwheel.device_code import source
from cuwheel.device_code.survey import is_library
from cuwheel.errors import UsageError
from cuwheel.machine import python_environment
from cuwheel.machine.world import World
from cuwheel.toolchains import store
from cuwheel.wheel.file import WheelFile
from cuwheel_core.device_code import dynamic, elf, items, library, limits, pe
from cuwheel_core.device_code.libraries import DeviceCode
from cuwheel_core.errors import CuwheelError, MalformedError
from cuwheel_core.facts import cuda_libraries, versions
from cuwheel_core.support import opening
from cuwheel_core.support.buffer import Buffer, FileBuffer
from cuwheel_core.support.finding import Finding
from cuwheel_core.support.wording import a_few, file_name
from cuwheel_core.verdicts import drivers
from cuwheel_core.wheel.metadata import Distribution, distributions
from cuwheel_core.wheel.tags import WheelName

_LOADED = ("shared", "executable")
CALL_MODULE = "_cuwheel_dlls.py"


class Binary(Struct, frozen=True, kw_only=True):
    """A library: in the wheel, or one that was found for it. `undefined` is read where it is asked for alone.

    A Windows library is known by its file name, in small letters, as are those that it needs.
    """

    path: str
    machine: str
    size: int
    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    versions: tuple[str, ...]
    glibc: str | None
    undefined: frozenset[str] = frozenset()
    cuda: int | None = None
    toolkits: tuple[str, ...] = ()
    device_code: tuple[DeviceCode, ...] = ()
    windows: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What others may ask for it by."""
        file = file_name(self.path)
        return tuple(dict.fromkeys(filter(None, (file.lower() if self.windows else file, self.soname))))

    @property
    def search_path(self) -> tuple[str, ...]:
        """What counts for the loader: RUNPATH hides RPATH."""
        return self.runpath or self.rpath


class Contents(Struct, frozen=True, kw_only=True):
    """`wrong`: files that are not what RECORD says of them, where that was asked for.

    `call_modules`: folder → what an earlier repair for Windows put there to add folders for DLLs.
    """

    wheel: Path
    name: WheelName
    size: int
    unpacked: int
    distribution: Distribution
    binaries: tuple[Binary, ...]
    members: frozenset[str]
    findings: tuple[Finding, ...]
    wrong: tuple[str, ...] = ()
    call_modules: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def platforms(self) -> tuple[str, ...]:
        return self.name.platforms

    @property
    def windows(self) -> bool:
        return is_windows(self.name)


def is_windows(name: WheelName) -> bool:
    return all(each.startswith("win") for each in name.platforms)


def read_contents(path: Path, *, hashes: bool = False) -> Contents:
    """Raises MalformedError if the wheel is not sound; a library that cannot be read is a finding."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint=f"give the wheels in it: {path}/*.whl")
    if WheelName.parse(path.name) is None:
        raise MalformedError(path, "its file name is not that of a wheel", hint="name-version-python-abi-platform.whl")
    with WheelFile(path) as wheel:
        return contents_of(wheel, hashes=hashes)


def contents_of(wheel: WheelFile, *, hashes: bool = False) -> Contents:
    wheel.must_be_sound("repaired")
    # auditwheel goes by RECORD alone: what that does not list it does not see, what is not there it falls over.
    if wheel.unlisted:
        raise MalformedError(
            wheel.path,
            f"RECORD and the files do not match: {a_few(sorted(wheel.unlisted))}",
            hint="build the wheel again with a standard build backend",
        )
    assert wheel.name is not None  # noqa: S101 - it is sound
    findings: list[Finding] = []
    binaries = _binaries(source.source_of_wheel(wheel), findings, _pe if is_windows(wheel.name) else _elf)
    return Contents(
        wheel=wheel.path,
        name=wheel.name,
        size=wheel.size,
        unpacked=sum(wheel.sizes.values()),
        distribution=wheel.distribution,
        binaries=binaries,
        members=frozenset(wheel.members),
        findings=tuple(findings),
        wrong=tuple(wheel.wrong_hashes()) if hashes else (),
        call_modules={
            posixpath.dirname(each): wheel.read(each) for each in wheel.members if each.endswith(f"/{CALL_MODULE}")
        },
    )


def _binaries(
    found: source.Source, findings: list[Finding], read_one: Callable[[Buffer], Binary | None]
) -> tuple[Binary, ...]:
    """Binaries of the wheel's own system: those for another (launchers, templates) are data."""
    binaries = []
    for item in found.items:
        if not is_library(item, findings):
            continue
        try:
            with closing(item.open(lambda _: None)) as buffer:
                binary = read_one(buffer)
        except CuwheelError as error:
            findings.append(items.unread(item.path, error))
            continue
        if binary:
            binaries.append(binary)
    return tuple(sorted(binaries, key=lambda each: each.path))


def _elf(buffer: Buffer) -> Binary | None:
    if library.recognise(buffer) != "elf":
        return None
    file = elf.read_elf(buffer)
    if file.file_type not in _LOADED:
        return None
    facts = library.read_library(buffer)
    undefined = frozenset(each.name for each in dynamic.symbols(file) if not each.defined and each.bind != _WEAK)
    return replace(
        _of_elf(buffer.name, file),
        undefined=undefined,
        cuda=drivers.cuda_major(facts),
        toolkits=facts.toolkits,
        device_code=facts.device_code,
    )


def _pe(buffer: Buffer, *, code: bool = True) -> Binary | None:
    """`code`: look into its device code. Programs are not repaired: nothing adds folders for them."""
    if library.recognise(buffer) != "pe":
        return None
    file = pe.read_pe(buffer)
    if file.file_type != "shared":
        return None
    facts = library.read_library(buffer) if code else None
    return Binary(
        path=buffer.name.replace("\\", "/"),
        machine=file.machine,
        size=buffer.size,
        soname=None,
        needed=tuple(dict.fromkeys(each.lower() for each in file.needed)),
        rpath=(),
        runpath=(),
        versions=(),
        glibc=None,
        cuda=drivers.cuda_major(facts) if facts else None,
        toolkits=facts.toolkits if facts else (),
        device_code=facts.device_code if facts else (),
        windows=True,
    )


def read_outside(path: Path) -> Binary | None:
    """A library of this machine, without looking into its device code; None for what is none."""
    try:
        with closing(FileBuffer(path)) as buffer:
            if library.recognise(buffer) == "pe":
                return _pe(buffer, code=False)
            file = elf.read_elf(buffer)
            return _of_elf(str(path), file) if file.file_type in _LOADED else None
    except CuwheelError:
        return None


_WEAK = 2


def _of_elf(path: str, file: elf.Elf) -> Binary:
    facts = dynamic.read_dynamic(file)
    return Binary(
        path=path.replace("\\", "/"),
        machine=file.machine_name,
        size=file.buffer.size,
        soname=facts.soname,
        needed=tuple(dict.fromkeys(facts.needed)),
        rpath=facts.rpath,
        runpath=facts.runpath,
        versions=tuple(
            sorted({each for owner, wanted in facts.versions for each in wanted if not owner.startswith("ld-")})
        ),
        glibc=facts.ceiling("GLIBC"),
    )


# Where libraries are looked for, in order, each folder with the reason why it is looked at.


_LIBRARY_FOLDERS = ("lib64", "lib")
_ROOTS = ("CUDA_HOME", "CUDA_PATH", "CUDNN_ROOT")
_SYSTEM = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")
_LD_CONF = "/etc/ld.so.conf"
_RUNTIME_PACKAGE = "nvidia-cuda-runtime"
_NUMBER = re.compile(r"\d{1,3}(\.\d{1,9})*", re.ASCII)
_MOST_FOLDERS = 500  # of ld.so.conf, which may include itself


class Folder(Struct, frozen=True, kw_only=True):
    """`versions`: of the packages whose files are there, where that is known. `toolkit`: the release of a toolkit's."""

    path: Path
    via: str
    toolkit: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


class Found(Struct, frozen=True, kw_only=True):
    """`toolkit`: the release of CUDA that it lies with, such as 12.4; a major alone where no more shows."""

    binary: Binary
    folder: Folder
    toolkit: str | None = None


class Searcher:
    """Looks into the same folders for every library, and reads a file once."""

    def __init__(self, folders: Sequence[Folder], machine: str) -> None:
        self.folders, self._machine = tuple(folders), machine
        self._versions = {each.path: each.versions for each in self.folders}
        self._read: dict[Path, Binary | None] = {}
        self._listed: dict[Path, dict[str, Path]] = {}

    def find(
        self, soname: str, first: Sequence[Folder] = (), cuda: int | None = None
    ) -> tuple[Found | None, tuple[Looked, ...]]:
        """`first`: where the library that needs it says to look. `cuda`: the major that it must be of.

        The name does not tell: libcusparse.so.12 is that of CUDA 12 and of CUDA 13.
        """
        trail = []
        if "/" in soname or not soname:
            return None, ()
        once: dict[Path, Folder] = {}
        for folder in (*first, *self.folders):
            once.setdefault(folder.path, folder)
        for folder in once.values():
            binary, outcome = self._look(self._spelt(folder.path, soname))
            toolkit = None
            if binary:
                known = self._versions.get(folder.path) or _beside(folder.path)
                folder = replace(folder, versions=known)  # noqa: PLW2901
                toolkit = _toolkit_of(folder, soname, cuda)
                if cuda and toolkit and versions.major(toolkit) != cuda:
                    binary, outcome = None, f"is of CUDA {toolkit}"
            trail.append(Looked(folder=str(folder.path), via=folder.via, found=outcome))
            if binary:
                return Found(binary=binary, folder=folder, toolkit=toolkit), tuple(trail)
        return None, tuple(trail)

    def _spelt(self, folder: Path, name: str) -> Path:
        """Windows does not tell case apart; other systems do, where a wheel for it may be repaired."""
        if not name.lower().endswith(".dll"):
            return folder / name
        if folder not in self._listed:
            self._listed[folder] = {each.name.lower(): each for each in _entries(folder)}
        return self._listed[folder].get(name.lower(), folder / name)

    def _look(self, path: Path) -> tuple[Binary | None, str]:
        try:
            if not path.is_file():
                return None, "not there"
        except (OSError, ValueError):
            return None, "cannot be read"
        if path not in self._read:
            self._read[path] = read_outside(path)
        binary = self._read[path]
        if binary is None:
            return None, "not a library"
        if binary.machine != self._machine:
            return None, f"is for {binary.machine}"
        return binary, "found"


def _toolkit_of(folder: Folder, soname: str, cuda: int | None) -> str | None:
    """The CUDA that a library in a folder belongs to: by the toolkit, by the packages, by the runtime beside it.

    None where it does not show, and where several are there and none of them is `cuda`.
    """
    if folder.toolkit:
        return folder.toolkit
    row = cuda_libraries.known_library(soname)
    found: set[str] = set()
    if majors := {each.cuda for each in row.packages if each.cuda and each.name in folder.versions} if row else set():
        runtimes = [version for name, version in folder.versions.items() if name.startswith(_RUNTIME_PACKAGE)]
        by_major = {versions.major(each): versions.minor(each) for each in runtimes}
        found = {by_major.get(each, str(each)) for each in majors}
    else:
        # A toolkit's runtime lies beside its libraries: libcudart.so.12 is a link to libcudart.so.12.4.127.
        for path in folder.path.glob("libcudart.so.*"):
            number = path.resolve().name.removeprefix("libcudart.so.")
            if _NUMBER.fullmatch(number):
                found.add(versions.minor(number) if "." in number else number)
    fitting = [each for each in found if versions.major(each) == cuda]
    return max(fitting, key=versions.key, default=found.pop() if len(found) == 1 else None)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir(), reverse=True)
    except OSError:
        return []


def windows_folders(asked_for: Sequence[Path], environ: Mapping[str, str]) -> tuple[Folder, ...]:
    """For DLLs: those asked for, toolkits, the environment's packages; on Windows what PATH names."""
    found = [Folder(path=path.absolute(), via="asked for") for root in asked_for for path in _with_bin(root)]
    for name in _ROOTS:
        if value := environ.get(name):
            found += [Folder(path=path.absolute(), via=name) for path in _with_bin(Path(value))]
    found += _packages(
        environ, dict.fromkeys(row.dll_folder for row in cuda_libraries.library_rows() if row.dll_folder)
    )
    if os.name == "nt":
        paths = (Path(value) for value in environ.get("PATH", "").split(os.pathsep) if value)
        found += [Folder(path=path.absolute(), via="PATH") for path in paths]
    once: dict[Path, Folder] = {}
    for each in found:
        if opening.is_folder(each.path):
            once.setdefault(each.path, each)
    return tuple(once.values())


def _with_bin(root: Path) -> tuple[Path, ...]:
    """The folder itself, or that of a toolkit: from CUDA 13 on its DLLs are one folder deeper."""
    return root, root / "bin", root / "bin" / "x64"


def folders(
    asked_for: Sequence[Path], named: Mapping[str, Sequence[str]], environ: Mapping[str, str], machine: str
) -> tuple[Folder, ...]:
    """Those asked for, toolkits, LD_LIBRARY_PATH, the environment's packages, the system; each once.

    `named`: library of the wheel → its search path. What one of them was linked with another may need, too.
    """
    once: dict[Path, Folder] = {}
    for each in (*_asked_for(asked_for), *_named(named), *_around(environ, machine)):
        if opening.is_folder(each.path):
            once.setdefault(each.path, each)
    return tuple(once.values())


def _asked_for(asked_for: Sequence[Path]) -> Iterator[Folder]:
    kits = _toolkits() if asked_for else []
    for root in asked_for:
        # The folder itself, or that of a toolkit: both are what people give.
        known = next((each for each in kits if _is_of(root, each)), None)
        for path in (root, *(root / each for each in _LIBRARY_FOLDERS)):
            yield Folder(
                path=path.absolute(),
                via="asked for",
                toolkit=known.toolkit if known else None,
                versions=known.versions if known else {},
            )


def _named(named: Mapping[str, Sequence[str]]) -> Iterator[Folder]:
    for wheels_own, entries in named.items():
        for entry in entries:
            if entry.startswith("/"):
                yield Folder(path=Path(os.path.normpath(entry)), via=f"the search path of {wheels_own}")


def _around(environ: Mapping[str, str], machine: str) -> Iterator[Folder]:
    for name in _ROOTS:
        if value := environ.get(name):
            for each in _LIBRARY_FOLDERS:
                yield Folder(path=Path(value, each).absolute(), via=name)
    yield from _toolkits()
    for value in environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if value:
            yield Folder(path=Path(value).absolute(), via="LD_LIBRARY_PATH")
    yield from _packages(environ, dict.fromkeys(row.folder for row in cuda_libraries.library_rows() if row.folder))
    for value in (*_ld_conf(_LD_CONF), f"/lib/{machine}-linux-gnu", f"/usr/lib/{machine}-linux-gnu", *_SYSTEM):
        yield Folder(path=Path(value), via="the system")


def _toolkits() -> list[Folder]:
    """The toolkits in cuwheel's own cache, the newest first."""
    return [
        Folder(
            path=Path(kit.root, each),
            via=f"CUDA {kit.version} of `cuwheel toolchain`",
            toolkit=versions.minor(kit.version),
            versions={archive.name: archive.version for archive in kit.archives},
        )
        for kit in reversed(store.open_store().all())
        for each in _LIBRARY_FOLDERS
    ]


def _is_of(root: Path, kit: Folder) -> bool:
    try:
        return kit.path.resolve().is_relative_to(root.resolve()) or root.resolve() == kit.path.resolve()
    except OSError:
        return False


def _packages(environ: Mapping[str, str], wanted: Iterable[str]) -> Iterator[Folder]:
    """The folders of the active environment that NVIDIA's packages put libraries into."""
    world = World(environ=environ, cwd=Path.cwd())
    _, places = python_environment.locate(world, None)
    for place in places:
        installed = _installed(place)
        for folder in wanted:
            yield Folder(path=place / folder, via="the environment's packages", versions=installed)


def _beside(path: Path) -> dict[str, str]:
    """The versions of packages that lie unpacked with their dist-info above this folder: `pip install --target`."""
    for place in path.parents[:4]:
        if found := _installed(place):
            return found
    return {}


def _installed(place: Path) -> dict[str, str]:
    """The packages of the table that a site-packages folder has, with their versions."""
    known = {row.name for row in cuda_libraries.library_rows()}
    return {each.name: each.version for each in distributions(place) if each.name in known}


def _ld_conf(name: str) -> Iterator[str]:
    """ld.so.conf and what it includes. A file may include itself: not more than any real one has."""
    waiting = [name]
    seen: set[str] = set()
    while waiting:
        if len(seen) >= _MOST_FOLDERS:
            limits.met(
                f"{_MOST_FOLDERS} files of the loader's configuration are read",
                "the rest of the folders are not searched",
            )
            return
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        try:
            lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for line in (each.split("#")[0].strip() for each in lines):
            if line.startswith("include "):
                pattern = os.path.join(os.path.dirname(path), line.removeprefix("include ").strip())  # noqa: PTH118, PTH120
                waiting += sorted(glob.glob(pattern))  # noqa: PTH207 - an absolute pattern
            elif line.startswith("/"):
                yield line
