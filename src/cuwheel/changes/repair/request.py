"""What is asked of `cuwheel repair`, and its words looked up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from cuwheel.errors import UsageError
from cuwheel.facts import toolkits, versions
from cuwheel.support.request_fields import as_paths, normalise


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest:
    """Wheels without NVIDIA's libraries inside, which find them where the environment has them.

    `wheels`: one or several, each a file or `name==version`. `output`: the folder for the new ones. `policy`: such as
    manylinux_2_28; without one, or with `auto`, the oldest that the libraries allow. `exclude`: sonames (globs), beside
    NVIDIA's. `requires`: write NVIDIA's packages into the metadata. `cuda`: where the libraries do not tell it.
    `libraries`: folders to look in first. `platform`: of `name==version`, the wheel for this one.
    """

    wheels: str | Path | Sequence[str | Path] = field(default=(), kw_only=False)
    output: Path = Path("wheelhouse")
    policy: str | None = None
    exclude: Sequence[str] = ()
    requires: bool = False
    cuda: str | int | None = None
    libraries: Sequence[Path] = ()
    platform: str | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        normalise(self)
        if not self.wheels:
            raise UsageError("no wheel to repair was given", hint="cuwheel repair WHEEL")

    @property
    def named(self) -> tuple[str | Path, ...]:
        """The wheels, however many."""
        return as_paths(self.wheels)


class RepairOptions(Struct, frozen=True, kw_only=True):
    """`policy`: manylinux_2_28, None for the lowest that fits. `exclude`: sonames (globs), beside NVIDIA's.

    `requires`: write NVIDIA's packages into the metadata. `cuda_major`: where the libraries do not tell it;
    `cuda`: the release, where that is known. `libraries`: folders to look in first.
    """

    policy: str | None = None
    exclude: tuple[str, ...] = ()
    requires: bool = False
    cuda_major: int | None = None
    cuda: str | None = None
    libraries: tuple[Path, ...] = ()


def options_of(request: RepairRequest) -> RepairOptions:
    return RepairOptions(
        policy=None if request.policy == "auto" else request.policy,
        exclude=tuple(request.exclude),
        requires=request.requires,
        cuda_major=_major_of(request.cuda),
        cuda=_release_of(request.cuda),
        libraries=tuple(request.libraries),
    )


def _major_of(cuda: str | int | None) -> int | None:
    """`13.0`, `cu128` or 12 as people write a CUDA; one that the tables know."""
    if cuda is None:
        return None
    text = str(cuda).strip().lower()
    known = {versions.major(row.version) for row in toolkits.all_toolkits()}
    if text.isdecimal() and int(text[:9]) in known:
        return int(text)
    return versions.major(toolkits.find_toolkit(text).version)


def _release_of(cuda: str | int | None) -> str | None:
    """`12.8` of `12.8.1` or `cu128`; None where only a major was said."""
    if cuda is None or str(cuda).strip().isdecimal():
        return None
    return versions.minor(toolkits.find_toolkit(str(cuda).strip().lower()).version)
