"""Archives of a toolkit: resolved by the index, fetched with the right hash, unpacked into one folder."""

from __future__ import annotations

import contextlib
import gzip
import lzma
import os
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urljoin

import zstandard
from msgspec import Struct
from msgspec.structs import replace

from cuwheel.errors import NetworkError, UnavailableError
from cuwheel.network import addresses, resolver, transfer
from cuwheel.network.addresses import local_path
from cuwheel.support import confined, files, log
from cuwheel.support.confined import place_of_member
from cuwheel.toolchains.store import DOWNLOADS, Store
from cuwheel.toolchains.toolchain import Archive
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.support import bounded, wording
from cuwheel_core.wheel.tags import release_of_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cuwheel.toolchains.toolchain import ArchiveKind


_WHEELS_FOR = "manylinux_2_28_{cpu}"  # NVIDIA's are for this one or an earlier


def resolve_wheels(
    requirements: Sequence[str],
    *,
    dependencies: bool = True,
    offline: bool = False,
    python: str | None = None,
    cpu: str | None = None,
) -> tuple[Archive, ...]:
    """`python`: another version than the one that asks; `cpu`: another processor."""
    wanted = resolver.Wanted(
        requirements=tuple(requirements),
        dependencies=dependencies,
        offline=offline,
        python=python,
        platform=_WHEELS_FOR.format(cpu=cpu) if cpu else None,
    )
    return tuple(_archive(each) for each in resolver.resolve(wanted))


def _archive(release: resolver.Release) -> Archive:
    local = addresses.local_path(release.url)
    sha256 = release.sha256 or (files.sha256(local) if local else None)
    if sha256 is None:
        raise UnavailableError(f"the index gives no sha256 for {release.file}, and unchecked files are not installed")
    return Archive(
        kind="wheel",
        name=release.name,
        version=release.version,
        file=release.file,
        url=release.url,
        sha256=sha256,
        size=release.size,
    )


def with_addresses(
    archives: Sequence[Archive], *, offline: bool = False, target: str | None = None
) -> tuple[Archive, ...]:
    """Where the index has the wheels that a lock only names. The hash decides whether it is the same file.

    `target`: another processor, for which some of them are.
    """
    lacking = [each for each in archives if each.kind == "wheel" and not each.url]
    if offline:
        return tuple(archives)
    foreign = [each for each in lacking if target and each.file.endswith(f"_{target}.whl")]
    found: dict[str, str] = {}
    for cpu, rows in ((None, [each for each in lacking if each not in foreign]), (target, foreign)):
        if named := [f"{each.name}=={each.version}" for each in rows]:
            found |= {each.sha256: each.url for each in resolve_wheels(named, dependencies=False, cpu=cpu)}
    return tuple(replace(each, url=each.url or found.get(each.sha256, "")) for each in archives)


def in_order(archives: Iterable[Archive]) -> tuple[Archive, ...]:
    return tuple(sorted(archives, key=lambda each: (each.kind, each.name)))


# Archives onto this disk: from a folder, the cache or a server, and never used before their hash is right.

_MAX_MANIFEST = 16 * 1024 * 1024


class Supply(Struct, frozen=True, kw_only=True):
    """Where archives come from. `base`: a folder or URL that has them by name, instead of where each says it is."""

    store: Store
    offline: bool = False
    base: str | None = None


def obtain_archives(archives: Sequence[Archive], supply: Supply) -> Iterator[Path]:
    """Each as a file with the right hash, in their order."""
    with supply.store.locked(DOWNLOADS, shared=True):  # until the last is used: nobody removes them meanwhile
        for number, archive in enumerate(archives, 1):
            log.debug("archive %d of %d: %s", number, len(archives), archive.file)
            yield _obtain_archive(archive, supply)


def _obtain_archive(archive: Archive, supply: Supply) -> Path:
    url = join_address(supply.base, archive.file) if supply.base else archive.url
    if local := local_path(url):
        _check(local, archive)
        return local
    kept = supply.store.downloads / archive.sha256[:16] / archive.file
    with supply.store.locked(f"download-{archive.sha256[:16]}"):
        if kept.is_file():
            _check(kept, archive)
            return kept
        if supply.offline or not url:
            raise NetworkError(
                archive.file,
                "is not in the cache, and --offline forbids downloading it" if supply.offline else "has no address",
                hint="run this once with a network, or bring it from another machine: cuwheel toolchain fetch VERSION "
                "--to FOLDER",
            )
        shown = release_of_file(archive.file)
        log.info("downloading %s%s", shown, f" ({wording.size(archive.size)})" if archive.size else "")
        transfer.download(url, kept, sha256=archive.sha256, size=archive.size, label=archive.file)
    return kept


