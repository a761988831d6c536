"""Do the libraries of the wheel load in its environment: asked of the loader, in a process of their own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.facts import packages
from cuwheel.proving.outcomes import Check, Result
from cuwheel.support.finding import finding
from cuwheel.verdicts.loading import loading
from cuwheel.wheel.file import installed_names
from cuwheel_core.device_code import limits
from cuwheel_core.facts import cuda_libraries
from cuwheel_core.support.finding import Finding

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.machine.fleet import Machine

LIBRARIES_CHECK = "libraries load"
_MARK = "cuwheel-library "
# After the imports: packages load what theirs need first, by their own ways. What failed is said again at the end,
# which is kept however much was printed.
_SNIPPET = """\
import ctypes, importlib, json, os, sys
for module in json.loads({modules!r}):
    try:
        importlib.import_module(module)
    except Exception:
        pass
failed = []
for path in json.loads({libraries!r}):
    print("\\n" + {mark!r} + json.dumps([path, None]), flush=True)
    there = [place for place in (os.path.join(each, path) for each in sys.path) if os.path.exists(place)]
    try:
        ctypes.CDLL(there[0] if there else path)
        problem = ""
    except OSError as error:
        problem = str(error)
    print("\\n" + {mark!r} + json.dumps([path, problem]), flush=True)
    if problem:
        failed.append([path, problem])
for each in failed[-40:]:
    print("\\n" + {mark!r} + json.dumps(each), flush=True)
