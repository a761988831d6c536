"""Make the site: the page that runs cuwheel in a browser, and the documentation.

    python site/build.py OUTPUT PYODIDE

PYODIDE is the unpacked npm package of that name. Nothing of it is part of this repository.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
# What the page loads of Pyodide: the rest is for consoles and compilers.
PYODIDE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
# What reading and judging need. As Python source: what is faster in C has a slower way in Python too.
PURE = ("jinja2", "markupsafe", "packaging", "tomli")
COMPILED = "msgspec"  # has a wheel for Pyodide on the index
OWN = ("index.html", "app.js", "app.css", "worker.js", "service_worker.js")
SHARED = ("page.css", "nvidia_smi.js")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("pyodide", type=Path)
    args = parser.parse_args()
    beside = args.output.with_name(args.output.name + ".new")
    shutil.rmtree(beside, ignore_errors=True)
    application(beside, args.pyodide)
    shutil.rmtree(args.output, ignore_errors=True)
    beside.rename(args.output)
    return 0


def application(folder: Path, pyodide: Path) -> None:
    (folder / "pyodide").mkdir(parents=True)
    for name in PYODIDE:
        shutil.copyfile(pyodide / name, folder / "pyodide" / name)
    for name in SHARED:
        shutil.copyfile(ROOT / "src" / "cuwheel" / "templates" / name, folder / name)
    for name in OWN:
        shutil.copyfile(HERE / name, folder / name)
    python = folder / "python"
    python.mkdir()
    _sources(python / "cuwheel.zip", "cuwheel")
    _sources(python / "packages.zip", *PURE)
    _wheel_for_pyodide(python, pyodide)
    archives = sorted(each.name for each in python.iterdir())
    (python / "packages.json").write_text(json.dumps(archives))
    _list_for_cache(folder)


def _sources(path: Path, *packages: str) -> None:
    """Their modules and data, without what is compiled for another machine."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in packages:
            spec = find_spec(name)
            if spec is None or spec.origin is None:
                sys.exit(f"error: {name} is not installed\nhint: ./run setup")
            package = Path(spec.origin).parent
            for each in sorted(package.rglob("*")):
                if each.is_file() and each.suffix not in (".so", ".pyc", ".pyd", ".c", ".h") and each.name != "catalogue":
                    archive.write(each, Path(name) / each.relative_to(package))


def _wheel_for_pyodide(folder: Path, pyodide: Path) -> None:
    info = json.loads((pyodide / "pyodide-lock.json").read_text())["info"]
    version = ".".join(info["python"].split(".")[:2])
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder)),
        *("--platform", f"pyemscripten_{info['abi_version']}_{info['arch']}", "--python-version", version, COMPILED),
    ]
    subprocess.run(command, check=True)


def _list_for_cache(folder: Path) -> None:
    """The service worker keeps these: the page then works without a network."""
    kept = sorted(each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file())
    (folder / "files.json").write_text(json.dumps(kept))


if __name__ == "__main__":
    sys.exit(main())
