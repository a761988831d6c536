"""An environment in a folder of its own, made without pip."""

from __future__ import annotations

import site
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ..runner import variables
from .install import Place

LIBRARIES = "nvidia"  # the folder of all its packages


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
    import venv  # noqa: PLC0415 - the small Python for Windows has none, and runs checks that need none

    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    python = str(folder / "bin" / "python")
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        version += "t"
    packages = folder / "lib" / version / "site-packages"
    packages.mkdir(parents=True, exist_ok=True)
    if system:
        # Not the option of venv: that means the Python below, and not the environment that was asked to run this.
        lines = [f"import site; site.addsitedir({str(each)!r})\n" for each in beside()]
        (packages / "_beside.pth").write_text("".join(lines))
    place = Place(packages, folder / "bin", folder, folder / "include" / "site" / version, python)
    return Environment(
        python, place, variables.clean(environ, folder, folder.parent, passed=passed, is_secret=is_secret)
    )


def link_libraries(packages: Path) -> None:
    """NVIDIA's packages of the Python that runs this, where repaired wheels look for them: beside themselves.

    After the wheels: what they bring themselves comes first, and nothing is installed through a link.
    """
    place = packages / LIBRARIES
    found = next((path for each in beside() if (path := Path(each, LIBRARIES)).is_dir()), None)
    if found and not place.exists():
        place.symlink_to(found, target_is_directory=True)


def beside() -> list[str]:
    """The package folders of the Python that runs this; also where it was started without them (-S, -I)."""
    paths = [*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    paths += [each for each in sys.path if each.endswith(("site-packages", "dist-packages"))]
    return [each for each in dict.fromkeys(paths) if Path(each).is_dir()]
