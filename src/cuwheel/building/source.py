"""The source of a build: a folder, an archive, or a release of the index; and which of its files count."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building import repository, trees
from cuwheel.building.values import Tree
from cuwheel.device_code.target import is_pinned
from cuwheel.errors import CuwheelError, UnreadableError, UsageError
from cuwheel.support import wording
from cuwheel.support.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ARCHIVES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
_SHOWN = 5
_LARGE = 10**9  # bytes of a source: more is a data set or an environment, mostly
_EPOCH = 315532800  # 1980: the first day that a zip can name
_OUTPUT = frozenset(
    (".git", ".hg", ".svn", ".tox", ".nox", ".eggs", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache")
)
_OUTPUT_AT_TOP = frozenset(("build", "dist", "_skbuild", "wheelhouse"))


def obtain(asked: str, cache: Path, *, offline: bool = False, without: Sequence[Path] = ()) -> Tree:
    """The source that somebody named. `without`: folders that are no part of it, such as the output's."""
    path = Path(asked)
    if path.is_dir():
        return survey(path.absolute(), asked, without)
    if is_pinned(asked) and not path.exists():
        from cuwheel.building import releases  # noqa: PLC0415 - the network, for this alone

        path = releases.download(asked, cache, offline=offline)
    if not path.is_file():
        raise UnreadableError(asked, "is not a folder, a source archive or name==version", "cuwheel build FOLDER")
    if not path.name.endswith(_ARCHIVES):
        wheel = "it is already built" if path.suffix == ".whl" else f"sources are folders, or {', '.join(_ARCHIVES)}"
        raise UsageError(f"{asked} cannot be built: {wheel}", hint="cuwheel build --help")
    return replace(
        survey(trees.unpacked(path, cache / "sources"), asked, ()), repository=False, commit="", described=""
    )


def survey(folder: Path, asked: str, without: Sequence[Path]) -> Tree:
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
        epoch=int(committed) if committed and committed.strip().isdigit() else _EPOCH,
        sha256=trees.digest(folder, kept),
    )


def findings(tree: Tree) -> Iterator[Finding]:
    """What is known of a source and may surprise."""
    if count := len(tree.left_out):
        yield Finding(
            rule="links-left-out",
            severity="warning",
            message=f"{count} {'link leads' if count == 1 else 'links lead'} out of the source and not copied",
            evidence=tree.left_out[:_SHOWN],
            fix="replace the links with the files they point to",
        )
    if count := len(tree.empty):
        yield Finding(
            rule="submodule-not-fetched",
            severity="warning",
            message=f"{count} {'submodule was' if count == 1 else 'submodules were'} not fetched: an empty folder",
            evidence=tree.empty[:_SHOWN],
            fix="git submodule update --init --recursive",
        )
    sizes = sorted(((tree.folder / name).lstat().st_size, name) for name in tree.files)[::-1]
    if (total := sum(size for size, _ in sizes)) > _LARGE:
        yield Finding(
            rule="large-source",
            severity="warning",
            message=f"the source is {wording.size(total)} large, and each wheel is built in a copy of it",
            evidence=tuple(f"{name}: {wording.size(size)}" for size, name in sizes[:_SHOWN]),
            fix="move what is not source out of it, or list it in .gitignore",
        )


def _git(folder: Path, *words: str) -> str | None:
    if not shutil.which("git"):
        return None
    try:
        return repository.git(folder, *words)
    except CuwheelError:
        return None  # no repository, or one that git does not trust


def _git_files(folder: Path) -> list[str] | None:
    """None where git does not know the folder: no repository, or ignored by the one that it lies in."""
    known = _git(folder, "ls-files", "-z", "--cached", "--recurse-submodules")
    new = _git(folder, "ls-files", "-z", "--others", "--exclude-standard")
    if known is None or new is None:
        return None
    # Wheels of an earlier build that went to dist/ are no source, though nobody told git to ignore them.
    fresh = [name for name in new.split("\0") if name.partition("/")[0] not in _OUTPUT_AT_TOP]
    return [name for name in (*known.split("\0"), *fresh) if name] or None


def walked(folder: Path, without: set[Path]) -> Iterator[str]:
    """All files below a folder but what builds leave behind."""
    for place, folders, files in os.walk(folder):
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
        for name in (*files, *links):
            yield (here / name).relative_to(folder).as_posix()


def _is_build_output(folder: Path, *, top: bool) -> bool:
    """What builds, environments and caches leave behind."""
    name = folder.name
    if name in _OUTPUT or name.endswith(".egg-info") or (top and name in _OUTPUT_AT_TOP):
        return True
    return any((folder / mark).is_file() for mark in ("pyvenv.cfg", "CACHEDIR.TAG"))


def _leads_out(link: Path, folder: Path) -> bool:
    target = link.readlink()
    if target.is_absolute():
        return True
    top = folder.resolve()
    end = Path(os.path.realpath(link))  # of links in a circle it stops, where Path.resolve raises
    return end != top and top not in end.parents
