"""What people install: each distribution as sdist and wheel, the same bytes wherever and whenever: `./run dist`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import prebuild

from cuwheel.support import files, own_c
from cuwheel_core.support.wording import size

ROOT = Path(__file__).parents[1]
PROJECTS = (ROOT / "core", ROOT, ROOT / "lab")  # each needs those before it
# What keeps the versions of a checkout apart from those of an index, and what is said where one of them is missing.
_OF_A_CHECKOUT = re.compile(r"\+checkout(?:,!=[\w.+]+; os_name != '[^']*')?")
_REPOSITORY = "OWNER/cuwheel"
_MOST_WHEEL, _MOST_SDIST = 5_000_000, 9_000_000


def main(words: list[str]) -> int:
    if len(words) > 1 or (words and words[0].startswith("-")):
        print("usage: ./run dist [FOLDER]", file=sys.stderr)
        return 2
    output = Path(words[0]) if words else ROOT / "dist"
    if status := prebuild.main([]):
        return status
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output, prefix=".") as name:
        made: list[Path] = []
        problems: list[str] = []
        for number, project in enumerate(PROJECTS):
            folder = Path(name, str(number))
            sdist = _built("--sdist", _for_an_index(_built("--sdist", project, folder / "checkout")), folder)
            wheel = _built("--wheel", sdist, folder)  # as whoever has the sdist alone would make it
            made += [sdist, wheel]
            problems += [*_lacking(sdist), *_lacking(wheel)] if project == ROOT else []
            problems += [
                f"{each.name} has {size(each.stat().st_size)}, at most {size(most)} are meant"
                for each, most in ((sdist, _MOST_SDIST), (wheel, _MOST_WHEEL))
                if each.stat().st_size > most
            ]
        for problem in problems:
            print(f"error: {problem}", file=sys.stderr)
        if problems:
            return 1
        for each in made:
            target = Path(shutil.move(each, output / each.name))
            print(f"{files.sha256(target)}  {target.name}  {size(target.stat().st_size)}")
    return 0


def _built(kind: str, source: Path, folder: Path) -> Path:
    # The backend writes its version into the wheel: pinned, or the bytes would change with each of its releases.
    pins = ROOT / "requirements" / "dist.txt"
    subprocess.run(["uv", "build", "--quiet", kind, "--build-constraints", pins, "-o", folder, source], check=True)
    (made,) = folder.glob("*.tar.gz" if kind == "--sdist" else "*.whl")
    return made


def _for_an_index(sdist: Path) -> Path:
    """The sources of a checkout's sdist, with versions that an index may have and the address of the repository."""
    with tarfile.open(sdist) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian's Python 3.11.2 has none
        packed.extractall(sdist.parent)  # noqa: S202 - it was just made
    source = sdist.with_name(sdist.name.removesuffix(".tar.gz"))
    (source / "PKG-INFO").unlink()
    project = source / "pyproject.toml"
    text = _OF_A_CHECKOUT.sub("", project.read_text(encoding="utf-8"))
    # Whose repository it is: a workflow of GitHub says it.
    project.write_text(text.replace(_REPOSITORY, os.environ.get("GITHUB_REPOSITORY", _REPOSITORY)), encoding="utf-8")
    return source


def _lacking(archive: Path) -> list[str]:
    """What was compiled before and is not in it."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            names = wheel.namelist()
    else:
        with tarfile.open(archive) as sdist:
            names = sdist.getnames()
    wanted = [path for sources, _, _ in prebuild.PARTS.values() for path in (sources / own_c.PREBUILT).iterdir()]
    paths = [path.relative_to(ROOT / "src").as_posix() for path in wanted]
    return [f"{archive.name} has no {path}" for path in paths if not any(name.endswith(path) for name in names)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
