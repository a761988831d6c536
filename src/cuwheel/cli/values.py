"""What the values of options may be: one function for each kind, which says in a sentence what is wrong with a text.

A kind that one verb alone has stands with its options.

They raise UsageError; the parser adds the option's name and goes on, so that all bad values are reported at once. What
a name means is decided by the stage that uses it: here it is only asked, early, before any work is begun.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cuwheel.cli import places
from cuwheel.cli.places import shortened
from cuwheel.errors import NewerSchemaError, UsageError
from cuwheel.support import limited
from cuwheel_core.errors import CuwheelError, UnknownNameError, UnsafeWheelError
from cuwheel_core.support import bounded
from cuwheel_core.wheel.tags import OF_CUDA, platform_of, processor_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cuwheel.machine.fleet import Machine
    from cuwheel.machine.profile import MachineProfile

T = TypeVar("T")
_MOST = 100_000  # compilers, runs: beyond that it is a slip of the keyboard
_LONGEST_S = 366 * 24 * 3600.0
_LAST_MINOR = 9  # no CUDA had a tenth minor release
_DRIVER_LEAD = 100  # branches that a driver may be ahead of the tables
_GPUS = "cuwheel lookup gpu lists the GPUs"
_SAVE_ONE = "write one with: cuwheel doctor --save FILE"
_TOOLKITS = "cuwheel lookup cuda lists the versions"
# Compiled where one is needed: most commands need none.
_DRIVER = r"[1-9]\d{2,3}(\.\d{1,3}){0,2}"
VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"


def wrong(text: str, what: str, hint: str = "") -> UsageError:
    """`what`: the kind of value, with its article and an example."""
    return UsageError(f"{shortened(text)!r} is not {what}", hint)


def with_hint(problem: UsageError) -> str:
    return f"{problem.message} ({problem.hint})" if problem.hint else problem.message


def fits(pattern: str, text: str) -> re.Match[str] | None:
    return re.fullmatch(pattern, text, re.ASCII)


def patterned(name: str, pattern: str, what: str, hint: str = "") -> Callable[[str], str]:
    """A kind of value that a pattern describes, with spaces around it or not."""

    def parse(text: str) -> str:
        cleaned = text.strip()
        if not fits(pattern, cleaned):
            raise wrong(text, what, hint)
        return cleaned

    parse.__name__ = name
    return parse


def each(kind: Callable[[str], str]) -> Callable[[str], list[str]]:
    """A list with commas of one kind of value; all that is wrong with it at once."""

    def parse(text: str) -> list[str]:
        return each_of(parts(text), kind)

    parse.__name__ = f"{kind.__name__}s"
    return parse


def parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def each_of(parts: Sequence[str], kind: Callable[[str], T]) -> list[T]:
    if not parts:
        raise UsageError("it must not be empty")
    found, problems = [], []
    for part in parts:
        try:
            found.append(kind(part))
        except UsageError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise UsageError("; ".join(map(with_hint, problems)))
    return found


def guarded(kind: Callable[[str], Any] | None, *, without: object = None) -> Callable[[str], Any]:
    """Any kind of value: never empty, and nothing that ends a name in the system's own functions.

    `without`: what stands for an option that was given without a value, which argparse passes here too.
    """

    def parse(text: str) -> object:
        if not text.strip() and text != without:
            raise UsageError("it must not be empty")
        if "\0" in text:
            raise UsageError("it must not contain a NUL character")
        return kind(text) if kind else text

    return parse


# Numbers.


def count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or bounded.digits(text) < 1:
        raise wrong(text, "a positive integer")
    if bounded.digits(text) > _MOST:
        raise UsageError(f"it must be at most {_MOST:,}")
    return bounded.digits(text)


def index(text: str) -> int:
    """From 0 on, as devices are numbered."""
    if not (text.isascii() and text.isdecimal()) or bounded.digits(text) > _MOST:
        raise wrong(text, "a number from 0 up")
    return bounded.digits(text)


def seconds(text: str) -> float:
    value = bounded.real(text) or 0.0
    if value <= 0:
        raise wrong(text, "a positive number of seconds")
    if value > _LONGEST_S:
        raise UsageError("it must be at most a year, in seconds")
    return value


def size(text: str) -> int:
    from cuwheel_core.support.wording import read_size

    found = read_size(text)
    if not found:
        raise wrong(text, "a size, such as 500MB or 2GB")
    return found


def size_or_nothing(text: str) -> int:
    return 0 if text.strip() == "0" else size(text)


# Versions.


def is_cuda(text: str) -> bool:
    """A version of CUDA and not of a driver, which has three digits before the dot."""
    return fits(r"\d{1,2}(\.\d{1,3})*", text) is not None


def driver(text: str) -> str:
    """Reads a driver's version, or the CUDA version that nvidia-smi shows."""
    cleaned = text.strip()
    if is_cuda(cleaned):
        return cuda(cleaned)
    if not fits(_DRIVER, cleaned):
        raise wrong(text, "a driver version, such as 570.86.10", hint="nvidia-smi shows it")
    from cuwheel_core.facts import toolkits, versions

    newest = max(versions.major(row.driver.linux) for row in toolkits.all_toolkits() if row.driver.linux)
    if versions.major(cleaned) > newest + _DRIVER_LEAD:
        raise UsageError(f"unknown driver {cleaned}: the newest known branch is {newest}")
    return cleaned


