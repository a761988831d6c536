"""Wheels to install, and the state of the environments that they are installed into."""

from __future__ import annotations

import importlib.metadata
import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

from cuwheel.wheel import journal_file
from cuwheel.wheel.journal_file import FOLDER
from tests.fixtures.small_wheel import digest

FIXTURES = Path(__file__).parents[1] / "fixtures" / "bin"


def wheel(
    folder: Path,
    name: str,
    version: str,
    body: str = "",
    *,
    requires: str = "",
    library: str = "",
    tag: str = "py3-none-any",
    files: dict[str, str] | None = None,
    members: dict[str, bytes] | None = None,
) -> Path:
    """`library`, and the values of `files`: fixtures. `members`: what else is in it."""
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    pure = "true" if tag.endswith("any") else "false"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/__init__.py", f"__version__ = '{version}'\n{body}\n")
        archive.writestr(f"{name}/data/more.txt", version)
        if library:
            archive.write(FIXTURES / library, f"{name}/libdemo.so")
        for path, fixture in (files or {}).items():
            archive.write(FIXTURES / fixture, path)
        for path, data in (members or {}).items():
            archive.writestr(path, data)
        wanted = f"Requires-Dist: {requires}\n" if requires else ""
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{wanted}")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: {pure}\nTag: {tag}\n")
        archive.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name}-tool = {name}:main\n")
        there = {each: archive.read(each) for each in archive.namelist()}
        rows = [f"{each},{digest(body)},{len(body)}\n" for each, body in there.items()]
        archive.writestr(f"{info}/RECORD", "".join([*rows, f"{info}/RECORD,,\n"]))
    return made


def environment_with_pip(folder: Path) -> Path:
    """Its interpreter. The pip is that of the tests, copied: the `venv` module takes seconds to install one."""
    import pip

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=600)
    (packages,) = folder.glob("lib/python*/site-packages")
    for each in ("pip", f"pip-{importlib.metadata.version('pip')}.dist-info"):
        shutil.copytree(Path(pip.__file__).parents[1] / each, packages / each)
    rows = (packages / each / "RECORD").read_text().splitlines(keepends=True)
    (packages / each / "RECORD").write_text("".join(row for row in rows if not row.startswith("..")))  # its programs
    return folder / "bin" / "python"


def state(env: Path) -> dict[str, tuple[Any, ...]]:
    """Every file of an environment: what it is, and which file it is."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(each for each in env.rglob("*") if FOLDER not in each.parts):
        status = path.lstat()
        told = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        times = (status.st_mtime_ns, status.st_ino) if path.is_file() and not path.is_symlink() else ()
        found[str(path.relative_to(env))] = (status.st_mode, told, *times)
    return found


def lost(env: Path, before: dict[str, tuple[Any, ...]]) -> list[str]:
    """Files of an environment that are neither where they were nor kept by the journal, byte for byte."""
    kept: dict[str, list[Path]] = {}
    for folder in env.glob(f"{FOLDER}/install/*"):
        for step in journal_file.read_journal(folder, env.resolve()).steps:
            kept.setdefault(step.path, []).extend(folder / part / str(step.number) for part in ("originals", "copies"))
    wanted = {path: told[1] for path, told in before.items() if isinstance(told[1], bytes)}
    return [
        path
        for path, data in wanted.items()
        if not any(each.is_file() and each.read_bytes() == data for each in (env / path, *kept.get(path, ())))
    ]


def versions(env: Path) -> set[str]:
    return {each.name.removesuffix(".dist-info") for each in env.rglob("*.dist-info")}


def sdist(folder: Path, name: str, version: str, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{name}-{version}.tar.gz"
    info = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    with tarfile.open(made, "w:gz") as archive:
        for path, text in {"PKG-INFO": info, **files}.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            data = text.encode()
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return made
