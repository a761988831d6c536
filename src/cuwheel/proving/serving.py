"""Does the wheel have what the CUDA asked for needs: a library to load for it, or libraries of its major?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.errors import UsageError
from cuwheel.facts import packages, versions
from cuwheel.machine.fleet import Machine
from cuwheel.support.finding import Finding
from cuwheel.verdicts import drivers
from cuwheel.verdicts.loading import loading, profile_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.device_code.libraries import Survey

_VERSION = re.compile(r"\d{1,3}(\.\d{1,3}){0,2}", re.ASCII)
_FIX = "take a release that has it, or build one for this CUDA: cuwheel build --cuda"


def version(text: str | None) -> str | None:
    """As it was asked for, if it is one."""
    if text is not None and not _VERSION.fullmatch(text):
        raise UsageError(f"{text!r} is not a CUDA version", hint="such as --cuda 12.8")
    return text


def examine(survey: Survey, cuda: str) -> Iterator[Finding]:
    """Where a package has a library for each CUDA, the one that it would load; else the majors of all its libraries."""
    profile = profile_of(survey)
    if profile and profile.loads == "one":
        there = sorted(filter(None, (packages.made_for(profile, each.path) for each in survey.libraries)))
        found = loading(survey, Machine(name="any", capability=None, torch_cuda=cuda, jax_cuda=cuda))
        if found.missing or not there:
            have = (
                f"those in it are for CUDA {', '.join(sorted(set(there), key=versions.key))}"
                if there
                else "none at all"
            )
            yield Finding(
                rule="no-library-for-cuda",
                severity="error",
                message=f"it has no library for CUDA {cuda}: {have}",
                fix=_FIX,
            )
        return
    majors = {each.path: drivers.cuda_major(each) for each in survey.libraries}
    known = {path: major for path, major in majors.items() if major is not None}
    has = sorted(set(known.values()))
    if has and versions.major(cuda) not in has:
        yield Finding(
            rule="no-library-for-cuda",
            severity="error",
            message=f"its libraries are for CUDA {', '.join(map(str, has))}, and none for {cuda}",
            evidence=tuple(f"{path}: CUDA {major}" for path, major in list(known.items())[:5]),
            fix=_FIX,
        )