def cuda(text: str) -> str:
    """`12.8`, `12.8.1`, `cu128`, `CUDA 12.8`: as `12.8`; a major alone stays one.

    A version that the tables know, or that is older than they are, or that may come next.
    """
    from cuwheel_core.facts import toolkits

    cleaned = text.strip().lower()
    match = fits(r"cu(\d{2})(\d?)", cleaned) or fits(
        r"(?:cuda[ _-]*)?v?([1-9]\d?)(?:\.(\d{1,2})(?:\.\d{1,4})*)?", cleaned
    )
    if not match and fits(_DRIVER, cleaned):
        raise UsageError(f"{cleaned!r} looks like a driver version: give it as --driver")
    if not match:
        raise wrong(text, "a CUDA version, such as 12.8 or cu128", hint=_TOOLKITS)
    major, minor = bounded.digits(match[1]), bounded.digits(match[2]) if match[2] else None
    shown = str(major) if minor is None else f"{major}.{minor}"
    known = [tuple(map(bounded.digits, row.version.split("."))) for row in toolkits.all_toolkits()]
    exists = major < known[0][0] or any(row[0] == major and minor in (None, row[1]) for row in known)
    may_come = known[-1] < (major, minor or 0) and major <= known[-1][0] + 1 and (minor or 0) <= _LAST_MINOR
    if not exists and not may_come:
        asked(lambda: toolkits.find_toolkit(shown), _TOOLKITS)
    return shown


def cuda_minor(text: str) -> str:
    found = cuda(text)
    if "." not in found:
        raise UsageError(f"{text.strip()!r} is only a major version: add the minor, such as {found}.8")
    return found


def toolkit(text: str) -> str:
    """A CUDA version that toolkits are known of."""
    cuda(text)
    from cuwheel_core.facts import toolkits as table

    try:
        table.find_toolkit(text)
    except UnknownNameError as error:
        raise UsageError(error.lines, error.hint_parts or _TOOLKITS) from None
    return text.strip()


toolkits = each(toolkit)


def torch(text: str) -> str:
    cleaned = text.strip()
    if not fits(r"[1-9]\d?(\.\d{1,3}){1,3}([A-Za-z0-9.+_-]{0,60})", cleaned):
        raise wrong(text, "a version of torch, such as 2.7.1")
    try:
        return version(cleaned)
    except UsageError:
        raise wrong(text, "a version of torch, such as 2.7.1") from None


def python(text: str) -> str:
    """`3.11`, `3.11.9`, `311`, `cp311`; `3.13t` for one without the GIL."""
    match = fits(r"(?:python|cp|py)?-?3\.?(\d{1,2})(\.\d{1,2})?(t?)", text.strip().lower())
    if not match:
        raise wrong(text, "a version of Python, such as 3.11 (or 3.13t without the GIL)")
    return f"3.{bounded.digits(match[1])}{match[2] or ''}{match[3]}"


def python_minor(text: str) -> str:
    """Reads the version of a Python to build for, which has the GIL."""
    found = python(text)
    if not found[-1].isdigit():
        raise wrong(text, "a version of Python with the GIL, such as 3.11")
    return ".".join(found.split(".")[:2])


python_minors = each(python_minor)
glibc = patterned("glibc", r"2(\.\d{1,2}){1,2}", "a version of glibc, such as 2.35")


