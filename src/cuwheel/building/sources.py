"""The source of a build: a folder, an archive or a release; which files count; copied, and packed for others."""

from __future__ import annotations

import ast
import configparser
import dataclasses
import hashlib
import os
import re
import shutil
import stat
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from cuwheel.building.values import Project, Tree
from cuwheel.device_code.target import is_pinned
from cuwheel.errors import MissingExtraError, NetworkError, UsageError
from cuwheel.network import addresses, resolver, transfer, venvs
from cuwheel.support import codec, files, log, process, system_calls
from cuwheel.support.confined import place_of_member, unpack_member
from cuwheel.support.finding import finding
from cuwheel.toolchains import archives, store
from cuwheel.toolchains.store import NO_SPACE, Store
from cuwheel_core.errors import CuwheelError, MalformedError, UnknownNameError, UnreadableError
from cuwheel_core.support import bounded, opening, wording
from cuwheel_core.wheel import metadata

if TYPE_CHECKING:
    from cuwheel_core.support.finding import Finding

# git, asked about the repository of a folder and of no other.

_LIMIT_S = 300.0


def git(folder: Path, *words: str | Path) -> str:
    """Its output. In a hook, git's own variables name the caller's repository: `reset` would then move its branch."""
    # Settings stay: by them a user says which folders are safe.
    kept = ("GIT_CONFIG", "GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM")
    around = {name: text for name, text in os.environ.items() if not name.startswith("GIT_") or name.startswith(kept)}
    return process.run(["git", "-C", folder, *words], timeout=_LIMIT_S, env=around).stdout


# `name==version` into its source archive, through the user's own uv, with its configuration or pip's.
#
# uv reads what the index says; pip is not asked, which would run the project's own code to learn its metadata.

_OTHER_PYTHON = re.compile(r"does not satisfy Python[<>=~]=?\s*(\d+\.\d+)", re.ASCII)  # uv's words


def download_release(pinned: str, cache: Path, *, offline: bool) -> Path:
    """Kept, and checked against the index's hash where it tells one."""
    kept = cache / "sdists" / pinned.replace("==", "-").lower()
    if kept_files := [each for each in sorted(kept.glob("*")) if not each.name.endswith(".part")]:
        return kept_files[0]
    if offline:
        raise NetworkError(
            pinned,
            "its source is not in the cache, and --offline forbids downloading it",
            hint="run this once without --offline",
        )
    if venvs.uv() is None:
        raise MissingExtraError(["uv"], "finding the source of a release", "build")
    wanted = resolver.Wanted(requirements=(pinned,), dependencies=False, source=True)
    try:
        try:
            (release,) = resolver.resolve(wanted)
        except resolver.NotFoundError as error:
            # The source is wanted whatever it requires: which Python builds it is decided when it is there.
            if not (other := _OTHER_PYTHON.search(str(error))):
                raise
            (release,) = resolver.resolve(dataclasses.replace(wanted, python=other[1]))  # noqa: TID251 - of a dataclass
    except NetworkError:
        raise
    except CuwheelError as error:
        tried = error.answers if isinstance(error, resolver.NotFoundError) else error.lines
        hint = "download its source yourself and give the folder or file: cuwheel build NAME-VERSION.tar.gz"
        raise UnknownNameError("source release on your index", pinned, hint=(hint, *tried)) from error
    place = kept / release.file
    if local := addresses.local_path(release.url):
        place.parent.mkdir(parents=True, exist_ok=True)
        return files.copy(local, place)
    log.info("downloading %s", place.name)
    transfer.download(release.url, place, sha256=release.sha256, size=release.size)
    return place


# Folders of files: hashed, copied, unpacked. Nothing is written outside, whatever an archive says.

_MAX_UNPACKED = 20 * 10**9  # more is not a source, but an archive made to fill the disk


def digest(folder: Path, names: Sequence[str]) -> str:
    """A hash of names, contents and run bits: times and owners do not count."""
    whole = hashlib.sha256()
    try:
        for name in names:
            path = folder / name
            if path.is_symlink():
                content = f"link {path.readlink()}"
            else:
                runs = "x" if path.stat().st_mode & stat.S_IXUSR else "-"
                content = f"{runs} {files.sha256(path)}"
            whole.update(os.fsencode(f"{name}\0{content}\n"))
    except OSError as error:
        raise UnreadableError.from_os(error) from error
    return whole.hexdigest()