def keep_archives(archives: Sequence[Archive], supply: Supply) -> tuple[Path, ...]:
    """In the cache, also those that lie in a folder of somebody's: a lock names them without it."""
    return tuple(
        path for each in archives for path in copy_to(supply.store.downloads / each.sha256[:16], [each], supply)
    )


def copy_to(folder: Path, archives: Sequence[Archive], supply: Supply) -> tuple[Path, ...]:
    """Copies archives for machines without a network."""
    copied = []
    for archive, path in zip(archives, obtain_archives(archives, supply), strict=True):
        target = folder / archive.file
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not files.holds(target, archive.sha256):
                files.copy(path, target)
        except OSError as error:
            raise UnreadableError.from_os(error, target) from error
        copied.append(target)
    return tuple(copied)


def text_of(base: str, name: str, *, offline: bool = False) -> bytes:
    """A small file below a folder or URL: a manifest."""
    url = join_address(base, name) if name else base
    if local := local_path(url):
        try:
            return local.read_bytes()
        except OSError as error:
            raise UnreadableError.from_os(error, local) from error
    if offline:
        raise NetworkError(url, "is on a server, which --offline forbids")
    return transfer.fetch(url, limit=_MAX_MANIFEST)


def join_address(base: str, name: str) -> str:
    """`name` below `base`, whether that is a folder or a URL."""
    if "://" in base:
        return urljoin(base.rstrip("/") + "/", name)
    return str(Path(base, name))


def _check(path: Path, archive: Archive) -> None:
    found = files.sha256(path)
    if found != archive.sha256:
        raise MalformedError(
            path,
            f"sha256 is {found}, expected {archive.sha256}",
            hint="it is damaged or another file: remove it and fetch it again",
        )


# From where Debian puts a toolkit's files to where everybody else looks for them.

# What Debian's nvcc expects under /usr, told to look beside itself instead.
_PROFILE = """\
TOP = $(_HERE_)/..
CICC_PATH = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
LD_LIBRARY_PATH += $(TOP)/lib:
PATH += $(CICC_PATH):$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib64/stubs" "-L$(TOP)/lib64"
"""
_PROGRAMS = ("__nvcc_device_query", "bin2c", "crt", "cudafe++", "fatbinary", "nvlink", "nvprune", "ptxas")
_TOOLS = ("cuobjdump", "nvdisasm", "cu++filt")
# Of the static archives these belong to any toolkit; those of the libraries are most of three gigabytes.
_STATIC = re.compile(r"lib(cudart_static|cudadevrt|culibos)\.a")
_SHARED = re.compile(r"lib(cudart|nvvm|nvrtc|nvToolsExt|nvJitLink)[\w.-]*\.so[.\d]*")


def arrange_debian_files(unpacked: Path, root: Path) -> None:
    """Move what one package brought into the toolkit."""
    for step in DEBIAN_STEPS:
        step(unpacked, root)


def _programs(unpacked: Path, root: Path) -> None:
    private = unpacked / "usr" / "lib" / "nvidia-cuda-toolkit"
    for name in (*_PROGRAMS, *_TOOLS):
        _move(unpacked / "usr" / "bin" / name, root / "bin" / name)
        _move(private / "bin" / name, root / "bin" / name)
    _move(private / "bin" / "nvcc", root / "bin" / "nvcc")  # that in usr/bin is a script which calls it
    _move(private / "bin" / "cicc", root / "nvvm" / "bin" / "cicc")
    _move(private / "libdevice", root / "nvvm" / "libdevice")
    if (root / "bin" / "nvcc").exists():
        (root / "bin" / "nvcc.profile").write_text(_PROFILE, encoding="utf-8")


def copy_programs(toolkit: Path, root: Path) -> None:
    """What compiles in a whole toolkit, into another folder, where it looks beside itself for all else."""
    for name in ("nvcc", *_PROGRAMS, *_TOOLS):
        path = toolkit / "bin" / name
        if path.is_dir():
            shutil.copytree(path, root / "bin" / name)
        elif path.is_file():
            (root / "bin").mkdir(exist_ok=True)
            shutil.copy(path, root / "bin" / name)
    shutil.copytree(
        toolkit / "nvvm", root / "nvvm", dirs_exist_ok=True, ignore=shutil.ignore_patterns("*doc*", "libnvvm-samples")
    )
    (root / "bin" / "nvcc.profile").write_text(_PROFILE, encoding="utf-8")