def platform(text: str) -> str:
    cleaned = text.strip()
    if "-" in cleaned or (cleaned != "any" and platform_of(cleaned).os is None):
        raise wrong(text, "a platform tag, such as manylinux_2_28_x86_64 or win_amd64")
    return cleaned


def cpu(text: str) -> str:
    found = processor_name(text.strip())
    if found not in OF_CUDA:
        raise wrong(text, f"a processor: {' or '.join(OF_CUDA)}")
    return found


def l4t(text: str) -> str:
    match = fits(r"R?(\d{2}(?:\.\d{1,2}){0,2})", text.strip().upper())
    if not match:
        raise wrong(text, "a release of L4T, such as 36.4")
    return match[1]


def one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in words:
            raise UsageError(f"{shortened(text)!r} is not one of {', '.join(words)}")
        return text.lower()

    return parse


# Keys of a fleet file that no option of its own says.
_MACHINE_KEYS: dict[str, Callable[[str], str]] = {
    "python": python,
    "torch": torch,
    "os": one_of("linux", "windows"),
    "cpu": cpu,
    "glibc": glibc,
    "jax_cuda": cuda,
    "l4t": l4t,
    "jit": one_of("allowed", "disabled", "forced"),
}


def _machine_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    key = key.strip().lower().replace("-", "_")
    if not equals or key not in _MACHINE_KEYS:
        raise wrong(text, f"KEY=VALUE with one of the keys {', '.join(_MACHINE_KEYS)}")
    return key, _MACHINE_KEYS[key](value)


def machine_settings(text: str) -> list[tuple[str, str]]:
    """Reads settings of a machine with commas between: `os=windows,cpu=x86_64`."""
    return each_of(parts(text), _machine_setting)


def version(text: str) -> str:
    """Reads a version of a package, as PEP 440 has it."""
    from packaging.version import InvalidVersion

    try:
        limited.version(text)
    except InvalidVersion:
        raise wrong(text, "a version, such as 1.2+local") from None
    return text


# Names that the tables know: GPUs, machines, architectures, parts of toolkits.


def asked(question: Callable[[], T], hint: str = "") -> T:
    """Whatever is wrong with the name is wrong with the command line. A file of a newer cuwheel says so itself."""
    try:
        return question()
    except (UsageError, NewerSchemaError, UnsafeWheelError):
        raise
    except CuwheelError as error:
        raise UsageError(error.lines, error.hint_parts or hint) from error


def machines(text: str) -> list[str | Machine]:
    """GPUs, capabilities, profiles and fleet files, with commas: looked up here, once. `this` is, where it is used."""
    found = each_of(_machine_words(text), _machines)
    return [machine for _, machines in found for machine in machines]


def named_machines(text: str) -> list[str]:
    """The words of `machines`, each known, for what prints a command that names them again."""
    return [word for word, _ in each_of(_machine_words(text), _machines)]


def machines_or_all(text: str) -> list[str | Machine]:
    """Machines as `machines` looks them up; `all` stays a word, as `this` does."""
    return [machine for _, machines in _named_or_all(text) for machine in machines]


def machine_words(text: str) -> list[str]:
    """The words of `machines_or_all`, for what writes them down or passes them on as they were said."""
    return [word for word, _ in _named_or_all(text)]


def _named_or_all(text: str) -> list[tuple[str, Sequence[str | Machine]]]:
    return each_of(_machine_words(text), lambda word: _machines(word, "all"))


def _machine_words(text: str) -> list[str]:
    return [text] if places.exists(text) else parts(text)


def _machines(word: str, *words: str) -> tuple[str, Sequence[str | Machine]]:
    """A word and what it names. `words`: beside `this`, those that mean what nobody can look up yet."""
    from cuwheel.machine.fleet import THIS, machines_named

    if word.lower() in (THIS, *words):
        return word, (word,)
    if word.endswith((".json", ".toml")):
        places.file(word)
    _capability(word)
    return word, asked(lambda: machines_named([word]), _GPUS)


def _capability(text: str) -> None:
    """A number that a person types is one that GPUs have: `12.8` is a CUDA version, and no GPU."""
    from cuwheel_core.facts import gpus
    from cuwheel_core.facts.arch import Capability, looks_like_arch

    if looks_like_arch(text):
        asked(lambda: gpus.find_architecture(Capability.parse(text)), _GPUS)


def gpu(text: str) -> str:
    from cuwheel.machine import fleet

    _capability(text)
    asked(lambda: fleet.from_gpu(text), _GPUS)
    return text


