"""What is written beside the wheels: `SHA256SUMS`, the page, and `build.json`, which is the answer itself."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.errors import UnreadableError
from cuwheel.report import html
from cuwheel.report.answer import to_json
from cuwheel.support import files

if TYPE_CHECKING:
    from cuwheel.report.build import Build

_LINE = re.compile(r"([0-9a-f]{64})  ([^/\0]+\.whl)", re.ASCII)
SUMS, PAGE, ANSWER = "SHA256SUMS", "build.html", "build.json"


def write(answer: Build, folder: Path) -> Build:
    """Each beside, then renamed; `build.json` last, because it names the others. Returns what it says."""
    sums = _sums(answer, folder)
    names = [*([SUMS] if sums else []), PAGE, ANSWER]
    complete = replace(answer, written=tuple(str(folder / name) for name in names))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnreadableError.from_os(error, folder) from error
    if sums:
        files.write(folder / SUMS, sums)
    html.save(complete, folder / PAGE)
    files.write(folder / ANSWER, to_json(complete))
    return complete


def _sums(answer: Build, folder: Path) -> str:
    """As `sha256sum --check` reads it, from within the folder: every wheel once, by name.

    What an earlier build wrote of wheels that are still there stays: a folder may be filled by several.
    """
    wheels = _earlier(folder)
    single = [job.wheel for job in answer.jobs if job.outcome != "refused"] if not answer.merged else []
    for wheel in (*single, *(each.wheel for each in answer.merged)):
        if wheel and wheel.sha256:
            wheels[_from(folder, wheel.path)] = wheel.sha256
    for made in answer.variants:
        wheels |= {_from(folder, each.path): each.sha256 for each in made.wheels}
        wheels |= {_from(folder, each): files.sha256(Path(each)) for each in made.plain}
    return "".join(f"{wheels[name]}  {name}\n" for name in sorted(wheels))


def _earlier(folder: Path) -> dict[str, str]:
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    matches = filter(None, map(_LINE.fullmatch, lines))
    return {match[2]: match[1] for match in matches if (folder / match[2]).is_file()}


def _from(folder: Path, path: str) -> str:
    """As it is called from there; in full on another drive of Windows."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:
        return path
