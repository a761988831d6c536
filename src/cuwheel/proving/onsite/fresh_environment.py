"""An environment in a folder of its own, made without pip."""

from __future__ import annotations

import importlib
import os
import shutil
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ..runner import variables
from .install import Place

LIBRARIES = "nvidia"  # the folder of all its packages
_SYSTEM = importlib.import_module(f"{__package__.partition('.')[0]}.support.system_calls")  # of cuwheel, or of the kit


class Environment(NamedTuple):
    python: str
    place: Place
    environ: dict[str, str]


def make(
    folder: Path,
    environ: Mapping[str, str],
    *,
    system: bool,
    passed: Iterable[str] = (),
    is_secret: Callable[[str], bool] = lambda _: False,
) -> Environment:
    """`system`: see what is installed beside the Python that runs this, its own environment's packages included.

    `passed`: variables that the checks see beside those that all of them see.
    """
    _create(folder)
    place = _place(folder)
    place.site.mkdir(parents=True, exist_ok=True)
    if system:
        # Not the option of venv: that means the Python below, and not the environment that was asked to run this.
        lines = [f"import site; site.addsitedir({str(each)!a})\n" for each in beside()]
        (place.site / "_beside.pth").write_text("".join(lines), encoding="ascii")
    return Environment(
        place.python, place, variables.clean(environ, folder, folder.parent, passed=passed, is_secret=is_secret)
    )


def _create(folder: Path) -> None:
    try:
        import venv  # noqa: PLC0415 - not every Python has it
    except ImportError:
        if os.name != "nt":
            raise OSError("this Python has no module venv: install it (on Debian python3-venv)") from None
        _copy_small_python(folder)
    else:
        venv.EnvBuilder(symlinks=os.name != "nt", with_pip=False).create(folder)


def _copy_small_python(folder: Path) -> None:
    """Python's embeddable package for Windows: a folder with everything in it, and without venv."""
    home = Path(sys.base_prefix)
    scripts = folder / "Scripts"
    scripts.mkdir(parents=True)
    shutil.copyfile(sys.executable, scripts / "python.exe")
    for each in (*home.glob("*.dll"), *home.glob("python*.zip")):  # the standard library is looked for beside it
        shutil.copyfile(each, scripts / each.name)
    (folder / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n", encoding="utf-8")


def _place(folder: Path) -> Place:
    if os.name == "nt":
        scripts = folder / "Scripts"
        return Place(folder / "Lib" / "site-packages", scripts, folder, folder / "Include", str(scripts / "python.exe"))
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        version += "t"
    packages, scripts = folder / "lib" / version / "site-packages", folder / "bin"
    return Place(packages, scripts, folder, folder / "include" / "site" / version, str(scripts / "python"))


def link_libraries(packages: Path) -> None:
    """NVIDIA's packages of the Python that runs this, where repaired wheels look for them: beside themselves.

    After the wheels: what they bring themselves comes first, and nothing is installed through a link.
    """
    place = packages / LIBRARIES
    found = next((path for each in beside() if (path := Path(each, LIBRARIES)).is_dir()), None)
    if found and not place.exists():
        _SYSTEM.link_folder(found, place)


def beside() -> list[str]:
    """The package folders of the Python that runs this; also where it was started without them (-S, -I)."""
    paths = [*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    paths += [each for each in sys.path if each.endswith(("site-packages", "dist-packages"))]
    return [each for each in dict.fromkeys(paths) if Path(each).is_dir()]
