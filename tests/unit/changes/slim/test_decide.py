"""What is kept of a library, for whom and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from cuwheel.changes.slim.decide import decide_library
from cuwheel.changes.slim.request import SlimRequest, SlimTask
from cuwheel.machine.fleet import from_gpu
from cuwheel_core.device_code.libraries import Container, Entry, Registration, Wrapper
from cuwheel_core.facts.arch import Arch
from tests.fixtures import manifest
from tests.unit.changes.binaries import engine
from tests.unit.verdicts.libraries import code, library

if TYPE_CHECKING:
    from typing import Any

    from cuwheel.changes.binaries.plan import LibraryPlan
    from cuwheel_core.device_code.libraries import Library

BIN = manifest.HERE / "bin"
Row = tuple[str, ...]


def made(*containers: str, wrappers: tuple[int, ...] | None = None, **changes: Any) -> Library:
    """A library of containers, each written `sm_80 compute_90`; `rel:` before it makes it relocatable.

    `wrappers` has the version of each container's; 0 for none.
    """
    rows = [
        [code(arch.partition("/")[0], linked=not text.startswith("rel:")) for arch in text.removeprefix("rel:").split()]
        for text in containers
    ]
    base = library(*rows, **changes)
    entries = [
        _entry(number, place, arch, linked=not text.startswith("rel:"))
        for number, text in enumerate(containers)
        for place, arch in enumerate(text.removeprefix("rel:").split())
    ]
    versions = wrappers or (1,) * len(containers)
    named = [index for index, version in enumerate(versions) if version]
    return replace(
        base,
        containers=tuple(
            Container(section=_section(text), offset=1000 * index, size=500, code=each.code)
            for index, (text, each) in enumerate(zip(containers, base.containers, strict=True))
        ),
        entries=tuple(entries),
        registration=Registration(
            wrappers=tuple(Wrapper(version=versions[index], container=index) for index in named),
            module_ids=(),
            containers=len(containers),
            unnamed=tuple(index for index in range(len(containers)) if index not in named),
        ),
    )


def _section(text: str) -> str:
    return "__nv_relfatbin" if text.startswith("rel:") else ".nv_fatbin"


def _entry(container: int, place: int, arch: str, *, linked: bool) -> Entry:
    name, _, options = arch.partition("/")
    kind = {"sm": "cubin", "compute": "ptx", "lto": "lto-ir"}[name.partition("_")[0]]
    return Entry(
        container=container,
        section=".nv_fatbin" if linked else "__nv_relfatbin",
        offset=1000 * container + 16 + 100 * place,
        kind=kind,  # type: ignore[arg-type]
        arch=Arch.parse(name),
        linked=linked,
        compression="none" if options == "raw" else "lz4" if options == "lz4" else "zstd",
        ptx_isa="8.8" if kind == "ptx" else None,
        cubin_abi=8,
        header_size=64,
        bytes=36,
        compressed_bytes=0 if options == "raw" else 30,
        real_bytes=100,
        debug=options == "debug",
        flags=0,
        options="",
        identifier="",
    )


def kept(plan: LibraryPlan) -> str:
    """As `made` writes them, `-` for a container that is left empty."""
    containers: dict[int | None, list[str]] = {}
    for each in plan.entries:
        containers.setdefault(each.entry.container, []).extend([each.entry.arch] if each.keep else [])
    return " | ".join(" ".join(archs) or "-" for archs in containers.values())


def slim(found: Library, *gpus: str, **changes: Any) -> LibraryPlan:
    return decide_library(found, engine.task(*gpus, **changes))


@pytest.mark.parametrize(
    ("container", "gpus", "expected"),
    [
        ("sm_80 sm_86 sm_90 compute_90", "9.0", "sm_90"),
        ("sm_80 sm_86 sm_90 compute_90", "8.0 9.0", "sm_80 sm_90"),
        ("sm_80 sm_86 sm_90 compute_90", "8.9", "sm_86"),
        ("sm_80 sm_90 compute_90", "10.0", "compute_90"),
        ("compute_70 compute_80 compute_90", "8.6", "compute_80"),
        ("sm_90 sm_90a compute_90a", "9.0", "sm_90a"),
        ("sm_90a sm_90 sm_90", "9.0", "sm_90a"),
        ("sm_90 sm_90 sm_100", "9.0", "sm_90"),
        ("sm_80 lto_90", "8.0", "sm_80 lto_90"),
        ("sm_100f sm_100 compute_90", "10.0", "sm_100f"),
    ],
)
def test_what_the_driver_would_take(container: str, gpus: str, expected: str) -> None:
    assert kept(slim(made(container), *gpus.split())) == expected


def test_code_that_may_not_run_there_has_a_second_choice() -> None:
    """Family code of another member, and desktop code on a Tegra: nobody has promised either."""
    assert kept(slim(made("sm_100f sm_100 compute_90 sm_120"), "10.3")) == "sm_100f sm_100"
    assert kept(slim(made("sm_80 sm_86 compute_80 sm_90"), "8.7")) == "sm_80 sm_86 compute_80"


def test_a_switch_of_the_environment_changes_nothing() -> None:
    machine = replace(from_gpu("9.0"), jit="forced")
    plan = decide_library(made("sm_80 sm_90 compute_80"), SlimTask(machines=(machine,)))
    assert kept(plan) == "sm_90 compute_80"


def test_containers_with_nothing_for_the_machine_are_emptied() -> None:
    plan = slim(made("sm_80 sm_90", "sm_80", "sm_100"), "9.0")
    assert kept(plan) == "sm_90 | - | -"
    assert plan.entries[0].reason == "none of these machines would load it"
    assert plan.entries[1].reason == "what the driver takes for 9.0"


def test_a_library_with_nothing_at_all_for_the_machines_is_left() -> None:
    plan = slim(made("sm_80 sm_86", "sm_80"), "9.0")
    assert not plan.changes
    assert [each.rule for each in plan.untouched] == ["nothing-for-targets"]
    assert not plan.refused
    assert kept(slim(made("sm_80 sm_86", "sm_80"), "9.0", force=True)) == "- | -"


def test_a_library_with_nothing_that_a_driver_loads_is_left() -> None:
    """Code for the linker alone, as libraries of templates have it."""
    plan = slim(made("lto_90", "lto_80 lto_100"), "9.0")
    assert not plan.changes
    assert [each.rule for each in plan.untouched] == ["nothing-for-targets"]


def test_future_keeps_ptx_for_later_gpus() -> None:
    found = made("sm_80 sm_90 compute_80 compute_90 compute_90a", "sm_90 compute_75")
    assert kept(slim(found, "8.0")) == "sm_80 | compute_75"
    assert kept(slim(found, "8.0", future=True)) == "sm_80 compute_80 compute_90 compute_90a | compute_75"
    assert kept(slim(found, "9.0", future=True)) == "sm_90 compute_90 | sm_90 compute_75"


def test_a_machine_of_unknown_capability_keeps_everything() -> None:
    machine = replace(from_gpu("9.0"), capability=None, name="the old one")
    plan = decide_library(made("sm_80 sm_90"), SlimTask(machines=(machine, from_gpu("9.0"))))
    assert not plan.changes
    assert "the old one" in plan.entries[0].reason


def test_relocatable_code_stays_as_the_driver_would_link_it() -> None:
    found = made("rel:sm_80 sm_90 compute_80", "rel:sm_80 sm_90", "sm_80 sm_90", wrappers=(1, 1, 2))
    assert kept(slim(found, "9.0")) == "sm_90 | sm_90 | sm_90"
    assert slim(found, "9.0").entries[1].reason == "what the driver would link for 9.0"


def test_relocatable_code_goes_where_linked_code_covers_all() -> None:
    found = made("rel:sm_80 sm_90 compute_90", "sm_80 sm_90", wrappers=(1, 2))
    assert kept(slim(found, "9.0", drop_relocatable=True)) == "- | sm_90"
    uncovered = slim(found, "9.0", "10.0", drop_relocatable=True)
    assert [each.rule for each in uncovered.refused] == ["relocatable-code-needed"]
    assert kept(uncovered) == "sm_90 compute_90 | sm_90"
    assert kept(slim(found, "9.0", "10.0", drop_relocatable=True, force=True)) == "- | sm_90"


def test_relocatable_code_for_all_architectures_goes_only_if_all_are_linked() -> None:
    assert (
        kept(slim(made("rel:sm_80 sm_90", "sm_80 sm_90", wrappers=(1, 2)), drop_relocatable=True)) == "- | sm_80 sm_90"
    )
    refused = slim(made("rel:sm_80 sm_90 compute_90", "sm_80 sm_90", wrappers=(1, 2)), drop_relocatable=True)
    assert refused.refused
    assert not refused.changes


def test_what_nobody_names_is_left_and_reported() -> None:
    plan = slim(made("sm_80 sm_90", "sm_80 sm_90", wrappers=(1, 0)), "9.0")
    assert kept(plan) == "sm_90 | sm_80 sm_90"
    (finding,) = plan.untouched
    assert finding.rule == "container-without-wrapper"
    assert finding.message.startswith("2 pieces of device code left unchanged: ")
    assert "100 B of it are for other GPUs" in finding.message


def test_no_wrappers_at_all() -> None:
    found = made("sm_80 sm_90")
    found = replace(found, registration=replace(found.registration, wrappers=(), unnamed=()))
    plan = slim(found, "9.0")
    assert not plan.changes
    assert [each.rule for each in plan.untouched] == ["container-without-wrapper"]


@pytest.mark.parametrize(
    ("file", "rule"),
    [
        ("object-130.o", "not-linked"),
        ("archive-130.a", "not-linked"),
        ("bare-130.fatbin", "not-linked"),
        ("bare-130.cubin", "not-linked"),
        ("hidden-130.so", "code-elsewhere"),
    ],
)
def test_files_that_are_left_say_what_they_could_save(file: str, rule: str) -> None:
    plan = engine.plan(BIN / file, "8.0")
    assert not plan.changes
    assert [each.rule for each in plan.untouched] == [rule]
    assert plan.bytes_after_estimate == plan.bytes_before
    if file != "bare-130.cubin":
        assert "are for other GPUs" in plan.untouched[0].message


def test_damaged_files_are_left() -> None:
    found = replace(made("sm_80 sm_90"), findings=engine.read(BIN / "plain-130.so").findings)
    assert slim(found, "9.0").changes
    data = bytearray((BIN / "plain-130.so").read_bytes())
    at = data.index(b"\x50\xed\x55\xba")
    data[at + 16 + 8] ^= 0xFF
    from cuwheel_core.device_code import library as reader
    from cuwheel_core.support.buffer import MemoryBuffer

    plan = slim(reader.read_library(MemoryBuffer("damaged", bytes(data)), detail="entries"), "9.0")
    assert not plan.changes
    assert [each.rule for each in plan.untouched] == ["damaged"]


def test_debug_code_goes_where_the_same_is_beside_it_without() -> None:
    found = made("sm_90/debug sm_90 sm_80/debug")
    assert kept(slim(found, "9.0")) == "sm_90"
    assert [each.keep for each in slim(found, "9.0").entries] == [True, False, False]
    plan = slim(found, "9.0", strip_debug=True)
    assert [each.keep for each in plan.entries] == [False, True, False]
    alone = slim(made("sm_90/debug"), "9.0", strip_debug=True)
    assert not alone.changes
    assert [each.rule for each in alone.untouched] == ["debug-code"]


def test_recompression_by_what_the_drivers_read() -> None:
    found = made("sm_90/raw sm_90/lz4 sm_90a compute_90/raw lto_90/raw", toolkits=("12.4",))
    whole = slim(found, recompress=True)
    assert [each.recompress_to for each in whole.entries] == ["zstd", "zstd", None, "zstd", None]
    assert [each.rule for each in whole.untouched] == ["zstd-needs-driver"]
    old = replace(from_gpu("9.0"), driver="535.54.03", os="linux")
    plan = decide_library(
        made("sm_90/raw sm_80/raw compute_90/raw", toolkits=("12.4",)),
        SlimTask(request=SlimRequest(recompress=True), machines=(old,)),
    )
    assert [(each.keep, each.recompress_to) for each in plan.entries] == [(True, "lz4"), (False, None), (False, None)]
    new = replace(old, driver="580.65.06")
    known = decide_library(found, SlimTask(request=SlimRequest(recompress=True), machines=(new,)))
    assert not known.untouched


def test_the_estimate_is_what_is_dropped() -> None:
    plan = slim(made("sm_80 sm_90 compute_90"), "9.0")
    assert plan.bytes_before - plan.bytes_after_estimate == 200


def test_a_container_without_kernels_stays_as_it_is() -> None:
    """Emptied, it could not be told from one that lost its kernels; alone it is nothing for any machine."""
    both = made("sm_80 sm_90", "sm_75")
    first, second = both.containers
    marked = replace(both, containers=(first, replace(second, without_kernels=True)))
    assert kept(slim(marked, "9.0")) == "sm_90 | sm_75"
    assert [each.rule for each in slim(marked, "12.0").untouched] == ["nothing-for-targets"]
    linked = replace(marked, registration=made("sm_90", "sm_75", wrappers=(1, 2)).registration)
    assert kept(slim(linked, "9.0")) == "sm_90 | -"  # every shared library of nvcc's has an empty one
