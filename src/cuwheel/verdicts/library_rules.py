"""What is worth saying about a library before it is shipped: rules over what inspection found in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cuwheel.support.finding import finding
from cuwheel_core.fix import Fix
from cuwheel_core.support.finding import examine as examine_checks
from cuwheel_core.support.wording import size
from cuwheel_core.verdicts import predict

if TYPE_CHECKING:
    from cuwheel_core.device_code.libraries import Library
    from cuwheel_core.support.finding import Finding, RuleFunction

# Below this nobody's download or image is the worse for it.
_WORTH_SAYING = 1_000_000


def uncompressed_device_code(library: Library) -> Iterator[Finding]:
    raw = [row for row in library.device_code if row.compression == "none" and row.saving]
    saving = sum(row.saving or 0 for row in raw)
    if saving >= _WORTH_SAYING:
        stored = sum(row.bytes for row in raw)
        yield finding(
            "uncompressed-device-code",
            f"{size(stored)} of device code is stored uncompressed; ZSTD would save about {size(saving)}",
            evidence=(f"{sum(row.count for row in raw)} entries, the saving estimated from a sample of them",),
            fix="cuwheel slim TARGET --for all --recompress",
        )


def no_ptx_for_newer_gpus(library: Library) -> Iterator[Finding]:
    reach = predict.coverage_of(library)
    if reach and not reach.future:
        cubins = (row.arch for row in library.device_code if row.kind == "cubin")
        newest = max(cubins, key=lambda arch: arch.capability, default=None)
        yield finding(
            "no-ptx-for-newer-gpus",
            predicate="has no PTX for future GPUs",
            evidence=(f"the newest machine code is {newest}",) if newest else (),
            fix="add PTX for the newest architecture: CMake '90;90-virtual', torch '9.0+PTX'",
        )


def runpath_into_build_machine(library: Library) -> Iterator[Finding]:
    absolute = [entry for entry in (*library.rpath, *library.runpath) if entry.startswith("/")]
    if absolute:
        yield finding(
            "runpath-into-build-machine",
            f"its {'RPATH' if library.rpath else 'RUNPATH'} points to folders of the build machine",
            evidence=tuple(absolute[:4]),
            fix=(
                Fix.run("patchelf --set-rpath", "$ORIGIN/../nvidia/…/lib", "FILE", changes=("file",)),
                Fix(text="build with CMAKE_SKIP_INSTALL_RPATH=ON", changes=("build",)),
            ),
        )


def relocatable_code_kept(library: Library) -> Iterator[Finding]:
    kept = sum(row.bytes for row in library.device_code if not row.linked)
    if kept >= _WORTH_SAYING and any(row.linked for row in library.device_code) and library.type != "relocatable":
        yield finding(
            "relocatable-code-kept",
            f"{size(kept)} of relocatable code is kept beside the linked code made from it",
            evidence=tuple(sorted({row.section for row in library.device_code if not row.linked})),
            fix="none needed where it runs; remove it first if size matters",
        )


def device_debug_code(library: Library) -> Iterator[Finding]:
    entries = sum(row.debug_count for row in library.device_code)
    if entries:
        archs = sorted({row.arch for row in library.device_code if row.debug_count})
        yield finding(
            "device-debug-code",
            f"{entries} entries were compiled for debugging (-G): large and slow",
            evidence=(", ".join(archs),),
            fix="compile without -G (use -lineinfo for profilers)",
        )


RULES: tuple[RuleFunction[Library], ...] = (
    uncompressed_device_code,
    runpath_into_build_machine,
    device_debug_code,
    relocatable_code_kept,
    no_ptx_for_newer_gpus,
)


def examine(library: Library) -> tuple[Finding, ...]:
    return examine_checks(RULES, library)
