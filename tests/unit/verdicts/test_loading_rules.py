"""bitsandbytes chooses its library otherwise in every few releases: by its own files, else by its version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from cuwheel.facts import packages
from cuwheel.verdicts.judge import judge
from cuwheel.verdicts.loading import loading, profile_of
from cuwheel_core.fix import in_words
from tests.unit.verdicts.subjects import library, machine, survey

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey

pytestmark = pytest.mark.unit

# What each release has in it, as its wheel for Linux lists it.
CUDAS = {
    "0.43.0": ("117", "118", "120", "121", "122", "123"),
    "0.43.3": ("117", "118", "120", "121", "122", "123", "124", "125"),
    "0.44.1": ("117", "118", "120", "121", "122", "123", "124", "125"),
    "0.45.0": ("117", "118", "120", "121", "122", "123", "124", "125", "126"),
    "0.49.0": ("118", "120", "121", "122", "123", "124", "125", "126", "128", "129", "130"),
    "0.50.0": ("118", "121", "124", "126", "128", "130", "132"),
}
TWO_EACH = ("0.43.0", "0.43.3", "0.44.1")


def _wheel(version: str) -> Survey:
    names = [f"bitsandbytes/libbitsandbytes_cuda{cuda}.so" for cuda in CUDAS[version]]
    if version in TWO_EACH:
        names += [name.replace(".so", "_nocublaslt.so") for name in names]
    code = [library("sm_60 sm_70 sm_80 compute_80", path=name, cuda=12) for name in names]
    return survey(
        *code, library(path="bitsandbytes/libbitsandbytes_cpu.so", runtime=False), name="bitsandbytes", version=version
    )


def _loaded(version: str, **known: Any) -> tuple[str, ...]:
    told = loading(_wheel(version), machine(known.pop("capability", "8.0"), **known))
    return tuple(path.removeprefix("bitsandbytes/libbitsandbytes_").removesuffix(".so") for path in told.always)


@pytest.mark.parametrize(
    ("version", "torch", "expected"),
    [
        ("0.43.3", "12.4", ("cuda124",)),
        ("0.43.3", "12.6", ()),
        ("0.45.0", "12.6", ("cuda126",)),
        ("0.45.0", "12.8", ()),
        ("0.49.0", "12.8", ("cuda128",)),
        ("0.49.0", "13.2", ()),
        ("0.50.0", "12.9", ("cuda128",)),
        ("0.50.0", "12.0", ("cuda121",)),
        ("0.50.0", "13.1", ("cuda130",)),
        ("0.50.0", "14.0", ()),
    ],
)
def test_which_library_a_release_takes(version: str, torch: str, expected: tuple[str, ...]) -> None:
    assert _loaded(version, torch_cuda=torch) == expected


@pytest.mark.parametrize("version", TWO_EACH)
def test_old_releases_have_another_for_gpus_without_fast_integers(version: str) -> None:
    assert _loaded(version, capability="7.0", torch_cuda="12.1") == ("cuda121_nocublaslt",)
    assert _loaded(version, capability="7.5", torch_cuda="12.1") == ("cuda121",)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.43.0", "CUDA Setup failed despite GPU being available"),
        ("0.43.3", "Could not find the bitsandbytes CUDA binary"),
        ("0.45.0", "Could not find the bitsandbytes CUDA binary"),
        ("0.49.0", "Configured CUDA binary not found"),
        ("0.50.0", "No compatible CUDA binary found"),
    ],
)
def test_what_it_says_where_there_is_none(version: str, words: str) -> None:
    verdict = judge(_wheel(version), machine("8.0", torch_cuda="14.0"))
    (finding,) = [each for each in verdict.findings if each.severity == "error"]
    assert (verdict.outcome, finding.rule) == ("fails", "no-library-to-load")
    assert words in finding.message


def test_the_fix_offers_the_variable_and_the_link() -> None:
    fix = in_words(loading(_wheel("0.45.0"), machine("8.0", torch_cuda="12.8")).fixes)
    assert "set BNB_CUDA_VERSION=126" in fix
    assert "ln -s libbitsandbytes_cuda126.so libbitsandbytes_cuda128.so" in fix
    assert "copy libbit" in in_words(loading(_wheel("0.45.0"), machine("8.0", torch_cuda="12.8", os="windows")).fixes)
    other_major = in_words(loading(_wheel("0.45.0"), machine("8.0", torch_cuda="13.0")).fixes)
    assert "BNB_CUDA_VERSION" not in other_major
    assert "ln -s" not in other_major


def test_a_variable_that_names_no_file_is_unset() -> None:
    told = loading(_wheel("0.45.0"), machine("8.0", torch_cuda="12.6", loads=("BNB_CUDA_VERSION=128",)))
    assert in_words(told.fixes) == "it then loads the library for CUDA 12.6: `unset BNB_CUDA_VERSION`"
    told = loading(_wheel("0.45.0"), machine("8.0", torch_cuda="12.8", loads=("BNB_CUDA_VERSION=129",)))
    assert in_words(told.fixes).startswith("unset BNB_CUDA_VERSION, or set it to 117 or")


def test_an_empty_variable_is_refused_by_the_newest_alone() -> None:
    assert _loaded("0.49.0", torch_cuda="12.8", loads=("BNB_CUDA_VERSION=",)) == ("cuda128",)
    told = loading(_wheel("0.50.0"), machine("8.0", torch_cuda="12.8", loads=("BNB_CUDA_VERSION=",)))
    assert "digits only" in told.missing


def test_a_variable_and_an_old_gpu_spoil_each_other_in_some_releases() -> None:
    known = {"capability": "7.0", "torch_cuda": "12.1", "loads": ("BNB_CUDA_VERSION=118",)}
    assert _loaded("0.43.3", **known) == ()
    assert _loaded("0.44.1", **known) == ("cuda118_nocublaslt",)
    assert "BNB" not in in_words(loading(_wheel("0.43.3"), machine("7.0", torch_cuda="12.8")).fixes)


def test_before_0_40_1_the_runtime_that_it_finds_decides() -> None:
    profile = packages.find_profile("bitsandbytes", "0.39.1")
    assert profile
    assert profile.follows == "cudart"


CEXTENSION = {
    "0.50": "def _find_cuda_libs(prefix, is_hip):",
    "0.46": 'raise RuntimeError(f"Configured {BNB_BACKEND} binary not found at {cuda_binary_path}")',
    "0.45": 'logger.warning("Could not find the bitsandbytes CUDA binary at %r", cuda_binary_path)',
    "0.44": 'name += "_nocublaslt"; re.sub("cuda\\d+", x); "Could not find the bitsandbytes CUDA binary at %r"',
    "0.43.1": 'name += "_nocublaslt"; stem.rstrip("0123456789"); "Could not find the bitsandbytes CUDA binary at %r"',
}


@pytest.mark.parametrize("release", CEXTENSION)
def test_its_own_files_show_the_rule(release: str) -> None:
    files = {"cextension.py": CEXTENSION[release]}
    assert packages.shown_release("bitsandbytes", lambda name: files.get(name, "")) == release


def test_its_own_files_weigh_more_than_its_version() -> None:
    built_here = replace(_wheel("0.45.0"), loads_as="0.50")
    profile = profile_of(built_here)
    assert profile
    assert profile.picks == "nearest"
    assert loading(built_here, machine("8.0", torch_cuda="12.8")).always == ("bitsandbytes/libbitsandbytes_cuda126.so",)


def test_files_that_show_nothing_leave_it_to_the_version() -> None:
    assert packages.shown_release("bitsandbytes", lambda _: "") is None
    assert packages.shown_release("numpy", lambda _: "anything") is None
