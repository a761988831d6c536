"""What a configuration must be beyond its shape: every problem, one sentence each."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement

from cuwheel.building import texts
from cuwheel.errors import UnknownNameError
from cuwheel.facts import services, toolkits
from cuwheel.support import wording
from cuwheel.wheel.requirements import checked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.building.tables import CheckTable, CiTable, Table

_PYTHON = re.compile(r"3\.\d{1,2}", re.ASCII)
_VERSION = re.compile(r"\d+(\.\d+)*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PACKAGE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_POLICY = re.compile(r"(many|musl)linux\w+", re.ASCII)
_TAG = re.compile(r"[a-z]{2,8}\d{1,4}(\.[a-z]{2,8}\d{1,4})*-(none|abi3)", re.ASCII)
_ALLOWED = re.compile(
    r"debug|(sm|compute|lto)_\d+[af]?|[\w*?\[\]!-]*[*?\[][\w*?\[\]!-]*", re.ASCII
)  # or a glob of them
VERSION_LABEL = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)*", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+|https://[A-Za-z0-9][\w.:/~-]*", re.ASCII)
_PACKAGE_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_WATCHED = re.compile(r"[A-Za-z0-9][\w.-]*|https://[!-~]+", re.ASCII)
_ADDRESS = re.compile(r"https://[A-Za-z0-9][\w.:/~-]*", re.ASCII)
_CRON = re.compile(r"[\d*/,-]+( [\d*/,A-Za-z-]+){4}", re.ASCII)
_PINNED = re.compile(r"[a-z0-9](?:[\w.:/-]|\{cuda\}|\{cpu\})*(:(?!latest$)[\w][\w.-]*|@sha256:[0-9a-f]{64})", re.ASCII)
_LONGEST_RETENTION, _LONGEST_JOB = 90, 6 * 60  # of hosted runners
_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?", re.ASCII)


def problems(table: Table) -> Iterator[str]:
    """All that types do not say of a configuration, each with the name of the setting."""
    yield from (
        f"python: {each!r} is not a version such as 3.12" for each in table.python if not _PYTHON.fullmatch(each)
    )
    yield from _requirements("requires", table.requires)
    yield from _components(table.components)
    yield from (
        f"pass-through: {each!r} is not a variable name (it may end in *)"
        for each in table.pass_through
        if not _PATTERN.fullmatch(each)
    )
    yield from (
        f"environment: {each!r} is not a variable name" for each in table.environment if not _VARIABLE.fullmatch(each)
    )
    if not 0 < table.timeout < float("inf"):
        yield f"timeout: {table.timeout:g} is not a positive number of seconds"
    if table.python_tag is not None and not _TAG.fullmatch(table.python_tag):
        yield f"python-tag: {table.python_tag!r} is not a tag such as py3-none"
    if table.label and not VERSION_LABEL.fullmatch(table.label):
        yield f"label: {table.label!r} is not a label of a version: lower-case letters, digits and dots, such as 42.1"
    if PurePath(table.subdirectory).anchor or ".." in PurePath(table.subdirectory).parts:
        yield f"subdirectory: {table.subdirectory!r} is outside the source"
    if table.merge and table.naming not in (None, "none"):
        yield f"merge: one wheel for several CUDA versions cannot be named after one of them (naming is {table.naming})"
    yield from _texts(table)
    yield from _gate_and_repair(table)
    yield from _requirements("verify.requires", table.verify.requires)
    yield from (
        f"verify.python: {each!r} is not a version such as 3.12"
        for each in table.verify.python
        if not _PYTHON.fullmatch(each)
    )
    yield from (f"ci.{each}" for each in _ci(table.ci))
    for number, check in enumerate(table.verify.check):
        yield from (f"verify.check[{number}]: {each}" for each in _check(check))


def _components(names: tuple[str, ...]) -> Iterator[str]:
    for each in names:
        try:
            toolkits.find_components(each)
        except UnknownNameError as error:
            yield f"components: {error.message}"


def _requirements(where: str, requirements: tuple[str, ...]) -> Iterator[str]:
    for each in requirements:
        try:
            checked(each)
        except InvalidRequirement as error:
            yield f"{where}: {each!r} is not a requirement: {str(error).splitlines()[0]}"


def _texts(table: Table) -> Iterator[str]:
    for name, text in table.environment.items():
        yield from (f"environment.{name}: {each}" for each in texts.problems(text))
        if "\0" in text:
            yield f"environment.{name}: it must not contain a NUL character"
    for number, text in enumerate(table.before):
        yield from (f"before[{number}]: {each}" for each in texts.problems(text))
        if not text.strip():
            yield f"before[{number}]: it is empty"
    for name, text in table.config_settings.items():
        yield from (f"config-settings.{name}: {each}" for each in texts.problems(text))


def _gate_and_repair(table: Table) -> Iterator[str]:
    yield from (
        f"gate.allow: {each!r} is not an architecture such as sm_75, compute_* or library.so:sm_75"
        for each in table.gate.allow
        if not may_be_allowed(each)
    )
    if table.gate.size is not None and not wording.read_size(table.gate.size):
        yield f"gate.size: {table.gate.size!r} is not a size such as 100 MB"
    if table.gate.glibc is not None and not _VERSION.fullmatch(table.gate.glibc):
        yield f"gate.glibc: {table.gate.glibc!r} is not a version such as 2.28"
    if table.repair.policy is not None and not _POLICY.fullmatch(table.repair.policy):
        yield f"repair.policy: {table.repair.policy!r} is not a policy such as manylinux_2_28"
    if table.guard.package is not None and not _PACKAGE.fullmatch(table.guard.package):
        yield f"guard.package: {table.guard.package!r} is not a package name"


def may_be_allowed(text: str) -> bool:
    """`sm_75`, `compute_*`, or one of a library: `library.so:sm_75`."""
    return _ALLOWED.fullmatch(text.rpartition(":")[2].strip()) is not None


def _check(check: CheckTable) -> Iterator[str]:
    ways = [name for name in ("command", "python", "import_") if getattr(check, name) is not None]
    if len(ways) != 1:
        named = " and ".join(each.removesuffix("_") for each in ways) or "none of them"
        yield f"it must have exactly one of command, python and import, but has {named}"
    if not 0 < check.timeout < float("inf"):
        yield f"timeout: {check.timeout:g} is not a positive number of seconds"
    if not wording.read_size(check.memory):
        yield f"memory: {check.memory!r} is not a size such as 8 GB"
    if check.tolerance < 0:
        yield f"tolerance: {check.tolerance:g} must not be negative"
    yield from (
        f"environment: {each!r} is not a variable name" for each in check.environment if not _VARIABLE.fullmatch(each)
    )


def _ci(table: CiTable) -> Iterator[str]:
    """All of it is written into files that a service runs with rights of its own."""
    known = ", ".join(services.linux_runners())
    yield from (f"cpus: {each!r} is not one of {known}" for each in table.cpus if each not in services.linux_runners())
    if not table.cpus:
        yield f"cpus: must name one of {known}"
    yield from (
        f"gpu-runner: {each!r} is not a runner's label" for each in table.gpu_runner if not _LABEL.fullmatch(each)
    )
    for name, value, form, words in (
        ("image", table.image, _PINNED, "an image that is pinned: give it a dated tag or a digest, not latest"),
        ("upstream", table.upstream, _REPOSITORY, "a repository: owner/name, or its https address"),
        ("watch", table.watch, _WATCHED, "a package or the https address of a repository"),
        ("package", table.package, _PACKAGE_NAME, "the name of a package"),
        ("index", table.index, _ADDRESS, "an https address"),
        ("schedule", table.schedule, _CRON, "five fields as cron has them"),
        ("python", table.python, _PYTHON, "a version such as 3.12"),
    ):
        if value and not form.fullmatch(value):
            yield f"{name}: {value!r} is not {words}"
    if table.watch and not table.index:
        yield "watch: needs index, the address of what was built, to compare with"
    for name, number, most in (
        ("retention-days", table.retention_days, _LONGEST_RETENTION),
        ("timeout-minutes", table.timeout_minutes, _LONGEST_JOB),
    ):
        if not 0 < number <= most:
            yield f"{name}: {number} is not between 1 and {most}"
    if table.cuwheel:
        yield from _requirements("cuwheel", (table.cuwheel,))
