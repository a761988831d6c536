"""Names that the tables know, as options give them: GPUs, machines, architectures, parts of toolkits.

What a name means is decided by the stage that uses it. Here it is only asked, early, so that every bad name is reported
with its option and no work is begun.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.cli import option_values, places
from cuwheel.errors import CuwheelError, NewerSchemaError, ToolError, UnsafeWheelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_GPUS = "cuwheel gpus lists the GPUs"
_LONGEST_NEED = 200


def _asked(question: Callable[[], object], hint: str = "") -> None:
    """Whatever is wrong with the name is wrong with the command line. A file of a newer cuwheel says so itself."""
    try:
        question()
    except (UsageError, NewerSchemaError, UnsafeWheelError):
        raise
    except CuwheelError as error:
        raise UsageError(error.message, error.hint or hint) from error


def machines(*words: str) -> Callable[[str], str]:
    """GPUs, capabilities, profiles, fleet files and `this`, with commas. `words`: others with a meaning (`all`)."""

    def parse(text: str) -> str:
        from cuwheel.machine.named import THIS

        problems = []
        for word in [text] if places.exists(text) else option_values.parts(text):
            try:
                if word.lower() not in (THIS, *words):
                    _machine(word)
            except UsageError as error:
                problems.append(error)
        if problems:
            raise option_values.gathered(problems)
        return text

    return parse


def _machine(word: str) -> None:
    if word.endswith((".json", ".toml")):
        places.file(word)
    from cuwheel.machine.named import machines_named

    _capability(word)
    _asked(lambda: machines_named([word]), _GPUS)


def _capability(text: str) -> None:
    """A number that a person types is one that GPUs have: `12.8` is a CUDA version, and no GPU."""
    from cuwheel.facts import architectures
    from cuwheel.facts.arch import Capability, looks_like_arch

    if looks_like_arch(text):
        _asked(lambda: architectures.find_architecture(Capability.parse(text)), _GPUS)


def gpu(text: str) -> str:
    from cuwheel.machine import fleet

    _capability(text)
    _asked(lambda: fleet.from_gpu(text), _GPUS)
    return text


def profile(text: str) -> Path:
    """A file of `cuwheel doctor --save`."""
    from cuwheel.machine import profile as profiles

    try:
        path = places.file(text)
    except UsageError as error:
        raise UsageError(error.message, hint="write one with: cuwheel doctor --save FILE") from None
    _asked(lambda: profiles.load(path))
    return path


def need(text: str) -> str:
    from cuwheel.verdicts import prerequisites

    if len(text) > _LONGEST_NEED:
        raise option_values.wrong(text, "of the form NAME or NAME>=VERSION")
    prerequisites.parse([text])
    return text


def component(text: str) -> str:
    """Of a toolkit: cublas, cudnn, or a group of them."""
    from cuwheel.facts import toolkits

    _asked(lambda: toolkits.find_components(text), "docs/toolchains.md lists them")
    return text


def provider(text: str) -> str:
    from cuwheel.toolchains import providers

    if text not in providers.ORDER:
        raise UsageError(
            f"unknown provider {option_values.shortened(text)!r}: choose from {', '.join(providers.ORDER)}"
        )
    return text


def allowed(text: str) -> str:
    """An architecture that a wheel may have beside those of the plan."""
    from cuwheel.building import tables

    if not tables.may_be_allowed(text):
        raise option_values.wrong(text, "an architecture such as sm_75, compute_* or library.so:sm_75")
    return text


def machine_code(text: str) -> str:
    """An architecture to compile for, by its full name."""
    from cuwheel.errors import UnknownNameError
    from cuwheel.facts import architectures
    from cuwheel.facts.arch import Arch

    try:
        arch = Arch.parse(text) if text.startswith("sm_") else None
        if arch:
            architectures.find_architecture(arch.capability)
    except UnknownNameError:
        arch = None
    if arch is None:
        raise option_values.wrong(text, "an architecture such as sm_87")
    return str(arch)


def policy(text: str) -> str:
    """Of auditwheel, for any of the processors that wheels with CUDA are made for."""
    from cuwheel.changes.repair import policies

    if text == "auto":
        return text
    problems: list[UsageError | ToolError] = []
    for cpu in option_values.CPUS:
        try:
            policies.find(text, cpu)
        except (UsageError, ToolError) as error:  # auditwheel is for Linux alone
            problems.append(error)
        else:
            return text
    raise UsageError(option_values.shortened(problems[0].message), problems[0].hint)


def binary(text: str) -> str:
    """A wheel, library or folder that is there, `name==version`, or the name of what is installed."""
    from cuwheel.device_code import source, target

    path = Path(text)
    if target.is_pinned(text) or places.exists(text):
        return text
    if len(path.parts) != 1 or path.suffix in source.SUFFIXES:
        raise UsageError(f"{option_values.shortened(text)}: no such file or folder")
    _asked(lambda: source.installed_info(text))
    return text


def pin(text: str) -> str:
    """A place for settings: `activate`, `env-file=PATH` and so on."""
    from cuwheel.delivery import pin_files

    pin_files.place(text)
    return text


def fleet(text: str) -> Path:
    """A fleet file that can be read."""
    from cuwheel.machine.fleet import read_fleet_file

    path = places.file(text)
    _asked(lambda: read_fleet_file(path))
    return path