def _headers(unpacked: Path, root: Path) -> None:
    """Debian's C++ libraries are packages of their own: some below /usr/include, some below a folder there."""
    include = unpacked / "usr" / "include"
    if include.is_dir():
        shutil.copytree(include, root / "include", dirs_exist_ok=True, symlinks=True)


def _libraries(unpacked: Path, root: Path) -> None:
    for folder in (unpacked / "usr" / "lib").glob("*-linux-gnu"):
        for path in folder.iterdir():
            if _STATIC.fullmatch(path.name) or _SHARED.fullmatch(path.name):
                _move(path, root / "lib" / path.name)
        _move(folder / "stubs" / "libcuda.so", root / "lib" / "stubs" / "libcuda.so")


def _licences(unpacked: Path, root: Path) -> None:
    for path in (unpacked / "usr" / "share" / "doc").glob("*/copyright"):
        _move(path, root / "licenses" / path.parent.name / "copyright")


def _move(source: Path, target: Path) -> None:
    if source.exists() or source.is_symlink():
        if target.exists() or target.is_symlink():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)


DEBIAN_STEPS: tuple[Callable[[Path, Path], None], ...] = (_programs, _headers, _libraries, _licences)


# Archives into one toolkit folder. Nothing is written outside it, whatever the archive says.

# Folders at the top of a toolkit. Packages put them below `nvidia/cu13`, `nvidia/cudnn`, `cutensor` and so on.
_TOPS = ("bin", "include", "lib", "lib64", "nvvm", "cccl", "extras", "share", "compute-sanitizer", "targets")
_LEAST = 64 * 10**6
_GROWTH = 50
_MOST_FILES = 200_000
# What Python's modules say of damage. KeyError: a hard link to what is not in the archive. RuntimeError: a password, or
# an unknown method. ValueError: a name or a number that nothing can have. MemoryError: a dictionary of 4 GB.
BROKEN = (
    *(zipfile.BadZipFile, zlib.error, tarfile.TarError, lzma.LZMAError, gzip.BadGzipFile, zstandard.ZstdError),
    *(EOFError, KeyError, RuntimeError, ValueError, OverflowError, MemoryError),
)


def unpack(archive: Archive, path: Path, root: Path) -> None:
    """Add the contents of an archive, whose hash was checked, to the toolkit at `root`."""
    log.debug("unpacking %s", path.name)
    try:
        _UNPACKERS[archive.kind](path, root, _Room(path))
    except BROKEN as error:
        raise MalformedError(path, f"cannot be unpacked: {str(error) or type(error).__name__}") from error


def zip_members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Python looks for one that begins outside the file, which the system refuses, and at the end of an empty name."""
    found = archive.infolist()
    for each in found:
        if not each.filename:
            raise zipfile.BadZipFile("a member has no name")
        if not 0 <= each.header_offset < archive.start_dir:
            raise zipfile.BadZipFile(f"{each.filename!r} does not begin before the list of members")
    return found


class _Room:
    """What an archive may become: real ones grow to ten times their size at most, and bombs a thousandfold."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bytes = _LEAST + _GROWTH * path.stat().st_size
        self._files = _MOST_FILES

    def take(self, size: int) -> None:
        self._bytes -= size
        if self._bytes < 0:
            raise MalformedError(
                self._path, f"unpacks to more than {_GROWTH} times its size: it is not an archive of a toolkit"
            )

    def take_file(self) -> None:
        self._files -= 1
        if self._files < 0:
            raise MalformedError(self._path, f"has more than {_MOST_FILES:,} files: it is not an archive of a toolkit")


def _unpack_wheel(path: Path, root: Path, room: _Room) -> None:
    with (
        zipfile.ZipFile(path) as wheel,
        log.progress(path.name, sum(each.file_size for each in zip_members(wheel))) as bar,
    ):
        for info in zip_members(wheel):
            place = _place_in_wheel(info.filename)
            if place is None or info.is_dir():
                continue
            with wheel.open(info) as source:
                _write(source, place_of_member(root, place, path), room, mode=info.external_attr >> 16)
            bar.advance(info.file_size)


