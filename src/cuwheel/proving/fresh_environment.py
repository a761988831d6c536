"""A fresh environment for a wheel: made, filled, and the variables that its checks see."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.network import venvs
from cuwheel.proving import stub
from cuwheel.proving.runner import variables as led
from cuwheel.support import masking
from cuwheel.support.finding import Finding
from cuwheel.wheel import metadata
from cuwheel.wheel.file import unlabelled
from cuwheel.wheel.metadata import distributions, installed_files, site_packages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cuwheel.network.venvs import Python
    from cuwheel.proving.trial import Trial

_PATHS = "LD_LIBRARY_PATH"
_CPUS = {"amd64": "x86_64", "arm64": "aarch64"}
_SHOWN = 5
_NOT_OF_PACKAGE = re.compile(r"^(\.\./|/)|\.dist-info/|__pycache__")


class Made(Struct, frozen=True, kw_only=True):
    """`interpreter`: of the environment at `folder`."""

    folder: Path
    interpreter: Path

    @property
    def site_packages(self) -> tuple[Path, ...]:
        return site_packages(self.folder)


def make(folder: Path, python: Python, trial: Trial, environ: Mapping[str, str]) -> Made:
    """Raises what the installer says where it cannot. It may see all variables: indexes have logins."""
    interpreter = venvs.make(folder, python)
    request = trial.request
    lines: list[str | Path] = [unlabelled(trial.wheel, folder.with_name("wheel")), *trial.requires]
    for path in request.requirements:
        lines += ["--requirement", path]
    # With an index of one's own at hand (`find_links`), being offline means that one alone.
    venvs.install(
        interpreter,
        lines,
        find_links=request.find_links,
        offline=request.offline,
        sources=request.sources,
        env=led.plain(environ),
    )
    return Made(folder=folder, interpreter=interpreter)


def variables(
    made: Made, environ: Mapping[str, str], scratch: Path, *, stub_folder: Path | None, passed: Sequence[str]
) -> dict[str, str]:
    environment = led.clean(environ, made.folder, scratch, passed=passed, is_secret=masking.is_secret)
    if stub_folder is not None and sys.platform != "win32":
        environment[_PATHS] = os.pathsep.join(filter(None, [str(stub_folder), environ.get(_PATHS, "")]))
    return environment


def packages(made: Made) -> tuple[str, ...]:
    """All that is installed, as name==version."""
    found = (each for folder in made.site_packages for each in distributions(folder))
    return tuple(sorted({f"{each.name}=={each.version}" for each in found}))


def put_stub(made: Made, folder: Path) -> Path:
    """A stub of libcuda with the functions that the libraries of the environment want; its folder."""
    machine = platform.machine().lower()
    libraries = (path for site in made.site_packages for path in _libraries(site))
    windows = sys.platform == "win32"
    stub.write(folder, stub.names_wanted(libraries), _CPUS.get(machine, machine), windows=windows)
    if windows:  # no variable names folders for it
        line = f"import os; os.add_dll_directory({str(folder)!r})\n"
        (made.site_packages[0] / "_cuwheel_stub.pth").write_text(line, encoding="utf-8")
    return folder


def _libraries(site: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(site):
        for name in names:
            if name.endswith((".so", ".dll", ".pyd")) or ".so." in name:
                yield Path(folder, name)


def conflicts(made: Made, environ: Mapping[str, str]) -> Iterator[Finding]:
    """What `pip check` says. It runs the environment's interpreter, and what packages have put into its start."""
    if found := venvs.conflicts(made.interpreter, env=environ):
        yield Finding(
            rule="requirements-broken",
            severity="error",
            message="pip check: requirements of installed packages are not met",
            evidence=tuple(found[:_SHOWN]),
            fix="correct the requirements in the metadata, or what is installed beside it (--with)",
        )


def shared_files(made: Made, name: str) -> Iterator[Finding]:
    """Files of the wheel that another distribution of the environment brings too: one overwrites the other."""
    own: set[str] = set()
    others: dict[str, str] = {}
    for folder in made.site_packages:
        for distribution, _, info in distributions(folder):
            files = {each for each in installed_files(info) if not _NOT_OF_PACKAGE.search(each)}
            if distribution == metadata.normalised(name):
                own |= files
            else:
                others |= dict.fromkeys(files, distribution)
    both = sorted(own & others.keys())
    if both:
        yield Finding(
            rule="files-of-two-distributions",
            severity="warning",
            message=f"{len(both)} of its files are also in {', '.join(sorted({others[each] for each in both}))}",
            evidence=tuple(both[:_SHOWN]),
            fix="only one package should have them: uninstalling one breaks the other",
        )
