"""A wheel that a build backend made, given its name, its description and its guard: beside it, then renamed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from packaging.version import InvalidVersion, Version

from cuwheel.changes.stamp import guard, guard_call
from cuwheel.changes.stamp.guard import Wish as GuardWish
from cuwheel.device_code import description
from cuwheel.device_code.description import Description
from cuwheel.errors import MalformedError, UsageError
from cuwheel.support import locking, system_calls
from cuwheel.support.files import errors_of, sync_folder
from cuwheel.support.wording import a_few
from cuwheel.wheel import file
from cuwheel.wheel.edit import WheelEdit
from cuwheel.wheel.file import WheelFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_LABEL = re.compile(r"cu\d+", re.ASCII)
_SUFFIX = re.compile(r"[-_.]cu\d+$", re.ASCII | re.IGNORECASE)
_TAG = re.compile(r"(?P<python>[a-z]{2,8}\d{1,4}(?:\.[a-z]{2,8}\d{1,4})*)-(?P<abi>none|abi3)", re.ASCII)
_MODULE = re.compile(r"\.(?:cpython-\d+[^/]*|cp\d+-[^/]*)\.(?:so|pyd)$", re.ASCII)
_STABLE_MODULE = re.compile(r"\.abi3\.(?:so|pyd)$", re.ASCII)


class Wish(Struct, frozen=True, kw_only=True):
    """`name`, `version`, `python_tag` (`py3-none`): in place of the wheel's own. `extra_requires`: to add."""

    name: str | None = None
    version: str | None = None
    python_tag: str | None = None
    description: Description
    guard: GuardWish | None = None
    extra_requires: tuple[str, ...] = ()


def local_version(version: str, cuda: str = "", label: str = "") -> str:
    """`1.2` → `1.2+cu130`; `1.2+ubuntu.1` → `1.2+ubuntu.1.cu130`; another CUDA's label gives way to this one.

    `label`: of this build, before all others, so that a higher number is the newer version: `1.2+42.cu130`.
    """
    try:
        parsed = Version(version)
    except InvalidVersion as error:
        raise UsageError(f"{version!r} is not a version that can be labelled: {error}", hint="see PEP 440") from error
    before = parsed.local.split(".") if parsed.local else []
    if cuda:
        before = [each for each in before if not _LABEL.fullmatch(each)]
    labels = [label, *before, "cu" + "".join(cuda.split(".")[:2]) if cuda else ""]
    return f"{parsed.public}+{'.'.join(filter(None, labels))}"


def public_version(version: str) -> str:
    """`1.2+cu130` → `1.2`: without the label of a CUDA version, and with every other one."""
    public, plus, local = version.partition("+")
    kept = [each for each in re.split(r"[-_.]", local) if not _LABEL.fullmatch(each)]
    return f"{public}+{'.'.join(kept)}" if plus and kept else public


def suffixed_name(name: str, cuda: str) -> str:
    """`name-cu13`: for the public index, which takes no local versions. A suffix that is there is replaced."""
    return f"{_SUFFIX.sub('', name)}-cu{cuda.split('.', maxsplit=1)[0]}"


def stamp(wheel: Path | WheelFile, to: Path, wish: Wish) -> Path:
    """The new wheel, in the folder `to`."""
    if isinstance(wheel, Path):
        with WheelFile(wheel) as opened:
            return stamp(opened, to, wish)
    must_be_publishable(wheel)
    edit = _edited(wheel, wish)
    output = to / str(edit.name)
    with errors_of(output, f"{output} was not written"), locking.scratch(to) as folder:
        made = folder / "wheel"
        edit.write(made)
        system_calls.rename_over(made, output)
        sync_folder(to)
    return output


def must_be_publishable(wheel: WheelFile) -> None:
    """What is stamped is going to be published: nothing of it may be in doubt."""
    wheel.must_be_sound("stamped")
    problem = ""
    if signed := wheel.signatures:
        problem = f"it is signed ({', '.join(signed)}), and changing the wheel would break the signature"
    elif wheel.unlisted:
        problem = f"its RECORD and its files do not match: {a_few(sorted(wheel.unlisted), 3)}"
    elif wrong := wheel.wrong_hashes():
        problem = f"these files do not match RECORD: {a_few(wrong, 3)}"
    if problem:
        raise MalformedError(wheel.path, f"not stamped: {problem}", hint="build the wheel again")


def _edited(wheel: WheelFile, wish: Wish) -> WheelEdit:
    edit = WheelEdit(wheel)
    if wish.name or wish.version:
        edit.rename(name=wish.name, version=wish.version)
    if wish.extra_requires:
        edit.require(wish.extra_requires)
    if wish.python_tag:
        tag_must_fit(wheel.members, wish.python_tag)
        python, abi = tag_parts(wish.python_tag)
        edit.retag(python=python, abi=abi)
    edit.add(wheel.info + description.NAME, description.encoded(wish.description))
    if wish.guard:
        _guard(edit, wish.guard)
    return edit


def tag_parts(tag: str) -> tuple[str, str]:
    """`py3-none` → its two parts.

    setuptools tags every wheel with a library for the Python that built it. Where the library is loaded with ctypes
    (bitsandbytes), it serves all of them, and its publisher says so: `py3-none`.
    """
    match = _TAG.fullmatch(tag)
    if match is None:
        raise UsageError(f"python-tag = {tag!r}: not a Python and an ABI", hint='such as "py3-none" or "cp310-abi3"')
    return match["python"], match["abi"]


def tag_must_fit(members: Iterable[str], tag: str) -> None:
    """A module of one Python's own ABI serves no other, whatever the tag says."""
    stable = tag_parts(tag)[1] == "abi3"
    bound = sorted(each for each in members if _MODULE.search(each) or (not stable and _STABLE_MODULE.search(each)))
    if bound:
        raise UsageError(
            f"python-tag = {tag!r}: {bound[0]} is an extension module for CPython",
            hint="leave python-tag out: the build backend knows",
        )


def _guard(edit: WheelEdit, wish: GuardWish) -> None:
    """The guard next to the `__init__.py` of its package, and its call in it."""
    folder = package_folder(edit.wheel.members, wish.package)
    edit.add(f"{folder}{guard.FILE}", guard.source(wish).encode())
    if wish.inject:
        init = f"{folder}__init__.py"
        edit.add(init, guard_call.with_call(edit.wheel.read(init), init))


def package_folder(members: Collection[str], package: str) -> str:
    """Where the package's files are in the wheel, with a slash at the end."""
    if folder := file.package_folder(members, package):
        return folder
    tops = ", ".join(file.top_packages(members)) or "none"
    raise UsageError(
        f"[tool.cuwheel.guard] package = {package!r}: the wheel has no such package", hint=f"its packages: {tops}"
    )
