"""What to make and to run: every variant, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from cuwheel_core.verdicts.device import Jit
from tests.gpu.codes import Code, Part

Form: TypeAlias = Literal["fatbin", "cubin", "ptx", "library", "program", "package"]
Shape: TypeAlias = Literal["plain", "many", "rdc", "rdc3", "beside"]
Cudart: TypeAlias = Literal["shared", "static"]

# The containers of a library of each shape, and the kernels to launch.
SITES: dict[Shape, tuple[Part, ...]] = {
    "plain": ("whole",),
    "many": ("whole", "second", "third"),
    "rdc": ("a", "b", "linked"),
    "rdc3": ("a", "b", "c", "linked3"),
    "beside": ("a", "b", "second", "linked"),
}
KERNELS: dict[Part, str] = {
    "whole": "mark",
    "second": "mark_2",
    "third": "mark_3",
    "a": "mark",
    "c": "mark_2",
}


# What the host can ask of a unit, as tests/gpu/src/unit.cu numbers it.
UnitKind: TypeAlias = Literal[
    "kernel",
    "static-kernel",
    "weak-kernel",
    "variable",
    "static-variable",
    "constant",
    "managed",
    "texture",
    "both",
    "calls",
    "called",
    "uses",
    "used",
    "newer-only",
    "launches",
    "newer-variable",
]
_SILENT: frozenset[UnitKind] = frozenset({"called"})  # nothing in it can be asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A source file of a mixture: what it holds, its architecture list, and the device link that it goes into.

    `link`: the place of that link in the build's `links`; None for whole-program code. `oldest`: of what only newer
    architectures have, the first of them.
    """

    kind: UnitKind
    archs: str
    link: int | None = None
    oldest: int = 90
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = [self.archs, *self.options] + (
            ["rdc" if self.link == 0 else f"rdc{self.link}"] * (self.link is not None)
        )
        words += [f"from {self.oldest}"] if self.kind.startswith("newer") else []
        return f"{self.kind}({' '.join(words)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A library as nvcc makes it: an architecture list for each object, nothing changed afterwards.

    `linked`: the list of the device link, where the objects are relocatable. `link_arch`: nvcc links it, and leaves its
    own empty device link for this architecture. `nothing`: the lists of source files without a kernel. `units`: source
    files of a mixture instead of `objects`, and the lists of the device `links` that those go into.
    """

    objects: tuple[tuple[Part, str], ...] = ()
    units: tuple[Unit, ...] = ()
    links: tuple[str, ...] = ()
    linked: str = ""
    options: tuple[str, ...] = ()
    link_options: tuple[str, ...] = ()
    cudart: Cudart = "shared"
    devrt: bool = False  # with libcudadevrt, as nvcc links it unless told otherwise
    link_arch: str = ""
    nothing: tuple[str, ...] = ()
    program: bool = False

    @property
    def asked(self) -> tuple[str, ...]:
        """What is asked of its units, by name."""
        asked = []
        for place, unit in enumerate(self.units):
            asked += [f"u{place}"] if unit.kind not in _SILENT else []
            asked += [f"u{place}_beside"] if unit.kind.startswith("newer") else []
        return tuple(asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """`containers`: what is put into the places of a library of that shape, or into a bare fat binary.

    `reverse`: launch the last kernel first. `package`: the libraries of a wheel, whose import opens them all where
    `imported` says so.
    """

    axis: str
    form: Form
    containers: tuple[tuple[Code, ...], ...] = ()
    shape: Shape = "plain"
    toolkit: str = "13.0"  # of the library's host half
    build: Build | None = None
    package: tuple[Build, ...] = ()
    imported: bool = False
    jit: Jit = "allowed"
    reverse: bool = False

    @property
    def kernels(self) -> tuple[str, ...]:
        """In the order of their containers."""
        builds = self.package or ((self.build,) if self.build else ())
        if self.build and self.build.units:
            return self.build.asked
        sites = [part for build in builds for part, _ in build.objects] if builds else list(SITES[self.shape])
        return tuple(KERNELS[part] for part in sites if part in KERNELS)


def everything() -> tuple[Variant, ...]:
    """All of them, each once: the same entries under two axes are one variant."""
    from tests.gpu import bare, libraries, mixtures, packages  # they are made of what is above

    found: dict[Variant, Variant] = {}
    for variant in (*bare.variants(), *libraries.variants(), *packages.variants(), *mixtures.variants()):
        found.setdefault(replace(variant, axis=""), variant)
    return tuple(found.values())


def name(variant: Variant) -> str:
    """What is in it, in words, and how it is loaded: no two variants have the same."""
    words: list[str] = [variant.form if variant.form != "library" else variant.shape]
    if variant.build:
        words = ["ptx" if variant.form == "ptx" else "nvcc", *_words(variant.build)]
    for build in variant.package:
        words.append(f"{{{' '.join(_words(build))}}}")
    words += ["imported"] if variant.imported else []
    if variant.form in ("library", "program", "ptx"):
        words.insert(1, variant.toolkit)
    words += [f"[{' '.join(map(str, container))}]" for container in variant.containers]
    words += [f"jit-{variant.jit}"] if variant.jit != "allowed" else []
    return " ".join(words + (["reverse"] if variant.reverse else []))


def _words(build: Build) -> list[str]:
    words: list[str] = [*build.options, *build.link_options, build.cudart]
    words += [f"{part}({text})" for part, text in (*build.objects, ("linked", build.linked)) if text]
    words += [*map(str, build.units), *(f"linked({text})" for text in build.links)]
    words += [f"nothing({text})" for text in build.nothing]
    words += [f"link({build.link_arch})"] if build.link_arch else []
    return words + (["devrt"] if build.devrt else []) + (["program"] if build.program else [])