def whole_machine(text: str) -> str | MachineProfile:
    """`this` machine, or the one that a file of `cuwheel doctor --save` describes."""
    from cuwheel.machine import fleet

    if text.endswith(".json"):
        places.file_of(text, _SAVE_ONE)
    return asked(lambda: fleet.whole_machine(text)) or text


def one_machine(text: str) -> list[str | Machine | MachineProfile]:
    """What is known of one machine: its GPU's name or capability, its profile, or that it is `this` one."""
    from cuwheel.machine import fleet

    words = _machine_words(text)
    for word in words:
        if word.endswith((".json", ".toml")):
            places.file_of(word, _SAVE_ONE)
        else:
            _capability(word)
    known, gpu = asked(lambda: fleet.one_machine([word for word in words if word.lower() != fleet.THIS]))
    here = [fleet.THIS] if fleet.THIS in map(str.lower, words) else []
    return [*here, *([known] if known else []), *([gpu] if gpu else [])]


def fleet(text: str) -> Path:
    """A fleet file that can be read."""
    from cuwheel.machine.fleet import read_fleet_file

    path = places.file(text)
    asked(lambda: read_fleet_file(path))
    return path


def component(text: str) -> str:
    """Reads the name of a toolkit's component: cublas, cudnn, or a group of them."""
    from cuwheel.facts import toolchain_parts

    asked(lambda: toolchain_parts.find_components(text), "cuwheel toolchain install --help")
    return text


components = each(component)


def provider(text: str) -> str:
    """A provider of toolkits; `redist=PLACE` and its like: and where it looks."""
    from cuwheel.toolchains.providers import ORDER

    name, equals, place = text.partition("=")
    kinds = {"system": places.folder, "redist": places.place, "debian": places.file_name, "container": image}
    if name not in ORDER:
        raise UsageError(f"unknown provider {shortened(name)!r}: choose from {', '.join(ORDER)}")
    if equals and name not in kinds:
        raise UsageError(f"{name} is looked for in one place alone", hint=f"--provider {name}")
    return f"{name}={kinds[name](place)}" if equals else name


providers = each(provider)


def machine_code(text: str) -> str:
    """An architecture to compile for, by its full name."""
    return _architecture(text, "sm_", "an architecture such as sm_87")


def architecture(text: str) -> str:
    """What device code may be for: machine code or PTX."""
    return _architecture(text, ("sm_", "compute_"), "an architecture such as sm_90 or, for PTX, compute_90")


def _architecture(text: str, kinds: str | tuple[str, ...], what: str) -> str:
    from cuwheel_core.facts import gpus
    from cuwheel_core.facts.arch import Arch

    try:
        arch = Arch.parse(text) if text.startswith(kinds) else None
        if arch:
            gpus.find_architecture(arch.capability)
    except UnknownNameError:
        arch = None
    if arch is None:
        raise wrong(text, what)
    return str(arch)


machine_codes, architectures = each(machine_code), each(architecture)


def binary(text: str) -> str:
    """A wheel, library or folder that is there, `name==version`, or the name of what is installed."""
    from cuwheel.device_code import source, target

    path = Path(text)
    if target.is_pinned(text) or places.exists(text):
        return text
    if len(path.parts) != 1 or path.suffix in source.SUFFIXES:
        raise UsageError(f"{shortened(text)}: no such file or folder")
    asked(lambda: source.installed_info(text))
    return text


# Packages, variables, and what others' programs call things.


def requirement(text: str) -> str:
    from packaging.requirements import InvalidRequirement

    try:
        limited.requirement(text)
    except InvalidRequirement as error:
        raise wrong(text, f"a requirement, such as torch==2.7.1: {str(error).splitlines()[0]}") from None
    return text


def package(text: str) -> str:
    """A name, perhaps with versions."""
    from cuwheel.delivery import candidates

    candidates.parse_requirement(text)
    return text


distribution = patterned(
    "distribution",  # the bare name of a package
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?",
    "the name of a package, such as torch",
)
distributions = each(distribution)


variable = patterned("variable", VARIABLE, "a variable name, such as MODEL_FOLDER")
variables = each(variable)


image = patterned(
    "image",
    r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}",
    "the name of a container image, such as nvidia/cuda:13.0.2-devel-ubuntu24.04",
)


def cluster(text: str) -> str:
    from cuwheel.network import cluster_access

    cluster_access.parse_address(text)
    return text