"""
_LINE = re.compile(rf"^{_MARK}(\[.*\])$", re.MULTILINE)
_EXTENSION = re.compile(r"\.(?:cpython-[^./]+|abi3|cp\d[^./]*)\.(?:so|pyd)$", re.ASCII)
_NOT_FOUND = re.compile(r"([\w.+-]+): cannot open shared object file", re.ASCII)
_NOT_LOADED = ("DLL load failed", "Could not find module")  # Python's words on Windows
_MOST = 500


class LoadAttempt(Struct, frozen=True, kw_only=True):
    """`problem`: what the loader said; nothing where it loaded, None where the process ended in it."""

    path: str
    problem: str | None

    @property
    def missing(self) -> str:
        """The library that was not found, if that is what is wrong."""
        match = _NOT_FOUND.match(self.problem or "")
        return match[1] if match else ""

    @property
    def wants_driver(self) -> bool:
        return self.missing == cuda_libraries.DRIVER_LIBRARY


def loading_check(
    survey: Survey, machine: Machine, imports: Sequence[str], *, timeout: float, memory: int
) -> tuple[Check | None, str]:
    """Loads each library that is loaded on this machine for certain; or why there is nothing to load."""
    if not survey.libraries:
        return None, ""
    found = loading(survey, machine)
    always = [path for path in found.always if path not in found.optional]
    places = installed_names(always)
    if machine.os == "windows":
        paths = [place for place in places.values() if place.lower().endswith((".dll", ".pyd"))]
    else:
        paths = [place for place in places.values() if place.endswith(".so") or ".so." in place]
    if found.candidates:
        return None, f"which library it loads depends on the CUDA of {found.follows}, which is not installed here"
    if found.missing:
        return None, f"it has no library to load: {found.missing}"
    if not paths:
        return None, ""
    needed = {soname for each in survey.libraries if each.path in places for soname in each.needed}
    frameworks = sorted({name for soname in needed if (name := packages.framework_of(soname))})
    tried = limits.first(paths, _MOST, "libraries are loaded", "the rest were not tried")
    text = _SNIPPET.format(modules=json.dumps([*imports, *frameworks]), libraries=json.dumps(tried), mark=_MARK)
    return Check(name=LIBRARIES_CHECK, kind="python", text=text, origin="wheel", timeout=timeout, memory=memory), ""


def load_attempts(result: Result) -> tuple[LoadAttempt, ...]:
    """What the loader said of each."""
    by_path: dict[str, LoadAttempt] = {}
    for line in _LINE.findall(result.output):
        try:
            path, problem = json.loads(line)
        except (ValueError, TypeError, RecursionError):
            continue
        if isinstance(path, str) and (problem is None or isinstance(problem, str)):
            by_path[path] = LoadAttempt(path=path, problem=problem)
    return tuple(by_path.values())


class LoadingContext(Struct, frozen=True, kw_only=True):
    """What the results are judged by. `foreseen`: why libraries would not load here, by their paths.

    `driver`: there is one, or a stub of its library. `gpu`: there is one. `needed`: what each Windows library needs, by
    its path: the loader there does not tell what it did not find.
    """

    foreseen: Mapping[str, Sequence[Finding]]
    driver: bool
    gpu: bool
    needed: Mapping[str, Sequence[str]] = {}

    @property
    def wants_nvcuda(self) -> bool:
        return any(cuda_libraries.DRIVER_DLL in names for names in self.needed.values())

    def waits(self, each: LoadAttempt) -> bool:
        """Whether only the driver is missing."""
        wants = each.wants_driver or cuda_libraries.DRIVER_DLL in self.needed.get(each.path, ())
        return wants and not self.driver

    def is_grave(self, each: LoadAttempt) -> bool:
        """What a package opens by itself may fail, unless the rules say that it will.

        So may a module that wants a part of CUDA, where there is no GPU to use it with.
        """
        missing = [each.missing] if each.missing else self.needed.get(each.path, ())
        if not self.gpu and any(map(_brings, missing)):
            return False
        return bool(_EXTENSION.search(each.path) or self.foreseen.get(each.path))


def judge_loading(result: Result, context: LoadingContext) -> Result:
    found = load_attempts(result)
    shown = replace(result, output=_LINE.sub("", result.output).strip("\n"))
    if not result.good:
        inside = [each.path for each in found if each.problem is None]
        return replace(shown, problem=f"{result.problem}, in loading {inside[0]}") if inside else shown
    failed = [each for each in found if each.problem and not context.waits(each)]
    if grave := [each for each in failed if context.is_grave(each)]:
        return replace(shown, outcome="failed", problem="; ".join(str(each.problem) for each in grave[:3]))
    if found and all(context.waits(each) for each in found):
        name = cuda_libraries.DRIVER_DLL if context.wants_nvcuda else cuda_libraries.DRIVER_LIBRARY
        problem = f"{name} comes with the driver, which is not installed here (--stub provides a stand-in)"
        return replace(shown, outcome="skipped", problem=problem)
    return replace(shown, problem=f"but for {len(failed)} of {len(found)}: see below") if failed else shown


def hint_at_driver(result: Result, *, wants_nvcuda: bool = False) -> Result:
    """An import that wants the driver, where there is none: what to do about it."""
    if result.outcome == "failed" and f"{cuda_libraries.DRIVER_LIBRARY}: cannot open" in result.problem:
        return replace(result, problem=f"{result.problem} (it comes with the driver; --stub provides a stand-in)")
    if result.outcome == "failed" and wants_nvcuda and any(each in result.problem for each in _NOT_LOADED):
        words = f"the wheel needs {cuda_libraries.DRIVER_DLL}, which comes with the driver; --stub provides a stand-in"
        return replace(result, problem=f"{result.problem} ({words})")
    return result


def needed_on_windows(survey: Survey) -> dict[str, tuple[str, ...]]:
    """What each of its Windows libraries needs, by its path."""
    return {each.path: tuple(name.lower() for name in each.needed) for each in survey.libraries if each.format == "pe"}


def loading_findings(attempts: Sequence[LoadAttempt], context: LoadingContext) -> Iterator[Finding]:
    """What did not load, and perhaps is never asked to here."""
    failed = [each for each in attempts if each.problem and not context.waits(each)]
    slight = [each for each in failed if not context.is_grave(each)]
    if slight:
        bringing = sorted({name for each in slight if each.missing and (name := _brings(each.missing))})
        yield finding(
            "library-does-not-load",
            "libraries of the wheel do not load in its environment, unless the package handles it",
            evidence=tuple(f"{each.path}: {each.problem}" for each in slight[:5]),
            fix=f"install what it needs too: {' '.join(f'--with {name}' for name in bringing)}"
            if bringing
            else "cuwheel repair WHEEL   (adds what they need, or a search path to it)",
        )


def _brings(soname: str) -> str:
    """The package of NVIDIA's that brings a library; nothing for one that is not theirs."""
    found = cuda_libraries.known_library(soname)
    package = found.package_for(None) if found else None
    return package.name if package else ""
