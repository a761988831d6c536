"""Variant wheels against those who read them: variantlib, uv on simulated machines, and pip, which knows none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from variantlib.commands import generate_index_json
from variantlib.variant_dist_info import VariantDistInfo
from variantlib.variants_json import VariantsJson

import cuwheel
from cuwheel.changes.stamp import variants
from cuwheel.device_code.survey import survey
from cuwheel.network import venvs
from cuwheel.verdicts import judge, variant_reach
from cuwheel.verdicts.verdict import ORDER
from cuwheel.wheel.file import WheelFile
from cuwheel_core.facts import toolkits, versions
from cuwheel_core.facts.arch import Capability
from cuwheel_core.verdicts import predict
from tests.fixtures import servers
from tests.fixtures.small_wheel import Wheel
from tests.unit.changes.slim.packages import fixture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.device_code.contents import Survey
    from cuwheel.wheel.variant import VariantSet

pytestmark = pytest.mark.oracle

TAG = "py3-none-manylinux_2_17_x86_64"
# What is in each, and the CUDA that wrote it: sm_60 75 90; sm_52 61 90 and PTX 90; sm_75 90 100; sm_80 90 and PTX 90;
# sm_90 100 and PTX 100.
LIBRARIES = {"names-124": "12.4", "plain-124": "12.4", "names-130": "13.0", "size-130": "13.0", "plain-134": "13.4"}
MACHINES = (
    *(("5.2", "12.2"), ("6.0", "12.0"), ("6.1", "12.8"), ("7.0", "12.9"), ("7.5", "12.4"), ("7.5", "13.0")),
    *(("8.6", "12.8"), ("8.6", "13.0"), ("8.9", "13.2"), ("9.0", "11.8"), ("9.0", "12.2"), ("9.0", "12.4")),
    *(("9.0", "13.0"), ("9.0", "13.4"), ("10.0", "12.8"), ("10.0", "13.0"), ("10.3", "13.4"), ("12.0", "12.8")),
    *(("12.0", "13.0"), ("12.0", "13.4"), ("12.1", "12.9"), ("12.1", "13.0")),
)
PLAIN = "plain"


def plain(folder: Path, library: str, cuda: str) -> Path:
    return Wheel(
        name="pkg",
        version=f"1.0+cu{cuda.replace('.', '')}",
        tag=TAG,
        files={"pkg/__init__.py": "", "pkg/libpkg.so": fixture(f"{library}.so")},
    ).write(folder / library)


def written(folder: Path, libraries: dict[str, str]) -> VariantSet:
    (made,), _ = variants.write_all([plain(folder, *each) for each in libraries.items()], folder)
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> VariantSet:
    return written(tmp_path_factory.mktemp("variants"), LIBRARIES)


@pytest.fixture(scope="module")
def published(made: VariantSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the same wheels, labelled and not, as `publish --variants` makes it."""
    folder = tmp_path_factory.mktemp("published") / "index"
    wheels = dict.fromkeys(Path(each.made_from) for each in made.wheels)
    # Of the wheels with one label the first: an index has one file of a name.
    given = {each.name: each for each in reversed(wheels)}
    answer = cuwheel.publish([*given.values(), Path(made.document).parent], to=folder, variants=True)
    assert answer.succeeded, answer.findings
    return folder


@pytest.fixture(params=["loopback", "file"])
def index(request: pytest.FixtureRequest, published: Path) -> Iterator[str]:
    if request.param == "file":
        yield published.as_uri()
        return
    with servers.files_of(published) as url:
        yield url


def installed_by_uv(source: tuple[str, ...], to: Path, capability: str = "", cuda: str = "") -> str:
    """The label of what uv installs on such a machine."""
    program = venvs.uv()
    if program is None:
        pytest.skip("uv is not installed here")
    machine = {
        "NV_VARIANT_PROVIDER_FORCE_SM_ARCH": capability,
        "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": cuda,
    }
    environ = {**os.environ, "UV_NO_CONFIG": "1", **{name: value for name, value in machine.items() if value}}
    words = ["pip", "install", "--preview-features", "wheel-variants", "--no-cache", "--python", sys.executable]
    command = [str(program), *words, *source, "--target", str(to), "pkg"]
    subprocess.run(command, check=True, capture_output=True, env=environ, timeout=600)
    return label_in(to)


def label_in(folder: Path) -> str:
    found = next(folder.glob("pkg-*.dist-info/variant.json"), None)
    return next(iter(json.loads(found.read_bytes())["variants"])) if found else PLAIN


def rank(label: str, found: Survey, capability: str, cuda: str) -> tuple[int, bool, float]:
    """How good a wheel is on a machine, the best first: by outcome, then by the CUDA nearest to the driver's."""
    machine = variant_reach.machine(found, Capability.parse(capability), cuda)
    outcome = judge.judge(found, machine).outcome
    toolkit = toolkits.find_release(label.partition("_")[0]).version
    return ORDER.index(outcome), not versions.at_least(cuda, toolkit), abs(float(toolkit) - float(cuda))


@pytest.fixture(scope="module")
def surveys(made: VariantSet) -> dict[str, Survey]:
    """By label."""
    return {each.label: survey(each.path, detail="containers") for each in made.wheels}