def copy_tree(tree: Tree, to: Path) -> None:
    """The files of a source in a new folder. Times stay: generated files must not look older than their sources."""
    try:
        to.mkdir(parents=True)
        for name in tree.files:
            source, target = tree.folder / name, to / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
            if not target.is_symlink():  # builds write into their sources, and those may be of a store or a mount
                target.chmod(target.stat().st_mode | stat.S_IWUSR)
    except OSError as error:
        raise UnreadableError.from_os(error, error.filename2 or error.filename or to, hint=store.NO_SPACE) from error
    if tree.repository:
        # Many projects take their version from git, and their list of files. A clone that shares the objects costs
        # nothing, and whatever the build does to it the original stays as it is.
        with tempfile.TemporaryDirectory(dir=to.parent) as scratch:
            clone = Path(scratch, "clone")
            try:
                git(Path(scratch), "clone", "--quiet", "--shared", "--no-checkout", tree.folder, clone)
                (clone / ".git").rename(to / ".git")
                git(to, "reset", "--quiet", tree.commit)
            except CuwheelError as error:
                log.debug("the copy has no history: %s", error)
                shutil.rmtree(to / ".git", ignore_errors=True)


def unpack_source(archive: Path, cache: Path) -> Path:
    """The one folder that is in a source archive; unpacked once for each content."""
    try:
        place = cache / files.sha256(archive)[:16]
        if not place.is_dir():
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".making-", dir=cache) as scratch:
                made = Path(scratch, "made")
                made.mkdir()
                _unpack(archive, made)
                _only_folder(made, archive)
                try:
                    system_calls.rename_over(made, place)
                except OSError:
                    if not place.is_dir():  # else another build was first, with the same
                        raise
        os.utime(place)  # `cuwheel cache` takes it for the time of its last use
    except archives.BROKEN as error:
        problem = f"cannot be unpacked: {str(error) or type(error).__name__}"
        raise MalformedError(archive, problem, hint="download it again") from error
    except OSError as error:
        raise UnreadableError.from_os(error, archive, hint=store.NO_SPACE) from error
    return _only_folder(place, archive)


def _only_folder(place: Path, archive: Path) -> Path:
    found = [each for each in place.iterdir() if each.is_dir() and not each.is_symlink()]
    if len(found) != 1:
        raise MalformedError(
            archive, f"is not a source archive: it must have one folder at its top and has {len(found)}"
        )
    return found[0]


def _unpack(archive: Path, to: Path) -> None:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            _refuse_too_much(archive, sum(each.file_size for each in archives.zip_members(file)))
            for info in archives.zip_members(file):
                place = place_of_member(to, info.filename, archive)
                if info.is_dir():
                    place.mkdir(parents=True, exist_ok=True)
                    continue
                with file.open(info) as source, place.open("wb") as target:
                    shutil.copyfileobj(source, target)
                place.chmod(0o755 if (info.external_attr >> 16) & stat.S_IXUSR else 0o644)
        return
    with tarfile.open(archive, "r:*") as file:
        total = 0
        for member in file:
            total += member.size
            _refuse_too_much(archive, total)
            place = place_of_member(to, member.name, archive)
            unpack_member(file, member, place, to, partial(_write, member=member))


def _refuse_too_much(archive: Path, size: int) -> None:
    if size > _MAX_UNPACKED:
        raise MalformedError(archive, f"is not a source archive: it unpacks to more than {_MAX_UNPACKED:,} bytes")


def _write(contents: IO[bytes], place: Path, *, member: tarfile.TarInfo) -> None:
    place.unlink(missing_ok=True)
    with place.open("xb") as target:
        shutil.copyfileobj(contents, target)
    place.chmod(0o755 if member.mode & stat.S_IXUSR else 0o644)
    os.utime(place, (member.mtime, member.mtime))


# A folder, an archive or a release as the source of a build, and which of its files count.

