"""What a wheel is put to: the modules that it brings, and the checks of it, of its package and of a configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.device_code.contents import Survey
from cuwheel.errors import UsageError
from cuwheel.facts.rows.services import CheckTerms, KnownCheck
from cuwheel.facts.tables import tables
from cuwheel.proving.outcomes import Check, CheckKind
from cuwheel.support import masking
from cuwheel.wheel.file import WheelFile, installed_names
from cuwheel_core.device_code import limits
from cuwheel_core.support import wording
from cuwheel_core.support.patterns import matches_any
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from cuwheel.building.tables import CheckTable, VerifyTable  # noqa: TC004 - never decoded
    from cuwheel.proving.request import VerifyRequest  # noqa: TC004 - never decoded


# The modules that a wheel brings, as far as a person would import them.

# What lies at the top of wheels by mistake, and is not meant to be imported.
_NOT_MEANT = frozenset(
    {"tests", "test", "testing", "docs", "doc", "examples", "benchmarks", "scripts", "setup", "conftest"}
)
_EXTENSION = re.compile(r"(?:\.cpython-[^./]+|\.abi3|\.cp\d[^./]*)?\.(?:so|pyd)$", re.ASCII)
_MOST = 20
_DEEPEST = 3


def modules_of_wheel(wheel: WheelFile) -> tuple[str, ...]:
    """The packages and modules at its top; inside a folder that is shared with others (nvidia/…), those below it."""
    own = wheel.info.removesuffix(".dist-info/").partition("-")[0]
    return modules_of_files(installed_names(wheel.sizes).values(), own, wheel.top_level or "")


def modules_of_files(places: Iterable[str], distribution: str, listed: str = "") -> tuple[str, ...]:
    """The same of files below site-packages. `listed`: what top_level.txt says."""
    packages: set[str] = set()
    modules: set[str] = set()
    for place in places:
        folder, _, name = place.rpartition("/")
        if name in ("__init__.py", "__init__.pyc"):
            packages.add(folder)
        elif module := _module_name(name):
            modules.add(f"{folder}/{module}".lstrip("/"))
    tops = [each for each in packages if not _inside(each, packages)]
    tops += [each for each in modules if "/" not in each and each not in packages]
    # A folder without __init__.py holds modules too, if something of ours is right in it.
    if not tops:
        tops = [each for each in modules if not _inside(each, packages)]
    shallow = min((each.count("/") for each in tops), default=0)
    names = {
        each.replace("/", ".") for each in tops if each.count("/") <= max(shallow, 1) and each.count("/") < _DEEPEST
    }
    found = sorted(name for name in names if all(part.isidentifier() for part in name.split(".")))
    named = [line.strip() for line in listed.splitlines() if line.strip()]
    if named and set(named) <= set(found):
        found = [name for name in found if name in named]
    own = normalised(distribution)
    found = [name for name in found if name not in _NOT_MEANT]
    # The one that is called like the distribution first; the private ones, which it imports itself, last.
    found.sort(key=lambda name: (normalised(name) != own, name.startswith("_"), name))
    return tuple(limits.first(found, _MOST, "modules were imported", "the rest were not tried"))


def _module_name(name: str) -> str:
    if name.endswith(".py"):
        return name.removesuffix(".py")
    match = _EXTENSION.search(name)
    # libfoo.so is for the linker or for ctypes; a module is never called so.
    return name[: match.start()] if match and not name.startswith("lib") else ""


def _inside(path: str, packages: set[str]) -> bool:
    parts = path.split("/")
    return any("/".join(parts[:count]) in packages for count in range(1, len(parts)))


class VerifyPlan(Struct, frozen=True, kw_only=True):
    """A wheel, what was asked of it, what its configuration says, and its checks."""

    request: VerifyRequest
    wheel: Path
    survey: Survey
    table: VerifyTable
    checks: tuple[Check, ...]

    @property
    def requires(self) -> tuple[str, ...]:
        return (*self.table.requires, *self.request.requires)

    @property
    def stub(self) -> bool:
        return self.request.stub or self.table.stub

    @property
    def listed(self) -> tuple[str, ...]:
        """What is installed, as it is kept: a requirement may be an address with a password in it."""
        return (str(self.wheel), *map(masking.text, self.requires))


TIMEOUT_S = 120.0
MEMORY = 8 * 10**9


def checks_for(
    table: VerifyTable, survey: Survey, *, timeout: float | None = None, cuda: str | None = None
) -> tuple[Check, ...]:
    """In the order that they are run. `timeout` in place of every other. `cuda`: that was asked for."""
    imports = table.imports
    if imports is None:
        with WheelFile(Path(survey.target)) as wheel:
            imports = modules_of_wheel(wheel)
    found = [import_check(name) for name in imports]
    if survey.distribution:
        found += [_known(row, survey, cuda) for row in _rows(survey.distribution.name)]
    found += [_configured(check, number) for number, check in enumerate(table.check, start=1)]
    return tuple(replace(each, timeout=timeout) if timeout else each for each in found)


def select_checks(checks: Sequence[Check], patterns: Sequence[str]) -> tuple[Check, ...]:
    """Those whose names fit; every pattern must mean one."""
    if not patterns:
        return tuple(checks)
    strangers = [each for each in patterns if not any(fnmatchcase(check.name, each) for check in checks)]
    if strangers:
        names = ", ".join(repr(check.name) for check in checks)
        raise UsageError(f"unknown check {' and '.join(map(repr, strangers))}", hint=f"choose from {names}")
    return tuple(check for check in checks if matches_any(check.name, patterns))


def import_check(name: str) -> Check:
    return Check(name=f"import {name}", kind="import", text=name, origin="wheel", timeout=TIMEOUT_S, memory=MEMORY)


def _rows(name: str) -> list[KnownCheck]:
    wanted = normalised(name)
    return [row for row in tables().checks.check if matches_any(wanted, row.packages)]


def _known(row: KnownCheck, survey: Survey, cuda: str | None) -> Check:
    """A wheel for CUDA alone has nothing that could be tried on the processor."""
    alone = bool(row.cpu_library) and not any(fnmatchcase(each.path, row.cpu_library) for each in survey.libraries)
    expect = row.expect
    if cuda and row.expect_cuda:
        major, *minor = cuda.split(".")
        release = f"{major}.{minor[0]}," if minor else f"{major}."
        expect = tuple(each.replace("{cuda}", release) for each in row.expect_cuda)
    return Check(
        name=row.name,
        kind="command" if row.command is not None else "python",
        text=row.command if row.command is not None else row.python or "",
        origin="known",
        **{**_terms(row), "expect": expect, "gpu": row.gpu or alone},
        program=row.program,
        timeout=row.timeout or TIMEOUT_S,
        memory=MEMORY,
    )


def _terms(check: CheckTerms) -> dict[str, Any]:
    return {name: getattr(check, name) for name in CheckTerms.__struct_fields__}


def _configured(check: CheckTable, number: int) -> Check:
    kind: CheckKind = "import" if check.import_ is not None else "command" if check.command is not None else "python"
    text = check.import_ or check.command or check.python or ""
    first = text.strip().partition("\n")[0]
    return Check(
        **{**_terms(check), "gpu": check.gpu or bool(check.capabilities)},
        name=check.name or (f"import {text}" if kind == "import" else first[:60]) or f"check {number}",
        kind=kind,
        text=text,
        origin="configuration",
        timeout=check.timeout,
        memory=wording.read_size(check.memory) or MEMORY,
    )