def foreseen(surveys: dict[str, Survey], capability: str, cuda: str) -> set[str]:
    """The labels of the wheels that run best, by the predictor alone; or the plain wheel."""
    ranks = {label: rank(label, found, capability, cuda) for label, found in surveys.items()}
    best = min(ranks.values())
    served = ORDER[best[0]] in predict.GOOD
    return {label for label, each in ranks.items() if each == best} if served else {PLAIN}


@pytest.mark.parametrize(("capability", "cuda"), MACHINES)
def test_uv_takes_what_the_predictor_would(
    made: VariantSet, surveys: dict[str, Survey], tmp_path: Path, capability: str, cuda: str
) -> None:
    folder = str(Path(made.document).parent)
    label = installed_by_uv(("--no-index", "--find-links", folder), tmp_path / "to", capability, cuda)
    assert label in foreseen(surveys, capability, cuda)


@pytest.mark.parametrize(("capability", "cuda"), MACHINES)
def test_from_the_channel_of_a_published_index_too(
    index: str, surveys: dict[str, Survey], tmp_path: Path, capability: str, cuda: str
) -> None:
    source = ("--default-index", f"{index}/variants/simple")
    label = installed_by_uv(source, tmp_path / "to", capability, cuda)
    assert label in foreseen(surveys, capability, cuda)


def test_pip_takes_the_plain_wheel_from_there(index: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pip", "install", "--no-deps", "-q", "--target", str(tmp_path / "to")]
    command = [*words, "--index-url", f"{index}/variants/simple", "pkg"]
    subprocess.run(command, check=True, capture_output=True, timeout=600, env=without_settings())
    assert label_in(tmp_path / "to") == PLAIN
    assert (tmp_path / "to" / "pkg-1.0.dist-info").is_dir()


def without_settings() -> dict[str, str]:
    return {**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "", "PIP_FIND_LINKS": ""}


def test_without_a_gpu_uv_takes_the_plain_wheel(made: VariantSet, tmp_path: Path) -> None:
    folder = str(Path(made.document).parent)
    assert installed_by_uv(("--no-index", "--find-links", folder), tmp_path / "to") == PLAIN


def test_pip_takes_the_plain_wheel(made: VariantSet, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "-q", "--target", str(tmp_path / "to")]
    command = [*words, "--find-links", str(Path(made.document).parent), "pkg"]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    assert (tmp_path / "to" / "pkg-1.0.dist-info").is_dir()
    assert label_in(tmp_path / "to") == PLAIN


def test_variantlib_reads_every_variant(made: VariantSet) -> None:
    for each in made.wheels:
        with WheelFile(Path(each.path)) as wheel:
            told = VariantDistInfo(wheel.read(f"{wheel.info}variant.json"), each.label)
        said = {(one.namespace, one.feature, one.value) for one in told.variant_desc.properties}
        assert said == {(one.namespace, one.feature, value) for one in each.properties for value in one.values}


def test_variantlib_makes_the_same_document(made: VariantSet, monkeypatch: pytest.MonkeyPatch) -> None:
    document = Path(made.document)
    ours = VariantsJson(json.loads(document.read_bytes()))
    saved = document.read_bytes()
    monkeypatch.setattr(sys, "argv", ["variantlib"])
    generate_index_json.generate_index_json(["--directory", str(document.parent)])
    theirs = VariantsJson(json.loads(document.read_bytes()))
    document.write_bytes(saved)
    assert theirs.variants == ours.variants
    assert theirs.providers == ours.providers
    assert theirs.namespace_priorities == ours.namespace_priorities


# Where uv's rule is coarser than the truth. docs/howto/variants.md tells of these; should uv learn better, they fail.


def test_code_with_a_suffix_cannot_be_named_so_that_uv_takes_what_must_be_compiled(tmp_path: Path) -> None:
    made = written(tmp_path, {"specific-130": "13.0", "size-130": "13.0"})  # sm_90 90a 120a; sm_80 90 and PTX 90
    found = {each.label: survey(each.path, detail="containers") for each in made.wheels}
    assert foreseen(found, "12.0", "13.0") == {"cu130_sm90"}
    source = ("--no-index", "--find-links", str(tmp_path))
    assert installed_by_uv(source, tmp_path / "to", "12.0", "13.0") == "cu130_sm80_90_ptx100_120"


def test_uv_prefers_the_newer_cuda_to_machine_code(tmp_path: Path) -> None:
    made = written(tmp_path, {"names-124": "12.4", "ptx-130": "13.0"})  # sm_60 75 90; PTX 75 90
    found = {each.label: survey(each.path, detail="containers") for each in made.wheels}
    assert foreseen(found, "9.0", "13.0") == {"cu124_sm60_75_90"}
    source = ("--no-index", "--find-links", str(tmp_path))
    assert installed_by_uv(source, tmp_path / "to", "9.0", "13.0") == "cu130_ptx80_90_100_120"


def test_a_labelled_version_comes_before_every_variant(tmp_path: Path) -> None:
    written(tmp_path, {"names-124": "12.4", "names-130": "13.0"})
    source = ("--no-index", "--find-links", str(tmp_path), "--find-links", str(tmp_path / "names-130"))
    assert installed_by_uv(source, tmp_path / "to", "9.0", "12.4") == PLAIN
    assert (tmp_path / "to" / "pkg-1.0+cu130.dist-info").is_dir()
