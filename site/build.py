"""Make the site: the page that runs cuwheel in a browser, and the documentation. `./run site` calls it.

Pyodide and the generator of the documentation come from their package indexes; nothing of them is part of this
repository.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
ROOT = HERE.parent
VERSION = "314.0.7"  # of Pyodide: Python 3.14
PARTS = ROOT / "build" / f"site-parts-{VERSION}"
# What the page loads of it: the rest is for consoles and compilers.
PYODIDE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
# What reading and judging need, as Python source: what they have in C they have in Python too, only slower.
PURE = ("jinja2", "markupsafe", "packaging", "tomli")
COMPILED = "msgspec"  # has a wheel for Pyodide on the index
OWN = ("index.html", "app.js", "app.css", "worker.js", "service_worker.js")
SHARED = ("page.css", "nvidia_smi.js")
LEFT_OUT = (".so", ".pyc", ".pyd", ".c", ".h")
CATALOGUE = ROOT / "src" / "cuwheel" / "delivery" / "catalogue"  # for `find`, which needs a network


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the site.")
    parser.add_argument("output", type=Path, nargs="?", default=ROOT / "build" / "site", metavar="FOLDER")
    parser.add_argument(
        "--parts", type=Path, default=PARTS, help="folder that keeps what was fetched and made, for the next time"
    )
    parser.add_argument("--no-docs", action="store_true", help="the page alone, for a try")
    args = parser.parse_args()
    beside = args.output.with_name(args.output.name + ".new")
    shutil.rmtree(beside, ignore_errors=True)
    if not (args.parts / "pyodide").exists():
        fetch(args.parts)
    application(beside, args.parts)
    if not args.no_docs:
        import documentation  # noqa: PLC0415 - its generator is installed apart

        documentation.build(beside / "docs", args.parts / "documentation")
    finish(beside)
    shutil.rmtree(args.output, ignore_errors=True)
    beside.rename(args.output)
    print(f"site: {args.output}\nlook at it: python3 -m http.server --directory {args.output}")  # noqa: T201
    return 0


def fetch(folder: Path, pip: Sequence[str] = (sys.executable, "-m", "pip")) -> None:
    """Pyodide, and the wheel that is compiled for it. npm and pip check what they bring."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("error: npm is not installed, and Pyodide comes from there\nhint: apt install npm")
    folder.mkdir(parents=True, exist_ok=True)
    command = [npm, "pack", "--silent", "--pack-destination", str(folder), f"pyodide@{VERSION}"]
    subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
    packed = next(folder.glob("*.tgz"))
    with tarfile.open(packed) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian's Python 3.11.2 has none
        archive.extractall(folder)  # noqa: S202 - npm has checked it
    packed.unlink()
    info = json.loads((folder / "package" / "pyodide-lock.json").read_text())["info"]
    version = ".".join(info["python"].split(".")[:2])
    platform = f"pyemscripten_{info['abi_version']}_{info['arch']}"
    command = [*pip, "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    subprocess.run([*command, "--platform", platform, "--python-version", version, COMPILED], check=True)
    (folder / "package").rename(folder / "pyodide")


def application(folder: Path, parts: Path) -> None:
    (folder / "pyodide").mkdir(parents=True)
    for name in PYODIDE:
        shutil.copyfile(parts / "pyodide" / name, folder / "pyodide" / name)
    for name in SHARED:
        shutil.copyfile(ROOT / "src" / "cuwheel" / "support" / "templates" / name, folder / name)
    for name in OWN:
        shutil.copyfile(HERE / name, folder / name)
    python = folder / "python"
    python.mkdir()
    _sources(python / "cuwheel.zip", "cuwheel_core", "cuwheel")
    _sources(python / "packages.zip", *PURE)
    for wheel in parts.glob("*.whl"):
        shutil.copyfile(wheel, python / wheel.name)
    archives = [{"name": each.name, "bytes": each.stat().st_size} for each in sorted(python.iterdir())]
    sizes = sum((folder / "pyodide" / name).stat().st_size for name in PYODIDE)
    (python / "packages.json").write_text(json.dumps({"pyodide": sizes, "packages": archives}))


def _sources(path: Path, *packages: str) -> None:
    """Their modules and data, without what is compiled for another machine."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in packages:
            spec = find_spec(name)
            if spec is None or spec.origin is None:
                sys.exit(f"error: {name} is not installed\nhint: ./run setup")
            package = Path(spec.origin).parent
            for each in sorted(package.rglob("*")):
                if each.is_file() and each.suffix not in LEFT_OUT and CATALOGUE not in each.parents:
                    archive.write(each, Path(name) / each.relative_to(package))


def finish(folder: Path) -> None:
    """The list that the service worker keeps: the page then works without a network."""
    kept = sorted(each for each in folder.rglob("*") if each.is_file() and folder / "docs" not in each.parents)
    digest = hashlib.sha256()
    for each in kept:
        digest.update(each.read_bytes())
    (folder / "files.json").write_text(json.dumps([each.relative_to(folder).as_posix() for each in kept]))
    worker = folder / "service_worker.js"
    worker.write_text(worker.read_text().replace("MADE_FROM", f"cuwheel-{digest.hexdigest()[:16]}"))


if __name__ == "__main__":
    sys.exit(main())
