"""Where the members of a wheel are installed: `foo-1.0.data/platlib/foo/x.so` lies in site-packages as `foo/x.so`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.errors import UsageError
from cuwheel.wheel.file import DATA, INFO

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_SITE_PACKAGES = ("platlib", "purelib")


def installed_path(member: str) -> str | None:
    """Below site-packages; None for what is installed elsewhere (scripts, headers, data)."""
    top, _, rest = member.partition("/")
    if not top.endswith(DATA):
        return member
    scheme, _, path = rest.partition("/")
    return path if scheme in _SITE_PACKAGES and path else None


def installed_names(members: Iterable[str]) -> dict[str, str]:
    """Each member's place in site-packages, of those that belong to the package itself."""
    placed = {each: installed_path(each) for each in members if not each.partition("/")[0].endswith(INFO)}
    return {member: place for member, place in placed.items() if place is not None}


def packages(members: Iterable[str]) -> list[str]:
    """Those at the top, as they are imported."""
    folders = (installed_path(each) for each in members if each.endswith("/__init__.py"))
    tops = (each.removesuffix("/__init__.py") for each in folders if each)
    return sorted({each for each in tops if "/" not in each})


def package_folder(members: Iterable[str], package: str) -> str | None:
    """The folder in the wheel where a package's files are, with a slash at the end."""
    wanted = package.replace(".", "/") + "/__init__.py"
    found = next((each for each in members if each.endswith("/__init__.py") and installed_path(each) == wanted), None)
    return found.removesuffix("__init__.py") if found else None


def output_of(wanted: Path, name: str, inputs: Iterable[Path]) -> Path:
    """The file to write: `wanted` is a folder, or the file under its right name."""
    output = wanted if wanted.suffix == ".whl" else wanted / name
    if output.name != name:
        raise UsageError(
            f"{output.name} is not the right name for this wheel",
            hint=f"-o {output.with_name(name)}   (installers refuse others; --version sets the version)",
        )
    if output.exists() and any(output.samefile(each) for each in inputs):
        raise UsageError(f"{output} is the input wheel itself", hint="choose another folder with -o")
    return output
