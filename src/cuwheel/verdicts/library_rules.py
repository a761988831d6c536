"""What is worth saying about a library before it is shipped: rules over what inspection found in it."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cuwheel.support.wording import size
from cuwheel.verdicts import predict, rule
from cuwheel.verdicts.rule import Found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.device_code.libraries import Library
    from cuwheel.support.finding import Finding
    from cuwheel.verdicts.rule import Rule

# Below this nobody's download or image is the worse for it.
_WORTH_SAYING = 1_000_000


@rule.rule(
    "uncompressed-device-code",
    severity="warning",
    why="""Most toolkits store device code compressed, but device-linked cubins made by toolkits before 13
    are stored uncompressed. Compressing them loses nothing and costs little at load.""",
    source="measured on the official bitsandbytes wheels, 0.41 to 0.50",
)
def uncompressed_device_code(library: Library) -> Iterator[Found]:
    raw = [row for row in library.device_code if row.compression == "none" and row.saving]
    saving = sum(row.saving or 0 for row in raw)
    if saving >= _WORTH_SAYING:
        stored = sum(row.bytes for row in raw)
        yield Found(
            message=f"{size(stored)} of device code is stored uncompressed; ZSTD would save about {size(saving)}",
            evidence=(f"{sum(row.count for row in raw)} entries, the saving estimated from a sample of them",),
            fix=f"cuwheel slim {PurePosixPath(library.path).name} --for all --recompress",
        )


@rule.rule(
    "no-ptx-for-newer-gpus",
    severity="note",
    why="""Machine code runs on its own major only. Without PTX of a plain architecture the library stops working on
    the next generation of GPUs: error 209, no kernel image.""",
    source="NVIDIA: CUDA programming guide, binary and PTX compatibility",
)
def no_ptx_for_newer_gpus(library: Library) -> Iterator[Found]:
    reach = predict.coverage_of(library)
    if reach and not reach.future:
        newest = max((row.arch for row in library.device_code if row.kind == "cubin"), key=_number, default="")
        yield Found(
            message="it has no PTX for future GPUs",
            evidence=(f"the newest machine code is {newest}",) if newest else (),
            fix="add PTX for the newest architecture: CMake '90;90-virtual', torch '9.0+PTX'",
        )


def _number(arch: str) -> int:
    digits = "".join(letter for letter in arch if letter.isdigit())
    return int(digits[:9]) if digits else 0


@rule.rule(
    "runpath-into-build-machine",
    severity="warning",
    why="""An absolute RPATH or RUNPATH names a folder of the build machine. On other machines it finds
    nothing, or another version than intended.""",
    source="ld.so(8); the official aarch64 wheels of bitsandbytes",
)
def runpath_into_build_machine(library: Library) -> Iterator[Found]:
    absolute = [entry for entry in (*library.rpath, *library.runpath) if entry.startswith("/")]
    if absolute:
        yield Found(
            message=f"its {'RPATH' if library.rpath else 'RUNPATH'} points to folders of the build machine",
            evidence=tuple(absolute[:4]),
            fix="patchelf --set-rpath '$ORIGIN/../nvidia/…/lib' FILE   (or CMAKE_SKIP_INSTALL_RPATH)",
        )


@rule.rule(
    "relocatable-code-kept",
    severity="note",
    why="""A device link keeps the relocatable objects it was made from in the file. The driver falls back on them only
    where no linked code fits.""",
    source="measured on an H200: a library without its linked cubin still ran",
)
def relocatable_code_kept(library: Library) -> Iterator[Found]:
    kept = sum(row.bytes for row in library.device_code if not row.linked)
    if kept >= _WORTH_SAYING and any(row.linked for row in library.device_code) and library.type != "relocatable":
        yield Found(
            message=f"{size(kept)} of relocatable code is kept beside the linked code made from it",
            evidence=tuple(sorted({row.section for row in library.device_code if not row.linked})),
            fix="none needed where it runs; remove it first if size matters",
        )


@rule.rule(
    "device-debug-code",
    severity="warning",
    why="""Code compiled with -G is not optimised and carries its source positions: several times larger and many times
    slower.""",
    source="NVIDIA: CUDA compiler driver, -G",
)
def device_debug_code(library: Library) -> Iterator[Found]:
    entries = sum(row.debug_count for row in library.device_code)
    if entries:
        archs = sorted({row.arch for row in library.device_code if row.debug_count})
        yield Found(
            message=f"{entries} entries were compiled for debugging (-G): large and slow",
            evidence=(", ".join(archs),),
            fix="compile without -G (use -lineinfo for profilers)",
        )


RULES: tuple[Rule[Library], ...] = (
    uncompressed_device_code,
    runpath_into_build_machine,
    device_debug_code,
    relocatable_code_kept,
    no_ptx_for_newer_gpus,
)


def examine(library: Library) -> tuple[Finding, ...]:
    return rule.examine(RULES, library)