_ARCHIVES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
_SHOWN = 5
_SCHEMA_BYTES = 100  # of an answer: its schema comes first
_LARGE = 10**9  # bytes of a source: more is a data set or an environment, mostly
_EPOCH = 315532800  # 1980: the first day that a zip can name
_OUTPUT = frozenset(
    (".git", ".hg", ".svn", ".tox", ".nox", ".eggs", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache")
)
_OUTPUT_AT_TOP = frozenset(("build", "dist", "_skbuild", "wheelhouse"))


def obtain_source(asked: str, cache: Path, *, offline: bool = False, without: Sequence[Path] = ()) -> Tree:
    """The source that somebody named. `without`: folders that are no part of it, such as the output's."""
    path = Path(asked)
    if path.is_dir():
        return survey_source(files.absolute(path), asked, without)
    if is_pinned(asked) and not path.exists():
        path = download_release(asked, cache, offline=offline)
    if not path.is_file():
        raise UnreadableError(asked, "is not a folder, a source archive or name==version", "cuwheel build FOLDER")
    if not path.name.endswith(_ARCHIVES):
        wheel = "it is already built" if path.suffix == ".whl" else f"sources are folders, or {', '.join(_ARCHIVES)}"
        raise UsageError(f"{asked} cannot be built: {wheel}", hint="cuwheel build --help")
    return replace(
        survey_source(unpack_source(path, cache / "sources"), asked, ()), repository=False, commit="", described=""
    )


def survey_source(folder: Path, asked: str, without: Sequence[Path]) -> Tree:
    """The files of a folder that belong to its source: what git knows, else all but what builds leave behind."""
    names = _git_files(folder)
    if names is None:
        names = list(walked(folder, {each.resolve() for each in without}))
    else:
        top = folder.resolve()
        excluded = [each.resolve() for each in without if each.resolve() != top]
        names = [name for name in names if not any(each in (top / name).parents for each in excluded)]
    kept: list[str] = []
    left_out: list[str] = []
    empty: list[str] = []
    for name in sorted(dict.fromkeys(names)):
        path = folder / name
        if path.is_symlink():
            (left_out if _leads_out(path, folder) else kept).append(name)
        elif path.is_file():
            kept.append(name)
        elif path.is_dir():  # git names no folders but submodules that it did not fetch
            empty.append(name)
    commit = _git(folder, "rev-parse", "HEAD") if (folder / ".git").exists() else None
    committed = _git(folder, "log", "-1", "--format=%ct") if commit else None
    return Tree(
        asked=asked,
        folder=folder,
        files=tuple(kept),
        left_out=tuple(left_out),
        empty=tuple(empty),
        repository=commit is not None,
        commit=(commit or "").strip(),
        described=(_git(folder, "describe", "--tags", "--always") or "").strip() if commit else "",
        epoch=bounded.whole((committed or "").strip()) or _EPOCH,
        sha256=digest(folder, kept),
    )


def source_findings(tree: Tree) -> Iterator[Finding]:
    """What is known of a source and may surprise."""
    if count := len(tree.left_out):
        yield finding(
            "links-left-out",
            f"{count} {'link leads' if count == 1 else 'links lead'} out of the source and not copied",
            evidence=tree.left_out[:_SHOWN],
        )
    if count := len(tree.empty):
        yield finding(
            "submodule-not-fetched",
            f"{count} {'submodule was' if count == 1 else 'submodules were'} not fetched: an empty folder",
            evidence=tree.empty[:_SHOWN],
        )
    sizes = sorted(((tree.folder / name).lstat().st_size, name) for name in tree.files)[::-1]
    if (total := sum(size for size, _ in sizes)) > _LARGE:
        yield finding(
            "large-source",
            f"the source is {wording.size(total)} large, and each wheel is built in a copy of it",
            evidence=tuple(f"{name}: {wording.size(size)}" for size, name in sizes[:_SHOWN]),
        )


def _git(folder: Path, *words: str) -> str | None:
    if not shutil.which("git"):
        return None
    try:
        return git(folder, *words)
    except CuwheelError:
        return None  # no repository, or one that git does not trust


def _git_files(folder: Path) -> list[str] | None:
    """The files that git knows; None where it does not know the folder: no repository, or ignored by one around it."""
    known = _git(folder, "ls-files", "-z", "--cached", "--recurse-submodules")
    new = _git(folder, "ls-files", "-z", "--others", "--exclude-standard")
    if known is None or new is None:
        return None
    # Wheels of an earlier build are no source, though nobody told git to ignore the folder that they went to.
    fresh = [name for name in new.split("\0") if name.partition("/")[0] not in _OUTPUT_AT_TOP]
    places = {name.rpartition("/")[0] for name in fresh} - {""}
    results = tuple(f"{place}/" for place in places if _holds_results(folder / place))
    fresh = [name for name in fresh if not name.startswith(results)]
    return [name for name in (*known.split("\0"), *fresh) if name] or None


def walked(folder: Path, without: set[Path]) -> Iterator[str]:
    """All files below a folder but what builds leave behind."""
    for place, folders, names in os.walk(folder):
        here = Path(place)
        top = here == folder
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(
            name
            for name in folders
            if name not in links
            and not _is_build_output(here / name, top=top)
            and (here / name).resolve() not in without
        )
        for name in (*names, *links):
            yield (here / name).relative_to(folder).as_posix()


def _is_build_output(folder: Path, *, top: bool) -> bool:
    """What builds, environments and caches leave behind."""
    name = folder.name
    if name in _OUTPUT or name.endswith(".egg-info") or (top and name in _OUTPUT_AT_TOP):
        return True
    return any((folder / mark).is_file() for mark in ("pyvenv.cfg", "CACHEDIR.TAG")) or _holds_results(folder)


def _holds_results(folder: Path) -> bool:
    """Those of an earlier `cuwheel build`, whatever `--output` was then."""
    return '"cuwheel.build/' in opening.head(folder / "build.json", _SCHEMA_BYTES)


def _leads_out(link: Path, folder: Path) -> bool:
    target = link.readlink()
    if target.is_absolute():
        return True
    top = folder.resolve()
    end = Path(os.path.realpath(link))  # of links in a circle it stops, where Path.resolve raises
    return end != top and top not in end.parents


# A source as one file with one hash, for machines that do not have it: its files, and as much history as it needs.

_TOP = "source"
_SINCE_TAG = re.compile(r"-(\d+)-g[0-9a-f]+$")
_OF_GIT = ("HEAD", "config", "packed-refs", "shallow", "objects", "refs")


def pack_source(tree: Tree, to: Path) -> Path:
    """The same bytes for the same source."""
    try:
        with tempfile.TemporaryDirectory() as scratch, tarfile.open(to, "w", format=tarfile.PAX_FORMAT) as file:
            for name in tree.files:
                _add(file, tree.folder / name, f"{_TOP}/{name}")
            for path, name in _history(tree, Path(scratch)):
                _add(file, path, f"{_TOP}/.git/{name}")
    except OSError as error:
        raise UnreadableError.from_os(error, error.filename or to, hint=NO_SPACE) from error
    return to


def pack_folder(top: Path, to: Path, name: str) -> Path:
    """A folder of results as one file, for the way back. `name`: of the folder inside it."""
    with tarfile.open(to, "w", format=tarfile.PAX_FORMAT) as file:
        for path in sorted(top.rglob("*")):
            if path.is_file() and not path.is_symlink():
                _add(file, path, f"{name}/{path.relative_to(top).as_posix()}")
    return to


def unpack_packed(archive: Path, tree: Tree, store: Store) -> Tree:
    """The source on this machine, unpacked once and held against its hash."""
    with store.locked("sources"):
        place = unpack_source(archive, store.folder / "sources")
    if digest(place, tree.files) != tree.sha256:
        raise MalformedError(archive.name, "its files are not those that were sent")
    return replace(tree, folder=place)


def _add(file: tarfile.TarFile, path: Path, name: str) -> None:
    info = file.gettarinfo(path, name)
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = int(info.mtime)
    if info.islnk():  # two names of one file: each gets its contents
        info.type, info.size = tarfile.REGTYPE, path.stat().st_size
    if info.isreg():
        with path.open("rb") as content:
            file.addfile(info, content)
    else:
        file.addfile(info)


def _history(tree: Tree, scratch: Path) -> list[tuple[Path, str]]:
    """Back to the tag by which the version is named, and no further."""
    if not tree.repository:
        return []
    since = _SINCE_TAG.search(tree.described)
    depth = bounded.digits(since[1]) + 1 if since else 1
    clone = scratch / "clone"
    try:
        git(
            scratch,
            *("-c", "pack.threads=1", "clone", "--quiet", "--bare", f"--depth={depth}"),
            tree.folder.resolve().as_uri(),
            clone,
        )
    except CuwheelError as error:
        log.debug("the source is sent without its history: %s", error)
        return []
    found = [path for top in _OF_GIT for path in (clone / top, *sorted((clone / top).rglob("*"))) if path.is_file()]
    return [(path, path.relative_to(clone).as_posix()) for path in found]


# What a source says of itself, and how it is built: read, never run.

_MAX_BYTES = 4 * 1024 * 1024
_CODE = (".cu", ".cuh", ".ptx", ".cubin", ".fatbin")
_MENTIONS = re.compile(r"\bcuda|nvcc|CUDA\w*Extension|find_package\(\s*CUDA", re.IGNORECASE)
_BUILD_FILES = ("CMakeLists.txt", "setup.py", "setup.cfg", "pyproject.toml", "build.rs", "Cargo.toml", "meson.build")
_BUILD_SUFFIXES = (".cmake", ".mk", "Makefile", ".bazel", ".py", ".rs")
_TORCH_EXTENSION = re.compile(r"CUDAExtension|torch\.utils\.cpp_extension")
_LEGACY = "setuptools.build_meta:__legacy__"


def read_project(folder: Path, files: Sequence[str], asked: str = "auto") -> Project:
    """`asked`: the backend that the configuration names."""
    try:
        data = codec.parse_toml(_read_head(folder / "pyproject.toml").encode())
    except msgspec.DecodeError as error:
        raise MalformedError(folder / "pyproject.toml", f"is not valid TOML: {error}") from error
    system, project = _table(data, "build-system"), _table(data, "project")
    top = {name for name in files if "/" not in name}
    if not top & {"pyproject.toml", "setup.py"}:
        raise MalformedError(
            folder,
            "is not a Python project: it has neither pyproject.toml nor setup.py",
            hint="name the folder that has them: cuwheel build FOLDER",
        )
    build_backend, requires = str(system.get("build-backend") or _LEGACY), system.get("requires")
    written = dict(metadata.fields(_read_head(folder / "PKG-INFO")))  # by whoever packed it, where it is a release
    backend, evidence = _backend(folder, top, files, build_backend) if asked == "auto" else (asked, "configuration")
    return Project(
        name=_text(project, "name")
        or written.get("name")
        or _legacy_name(folder)
        or re.sub(r"-\d.*", "", folder.resolve().name),
        version=_text(project, "version") or written.get("version", ""),
        requires_python=_text(project, "requires-python") or written.get("requires-python", ""),
        backend=backend,
        requires=tuple(each for each in requires if isinstance(each, str)) if isinstance(requires, list) else (),
        build_dir=backend == "scikit-build-core" and "build-dir" not in _table(_table(data, "tool"), "scikit-build"),
        evidence=evidence,
    )


def _table(data: dict[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def _text(table: dict[str, Any], name: str) -> str:
    value = table.get(name, "")
    return value if isinstance(value, str) else ""


def _read_head(path: Path) -> str:
    return opening.head(path, _MAX_BYTES)


def _legacy_name(folder: Path) -> str:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(_read_head(folder / "setup.cfg"))
    except configparser.Error:
        return ""
    if name := parser.get("metadata", "name", fallback=""):
        return name.strip()
    # `setup(name="foo")`, and `NAME = "foo"; setup(name=NAME)`: a text, or a variable at the top that is one.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(_read_head(folder / "setup.py"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    assigned = [each for each in tree.body if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant)]
    known = {target.id: each.value for each in assigned for target in each.targets if isinstance(target, ast.Name)}
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and ast.unparse(each.func).endswith("setup")]
    for word in (each for call in calls for each in call.keywords if each.arg == "name"):
        value = known.get(word.value.id) if isinstance(word.value, ast.Name) else word.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return value.value
    return ""


def _backend(folder: Path, top: set[str], files: Sequence[str], build_backend: str) -> tuple[str, str]:
    """How it is built, and what tells so. The first that fits."""
    module = build_backend.partition(":")[0]
    if module.startswith("scikit_build_core"):
        return "scikit-build-core", f"build-backend is {build_backend}"
    if module.startswith(("maturin", "setuptools_rust")):
        return "cargo", f"build-backend is {build_backend}"
    setup = _read_head(folder / "setup.py")
    if _TORCH_EXTENSION.search(setup):
        return "torch", "setup.py uses torch.utils.cpp_extension"
    if "Cargo.toml" in top and (re.search(r"\bcargo\b|setuptools_rust", setup) or not setup):
        return "cargo", "it has a Cargo.toml at the top"
    if re.search(r"\bcmake\b", setup, re.IGNORECASE) or "CMakeLists.txt" in top:
        return "cmake", "it has a CMakeLists.txt" if "CMakeLists.txt" in top else "setup.py runs cmake"
    if re.search(r"\bcargo\b", setup) and any(name.endswith("Cargo.toml") for name in files):
        return "cargo", "setup.py runs cargo"
    if module.startswith("setuptools"):
        return "setuptools", f"build-backend is {build_backend}"
    return "other", f"build-backend is {build_backend}"


def mentions_cuda(folder: Path, files: Sequence[str]) -> bool:
    """Whether there is anything that could become device code: sources, or a build file that speaks of CUDA."""
    if any(name.endswith(_CODE) for name in files):
        return True
    likely = [name for name in files if name.rpartition("/")[2] in _BUILD_FILES or name.endswith(_BUILD_SUFFIXES)]
    # cuwheel's own configuration speaks of CUDA whatever the project does.
    return any(
        _MENTIONS.search(_read_head(folder / name))
        for name in likely[:2000]
        if name not in ("pyproject.toml", "cuwheel.toml")
    )