def _place_in_wheel(name: str) -> str | None:
    """`nvidia/cu13/bin/nvcc` → `bin/nvcc`; licences are kept, Python files are not."""
    parts = PurePosixPath(name).parts
    if parts and parts[0].endswith(".dist-info"):
        licence = "license" in parts[-1].lower()
        return f"licenses/{parts[0].removesuffix('.dist-info')}/{parts[-1]}" if licence else None
    top = next((index for index, part in enumerate(parts[:-1]) if index and part in _TOPS), None)
    return None if top is None else "/".join(parts[top:])


def _unpack_tar(path: Path, root: Path, room: _Room) -> None:
    """NVIDIA's archives: one folder at the top, which is left out."""
    with tarfile.open(path, "r:*") as archive, log.progress(path.name, None) as bar:
        for member in archive:
            parts = PurePosixPath(member.name).parts
            if ".." in parts or member.name.startswith("/"):
                raise MalformedError(path, f"has {member.name!r}, which is outside the archive")
            if len(parts) > 1:
                room.take_file()
                place = place_of_member(root, "/".join(parts[1:]), path)
                confined.unpack_member(archive, member, place, root, partial(_write, room=room, mode=member.mode))
            bar.advance(member.size)


def _unpack_deb(path: Path, root: Path, room: _Room) -> None:
    with tempfile.TemporaryDirectory(prefix=".deb-", dir=root) as name:
        staged = Path(name).resolve()
        _unpack_tree(path, staged, room)
        arrange_debian_files(staged, root)


def _unpack_tree(path: Path, root: Path, room: _Room) -> None:
    """Debian's own program unpacks without a limit; an archive of its kind is a tar file in an ar file."""
    with (
        _deb_data(path) as data,
        tarfile.open(fileobj=data, mode="r|") as archive,
        log.progress(path.name, None) as bar,
    ):
        for member in archive:
            room.take_file()
            _unpack_deb_member(archive, member, root, room)
            bar.advance(member.size)


def _unpack_deb_member(archive: tarfile.TarFile, member: tarfile.TarInfo, staged: Path, room: _Room) -> None:
    """Links are kept as they are: Debian's lead to other packages. Nothing is written through one."""
    path = Path(str(archive.name or "data.tar"))
    name = member.name.removeprefix("./").strip("/")
    if name in ("", "."):
        return
    place = place_of_member(staged, name, path)
    if member.isdir():
        place.mkdir(exist_ok=True)
    elif member.issym():
        place.unlink(missing_ok=True)
        place.symlink_to(member.linkname)
    elif member.islnk():
        first = place_of_member(staged, member.linkname.removeprefix("./"), path)
        with first.open("rb") as source:
            _write(source, place, room, mode=first.stat().st_mode)
    elif contents := archive.extractfile(member):
        _write(contents, place, room, mode=member.mode)
    else:
        raise MalformedError(path, f"has {name!r}, which is not a file, folder or link")


@contextlib.contextmanager
def _deb_data(path: Path) -> Iterator[IO[bytes]]:
    """The files of a package, as the stream of a tar file."""
    with path.open("rb") as file:
        if file.read(len(_AR)) != _AR:
            raise MalformedError(path, "is not a Debian package")
        while header := file.read(_AR_HEADER):
            name, size = header[:16].rstrip(b" /"), header[48:58].strip()
            if len(header) < _AR_HEADER or not size.isdigit():
                break
            if name.startswith(b"data.tar"):
                opener = _OPENERS.get(name.rpartition(b".")[2])
                with opener(file) if opener else contextlib.nullcontext(file) as opened:
                    yield opened
                return
            file.seek(bounded.digits(size) + bounded.digits(size) % 2, os.SEEK_CUR)
    raise MalformedError(path, "is a Debian package without files")


def _zstd(source: IO[bytes]) -> IO[bytes]:
    return zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(source)


_AR, _AR_HEADER = b"!<arch>\n", 60
_OPENERS: dict[bytes, Callable[[IO[bytes]], Any]] = {b"xz": lzma.open, b"gz": gzip.open, b"zst": _zstd}


def _write(source: IO[bytes], place: Path, room: _Room, *, mode: int) -> None:
    place.unlink(missing_ok=True)  # never through a link that an archive before this one made
    with place.open("xb") as target:
        while chunk := source.read(1 << 20):
            room.take(len(chunk))
            target.write(chunk)
    place.chmod(0o755 if mode & stat.S_IXUSR else 0o644)


_UNPACKERS: dict[ArchiveKind, Callable[[Path, Path, _Room], None]] = {
    "wheel": _unpack_wheel,
    "tar": _unpack_tar,
    "deb": _unpack_deb,
    "compiler": _unpack_tree,
}
