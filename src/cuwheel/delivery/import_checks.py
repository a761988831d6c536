"""Whether what was installed can be imported: in processes of their own, as `verify` does it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.proving import checks, installation, libraries
from cuwheel.proving.runner import checks as runner
from cuwheel.proving.runner import launch, variables
from cuwheel.support import log, masking, process
from cuwheel.wheel import metadata
from cuwheel.wheel.metadata import distributions, installed_files, normalised, site_packages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cuwheel.proving.outcomes import Result

_ASK_S = 120.0
_GOOD = ("passed", "skipped")


def run_all(
    prefix: Path, interpreter: Path, names: Sequence[str], settings: Mapping[str, str], *, driver: bool
) -> tuple[Result, ...]:
    """`settings`: variables that the packages need.

    `driver`: without one, an import that fails for want of it proves nothing.
    """
    found = [each for name in names for each in _modules(prefix, name)]
    return run_modules(prefix, interpreter, found, settings, driver=driver)


def run_modules(
    prefix: Path, interpreter: Path, names: Sequence[str], settings: Mapping[str, str], *, driver: bool
) -> tuple[Result, ...]:
    """The same of modules by their names."""
    found = []
    with tempfile.TemporaryDirectory(prefix="cuwheel-") as folder:
        environ = variables.clean(os.environ, prefix, Path(folder), is_secret=masking.is_secret)
        environ |= settings
        environ["PYTHONDONTWRITEBYTECODE"] = "1"  # what is put back, is put back as it was
        cut = launch.can_cut()
        for number, module in enumerate(dict.fromkeys(names)):
            check = checks.import_check(module)
            with log.progress(check.name):
                report = runner.run(
                    check.as_dict(),
                    str(interpreter),
                    environ,
                    Path(folder, f"run-{number}"),
                    cut=cut,
                    hide=lambda text: masking.known(text, os.environ),
                )
            result = installation.as_result(report, check)
            found.append(result if driver else libraries.without_driver(result))
    return tuple(found)


def modules_of_editable(prefix: Path, interpreter: Path, name: str) -> tuple[str, ...]:
    """Its files are elsewhere, so the environment's Python is asked: what top_level.txt names, else the module that is
    called like the distribution.
    """
    listed = [
        metadata.read_info_file(each.info, "top_level.txt").split()
        for folder in site_packages(prefix)
        for each in distributions(folder)
        if each.name == normalised(name)
    ]
    wanted = (listed[0] if listed else []) or [normalised(name).replace("-", "_")]
    question = "import importlib.util, sys; print(*(n for n in sys.argv[1:] if importlib.util.find_spec(n)))"
    done = process.run([interpreter, "-I", "-c", question, *wanted], timeout=_ASK_S, check=False)
    return tuple(done.stdout.split())


def failed(results: tuple[Result, ...]) -> tuple[Result, ...]:
    return tuple(each for each in results if each.outcome not in _GOOD)


def _modules(prefix: Path, name: str) -> tuple[str, ...]:
    for folder in site_packages(prefix):
        for each in distributions(folder):
            if each.name == normalised(name):
                own = (path for path in installed_files(each.info) if not path.startswith(("../", "/")))
                return checks.modules_of_files(own, each.name, metadata.read_info_file(each.info, "top_level.txt"))
    return ()
