"""Inputs that lead out of the folder a verb was given: nothing outside it may come, change or go.

Each is made from what an honest run left, with everything else right: sizes, times, hashes and inodes are the victim's
own, so that the check of the path is all that stands between.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaign import jobs
from tests.campaign.ground import Ground
from tests.fixtures import hostile, manifest

_LIMIT_S = 120
VICTIM = "victim.txt"
OUTSIDE = "outside"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """`job`: of whose folder it is made, after its beginning. `refused`: else it may as well be passed over."""

    name: str
    job: str
    spoil: Callable[[Path], object]
    command: jobs.Command
    refused: bool = True


def run(attack: Attack, seconds: float) -> list[str] | None:
    """What went wrong; None where there was not time enough to see."""
    end = time.monotonic() + seconds
    (job,) = jobs.by_name([attack.job])
    with tempfile.TemporaryDirectory() as scratch:
        ground = Ground(job, Path(scratch))
        (ground.scratch / VICTIM).write_text("not yours\n")
        (ground.scratch / OUTSIDE).mkdir()
        (ground.scratch / OUTSIDE / ".other.1-1-1.part").write_text("not yours either\n")
        if job.begin:
            try:
                begun = _cuwheel(ground, job.begin(ground.folder), min(end - time.monotonic(), _LIMIT_S))
            except subprocess.TimeoutExpired:
                return None
            if begun.returncode != 0:
                return [f"{attack.name}: what it is made from fails: {begun.stderr[-600:]}"]
        attack.spoil(ground.folder)
        before = _outside(ground)
        done: subprocess.CompletedProcess[str] | None
        try:
            done = _cuwheel(ground, attack.command(ground.folder), min(end - time.monotonic(), _LIMIT_S))
        except subprocess.TimeoutExpired:
            done = None
        after = _outside(ground)
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    problems = [f"{attack.name}: changed outside: {', '.join(changed)}"] if changed else []
    if done is None:
        return problems or (None if seconds < _LIMIT_S else [f"{attack.name}: no end after {_LIMIT_S} s"])
    if attack.refused and done.returncode == 0:
        problems.append(f"{attack.name}: not refused")
    if "Traceback" in done.stderr:
        problems.append(f"{attack.name}: {done.stderr[-600:]}")
    return problems


def _cuwheel(ground: Ground, words: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cuwheel", *words],
        cwd=ground.folder,
        env={**os.environ, **ground.places()},
        capture_output=True,
        text=True,
        check=False,
        timeout=max(seconds, 1),
    )


def _outside(ground: Ground) -> dict[str, str]:
    inside = (ground.folder, ground.private, ground.pristine)
    return {
        str(path.relative_to(ground.scratch)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(ground.scratch.rglob("*"))
        if path.is_file() and not any(path.is_relative_to(each) for each in inside)
    }


def _misled_journal(folder: Path) -> None:
    """Every step of an environment's journals is about a file outside, as it is now."""
    found = [path for path in (folder / "env").rglob("journal.json*") if path.is_file()]
    if not found:
        raise AssertionError("no journal was found in the environment: it is kept somewhere else now")
    for path in found:
        lines = [_misled(json.loads(line), folder.parent / VICTIM) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _misled(value: Any, victim: Path) -> Any:
    if isinstance(value, list):
        return [_misled(each, victim) for each in value]
    if not isinstance(value, dict):
        return value
    if "state" in value and "before" in value:  # of an install: what is to be put back at once
        value = {**value, "state": "undoing"}
    if isinstance(value.get("path"), str) and not value["path"].startswith("/"):
        value = {**value, "path": f"../../{victim.name}", "after": _as_it_is(value.get("after"), victim)}
    return {name: each if name == "after" else _misled(each, victim) for name, each in value.items()}


def _as_it_is(known: Any, victim: Path) -> Any:
    """What a journal would know of the victim."""
    if not isinstance(known, dict):
        return known
    status = victim.stat()
    own = {
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "inode": status.st_ino,
        "sha256": hashlib.sha256(victim.read_bytes()).hexdigest(),
    }
    return {name: own.get(name, each) for name, each in known.items()}


def _archive_with(folder: Path, *members: tuple[str, str]) -> None:
    """Further members in one of NVIDIA's archives: a name with its contents, or with `-> ` the link's target."""
    listing = folder / "site" / "redistrib_13.0.2.json"
    listed = json.loads(listing.read_text())
    part = listed["cuda_nvcc"]["linux-x86_64"]
    path = folder / "site" / part["relative_path"]
    with tarfile.open(path) as old:
        kept = [(each, old.extractfile(each)) for each in old.getmembers()]
        top = kept[0][0].name.partition("/")[0]
        with tarfile.open(path.with_suffix(".new"), "w:xz", preset=0) as new:
            for each, contents in kept:
                new.addfile(each, contents)
            for name, text in members:
                info = tarfile.TarInfo(f"{top}/{name}")
                if text.startswith("-> "):
                    info.type, info.linkname = tarfile.SYMTYPE, text.removeprefix("-> ")
                info.size = 0 if info.issym() else len(text)
                new.addfile(info, io.BytesIO(text.encode()))
    data = path.with_suffix(".new").read_bytes()
    path.write_bytes(data)
    part.update(sha256=hashlib.sha256(data).hexdigest(), size=str(len(data)))
    listing.write_text(json.dumps(listed))


def _unsafe_wheel(folder: Path) -> None:
    (folder / "dist").mkdir(exist_ok=True)
    library = (manifest.HERE / "bin" / "plain-130.so").read_bytes()
    _, data = next(iter(hostile.unsafe_wheels(library)))
    (folder / "dist" / "pkg-1.0-py3-none-any.whl").write_bytes(data)


def _wheel(folder: Path) -> str:
    return str(folder / "dist" / "pkg-1.0-py3-none-any.whl")


def _link(folder: Path, place: str, end: str = "") -> None:
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(folder.parent / OUTSIDE / end)


def _misled_index(folder: Path) -> None:
    """A journal that tells of a file outside, and a folder that is elsewhere with what looks like a run's leavings."""
    journal = folder / "index" / ".cuwheel" / "publishing" / "journal.json"
    journal.parent.mkdir(parents=True, exist_ok=True)
    names = {"projects": ["../../.."], "channels": ["../.."], "files": [f"../../{VICTIM}"]}
    journal.write_text(json.dumps(names))
    _link(folder, "index/files/elsewhere")


def _publish(folder: Path) -> Sequence[str]:
    return ("publish", "--to", str(folder / "index"), "--keep", "9", "--quiet", "--json")


def _misled_wheel(verb: str) -> Attack:
    options = {"slim": ("--for", "h100"), "graft": ("--split",)}.get(verb, ())
    return Attack(
        name=f"wheel-leads-out-{verb}",
        job="page",
        spoil=_unsafe_wheel,
        command=lambda folder: (verb, *options, _wheel(folder), "-o", str(folder / "out"), "--quiet"),
    )


_JOB = {each.name: each for each in jobs.JOBS}
ATTACKS = (
    Attack(name="slim-journal", job="slim-undo", spoil=_misled_journal, command=_JOB["slim-undo"].command),
    Attack(name="install-journal", job="install-undo", spoil=_misled_journal, command=_JOB["install-undo"].command),
    Attack(
        name="slim-folder-is-a-link",
        job="slim-environment",
        spoil=lambda folder: _link(folder, "env/.cuwheel"),
        command=_JOB["slim-environment"].command,
    ),
    Attack(
        name="lock-is-a-link",
        job="publish",
        spoil=lambda folder: _link(folder, "index/.cuwheel/publishing/lock", "planted"),
        command=_publish,
    ),
    Attack(name="publish-journal", job="publish", spoil=_misled_index, command=_publish, refused=False),
    Attack(
        name="archive-leads-out",
        job="toolchain",
        spoil=lambda folder: _archive_with(folder, *((f"{'../' * up}planted", "planted") for up in range(1, 9))),
        command=_JOB["toolchain"].command,
    ),
    Attack(
        name="archive-link-out",
        job="toolchain",
        spoil=lambda folder: _archive_with(folder, ("bin/out", f"-> {folder.parent / OUTSIDE}")),
        command=_JOB["toolchain"].command,
    ),
    Attack(
        name="archive-behind-a-link",
        job="toolchain",
        spoil=lambda folder: _archive_with(folder, ("bin/out", "-> ../lib"), ("bin/out/planted", "planted")),
        command=_JOB["toolchain"].command,
    ),
    *map(_misled_wheel, ("slim", "repair", "graft")),
    Attack(
        name="wheel-leads-out-install",
        job="install",
        spoil=_unsafe_wheel,
        command=lambda folder: jobs._install_package(folder, "pkg"),
    ),
    Attack(
        name="wheel-leads-out-publish",
        job="page",
        spoil=_unsafe_wheel,
        command=lambda folder: ("publish", _wheel(folder), "--to", str(folder / "index"), "--quiet"),
    ),
)
