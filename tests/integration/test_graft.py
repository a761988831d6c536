"""Real libraries of nvcc put together: what fits behaves as one build, what does not is refused for its reason."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache as remembered
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cuwheel
from cuwheel.device_code import description
from cuwheel.device_code.description import Description
from cuwheel_core.device_code.library import read_library
from cuwheel_core.errors import MalformedError
from cuwheel_core.support.buffer import FileBuffer
from tests.fixtures import cache, grafts, manifest, wheels
from tests.fixtures.small_wheel import Wheel
from tests.oracle import packages

if TYPE_CHECKING:
    from cuwheel.report.graft import Graft

TAG = "py3-none-linux_x86_64"


@remembered
def library(name: str) -> Path:
    try:
        return grafts.library(name)
    except cache.UnavailableError as error:
        pytest.skip(str(error))


def entries(path: Path) -> list[list[tuple[str, str, bytes]]]:
    """Of each container: kind, architecture and the bytes, header and all."""
    buffer = FileBuffer(path)
    try:
        found: list[list[tuple[str, str, bytes]]] = []
        for each in read_library(buffer, detail="entries").entries:
            while len(found) <= (each.container or 0):
                found.append([])
            data = buffer.read(each.offset, each.header_size + each.bytes)
            found[each.container or 0].append((each.kind, str(each.arch), data))
        return found
    finally:
        buffer.close()


def lint(path: Path) -> str:
    if not shutil.which("eu-elflint"):
        return "No errors"
    return subprocess.run(["eu-elflint", "--gnu-ld", path], capture_output=True, text=True, check=False).stdout.strip()


def grafted(tmp_path: Path, base: str, donor: str, *, force: bool = False, dry_run: bool = False) -> tuple[Graft, Path]:
    out = tmp_path / "made.so"
    return cuwheel.graft(library(base), [library(donor)], output=out, force=force, dry_run=dry_run), out


def load(library: Path) -> None:
    """Every relocation, every constructor and, since the process ends, what runs when it is unloaded."""
    subprocess.run([sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", library], check=True)


def rule_of(made: Graft) -> str:
    assert made.refused
    assert not made.succeeded
    (finding,) = made.findings
    assert "{" not in finding.fix
    return finding.rule


FITTING = [
    ("80", "both"),
    ("80", "both-ptx"),
    pytest.param("80-small", "both-small", marks=pytest.mark.slow),
    pytest.param("80-shared", "both-shared", marks=pytest.mark.slow),
    ("80-rdc", "both-rdc"),
]


@pytest.mark.parametrize(("base", "donor"), FITTING)
def test_a_witness_proves_it_and_the_code_is_that_of_one_build(tmp_path: Path, base: str, donor: str) -> None:
    made, out = grafted(tmp_path, base, donor)
    assert made.written, made.findings
    assert made.proof
    assert made.proof.kind == "witness"
    assert made.proof.witness == ("sm_80",)
    assert {str(each.arch) for each in made.added} >= {"sm_90"}
    mine, theirs = entries(out), entries(library(donor))
    assert [[each[:2] for each in one] for one in mine] == [[each[:2] for each in one] for one in theirs]
    assert mine[1:] == theirs[1:]  # in the first, what a device linker made, it also wrote of its own call
    assert lint(out) == "No errors"
    if "shared" not in base:
        load(out)
    assert out.stat().st_mode == library(base).stat().st_mode


def test_what_was_grafted_can_be_slimmed_stripped_and_grafted_again(tmp_path: Path) -> None:
    _, out = grafted(tmp_path, "80", "both")
    slim = tmp_path / "slim.so"
    assert cuwheel.slim(out, machines=["9.0"], output=slim).written
    assert [[each[1] for each in one] for one in entries(slim)] == [["sm_90"]] * 3
    again = tmp_path / "again.so"
    assert cuwheel.graft(slim, [library("both")], output=again).written
    assert entries(again)[1:] == entries(library("both"))[1:]
    for tool in ("strip", "patchelf"):
        words = ["--set-rpath", "/a/path/longer/than/any/before/it:$ORIGIN"] if tool == "patchelf" else []
        if shutil.which(tool):
            subprocess.run([tool, *words, again], check=True, capture_output=True)
            load(again)
            assert entries(again)[1:] == entries(library("both"))[1:]


@pytest.mark.parametrize("donor", ["both", "both-other-later"])
def test_a_witness_shows_nothing_of_what_stands_under_cuda_arch(tmp_path: Path, donor: str) -> None:
    """Without a source that both recorded nothing tells these donors apart: then the answer says what was not seen."""
    made, _ = grafted(tmp_path, "80", donor)
    assert made.proof
    (unseen,) = made.proof.not_compared
    assert "sm_90" in unseen
    assert "__CUDA_ARCH__" in unseen

    recorded = {
        sources: Wheel(
            name="subject",
            tag=TAG,
            files={
                "subject/lib.so": library(which).read_bytes(),
                f"subject-1.0.dist-info/{description.NAME}": description.encoded(
                    Description(cuda="13.0", archs=("sm_80",), sources=sources)
                ),
            },
        ).write(tmp_path / sources)
        for sources, which in (("a" * 64, "80"), ("b" * 64, donor))
    }
    base, other = recorded.values()
    refused = cuwheel.graft(base, [other], output=tmp_path / "out")
    assert rule_of(refused) == "graft-other-record"
    assert "__CUDA_ARCH__" in refused.findings[0].message


def test_sources_that_both_recorded_as_the_same_show_what_a_witness_cannot(tmp_path: Path) -> None:
    told = description.encoded(Description(cuda="13.0", archs=("sm_80",), sources="a" * 64))
    base, donor = (
        Wheel(
            name="subject",
            tag=TAG,
            files={"subject/lib.so": library(each).read_bytes(), f"subject-1.0.dist-info/{description.NAME}": told},
        ).write(tmp_path / each)
        for each in ("80", "both")
    )
    made = cuwheel.graft(base, [donor], output=tmp_path / "out")
    assert made.proof
    assert made.proof.kind == "witness"
    assert not made.proof.not_compared
    assert "the sources of both, by their hashes" in made.proof.compared


REFUSED = [
    ("80", "both-other-body", "graft-other-code"),
    pytest.param("80", "both-other-flags", "graft-other-code", marks=pytest.mark.slow),
    ("80", "both-other-path", "graft-other-kernels"),
    pytest.param("80-rdc", "both-rdc-other-path", "graft-other-kernels", marks=pytest.mark.slow),
    pytest.param("80", "both-other-order", "graft-other-kernels", marks=pytest.mark.slow),
    ("80", "both-other-parameters", "graft-other-kernels"),
    ("80-plain-names", "both-plain-names-other-parameters", "graft-other-parameters"),
    ("80", "both-other-variables", "graft-other-variables"),
    pytest.param("80", "both-more-files", "graft-other-registration", marks=pytest.mark.slow),
    ("80", "both-rdc", "graft-other-registration"),
    ("80", "both-13.4", "graft-other-cuda"),
    pytest.param("cub-80-short-list", "cub-both", "graft-arch-list", marks=pytest.mark.slow),
    pytest.param("cub-80-short-list", "cub-both-short-list", "graft-arch-list", marks=pytest.mark.slow),
    ("80", "90", "graft-no-proof"),
    ("80", "90-other-body", "graft-no-proof"),
    pytest.param("80-rdc", "90-rdc", "graft-no-proof", marks=pytest.mark.slow),
    ("80", "90-host-flags", "graft-other-host"),
    pytest.param("80", "90-host-compiler", "graft-other-host", marks=pytest.mark.slow),  # another one is downloaded
]


@pytest.mark.parametrize(("base", "donor", "rule"), REFUSED)
def test_what_does_not_fit_is_refused_for_its_reason(tmp_path: Path, base: str, donor: str, rule: str) -> None:
    made, out = grafted(tmp_path, base, donor)
    assert rule_of(made) == rule, made.findings
    assert str(library(base)) in made.findings[0].message
    assert made.findings[0].fix
    assert not out.exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow  # twelve seconds to compile; what is refused of CUB is there too
def test_cub_with_the_whole_list_fits(tmp_path: Path) -> None:
    made, _ = grafted(tmp_path, "cub-80", "cub-both")
    assert made.written, made.findings


@pytest.mark.parametrize(("base", "donor"), [("80", "90"), ("80", "both-other-path")])
def test_a_person_may_know_better(tmp_path: Path, base: str, donor: str) -> None:
    made, out = grafted(tmp_path, base, donor, force=True)
    assert made.written
    assert made.proof
    assert made.proof.kind == "forced"
    assert [each.severity for each in made.findings] == ["warning"]
    assert ["sm_80", "sm_90"] in [[each[1] for each in one] for one in entries(out)]
    load(out)


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path: Path) -> None:
    planned, out = grafted(tmp_path, "80", "both", dry_run=True)
    assert not out.exists()
    made, _ = grafted(tmp_path, "80", "both")
    assert planned.libraries == made.libraries
    assert planned.proof == made.proof


def test_nothing_new(tmp_path: Path) -> None:
    made, out = grafted(tmp_path, "both", "80")
    assert [each.rule for each in made.findings] == ["graft-nothing-new"]
    assert made.succeeded
    assert not out.exists()


def wheel(folder: Path, name: str, version: str = "1.0", **more: str) -> Path:
    files: dict[str, str | bytes] = {"subject/__init__.py": "", "subject/lib.so": library(name).read_bytes(), **more}
    return Wheel(files=files, tag=TAG, version=version).write(folder)


def unpacked(path: Path, folder: Path) -> Path:
    shutil.unpack_archive(path, folder, "zip")
    return folder


def test_wheels(tmp_path: Path) -> None:
    base, donor = wheel(tmp_path / "base", "80"), wheel(tmp_path / "donor", "both")
    made = cuwheel.graft(base, [donor], output=tmp_path / "out")
    (output,) = (tmp_path / "out").iterdir()
    assert made.outputs == (str(output),)
    assert output.name == f"subject-1.0+sm90-{TAG}.whl"
    inside = unpacked(output, tmp_path / "inside")
    assert entries(inside / "subject" / "lib.so")[1:] == entries(library("both"))[1:]
    note = json.loads((inside / "subject-1.0+sm90.dist-info" / "cuwheel-graft.json").read_bytes())
    assert note["libraries"][0]["proof"]["kind"] == "witness"
    assert note["base"]["version"] == "1.0"
    assert cuwheel.verify(output, static=True).succeeded


def test_force_is_written_into_the_wheel(tmp_path: Path) -> None:
    base, donor = wheel(tmp_path / "base", "80"), wheel(tmp_path / "donor", "90-other-body")
    refused = cuwheel.graft(base, [donor], output=tmp_path / "out")
    assert rule_of(refused) == "graft-no-proof"
    assert not (tmp_path / "out").exists()
    made = cuwheel.graft(base, [donor], output=tmp_path / "out", force=True)
    inside = unpacked(Path(made.outputs[0]), tmp_path / "inside")
    note = json.loads(next(inside.glob("*.dist-info/cuwheel-graft.json")).read_bytes())
    assert [each["rule"] for each in note["forced"]] == ["graft-no-proof"]
    assert note["libraries"][0]["proof"]["kind"] == "forced"


def test_what_was_forced_is_still_said_after_the_next_graft(tmp_path: Path) -> None:
    base, donor = wheel(tmp_path / "base", "80"), wheel(tmp_path / "donor", "90")
    first = cuwheel.graft(base, [donor], output=tmp_path / "first", force=True)
    third = wheel(tmp_path / "third", "both-ptx")
    second = cuwheel.graft(Path(first.outputs[0]), [third], output=tmp_path / "second")
    assert second.written, second.findings
    assert not second.findings
    inside = unpacked(Path(second.outputs[0]), tmp_path / "inside")
    note = json.loads(next(inside.glob("*.dist-info/cuwheel-graft.json")).read_bytes())
    assert [each["rule"] for each in note["forced"]] == ["graft-no-proof"]
    assert [each["proof"]["kind"] for each in note["libraries"]] == ["forced", "witness"]


def test_a_wheel_that_is_not_what_its_record_says_is_not_grafted(tmp_path: Path) -> None:
    base = wheel(tmp_path / "base", "80")
    wrong = {"subject/lib.so": "subject/lib.so,sha256=AAAA,1"}
    files: dict[str, str | bytes] = {"subject/lib.so": library("both").read_bytes()}
    donor = Wheel(files=files, tag=TAG, record=wrong).write(tmp_path / "donor")
    with pytest.raises(MalformedError, match="RECORD"):
        cuwheel.graft(base, [donor], output=tmp_path / "out")


@pytest.mark.parametrize(
    "name", ["both", "both-ptx", "both-rdc", "both-small", pytest.param("cub-both", marks=pytest.mark.slow)]
)
def test_the_parts_of_a_wheel_make_the_whole(tmp_path: Path, name: str) -> None:
    whole = wheel(tmp_path / "whole", name)
    parts = cuwheel.graft(whole, split=True, output=tmp_path / "parts")
    places = [Path(each) for each in parts.outputs]
    assert [each.name for each in places] == [f"subject-1.0+{arch}-{TAG}.whl" for arch in ("sm80", "sm90")]
    for place, arch in zip(places, ("sm_80", "sm_90"), strict=True):
        (found,) = cuwheel.inspect(place).libraries
        assert {str(row.arch).rpartition("_")[2] for row in found.device_code} == {arch.rpartition("_")[2]}
        assert cuwheel.verify(place, static=True).succeeded
    made = cuwheel.graft(places[0], places[1:], output=tmp_path / "again")
    assert made.proof
    assert made.proof.kind == "record"
    assert Path(made.outputs[0]).name == whole.name
    inside = unpacked(Path(made.outputs[0]), tmp_path / "inside") / "subject" / "lib.so"
    assert entries(inside) == entries(library(name))
    assert lint(inside) == "No errors"
    load(inside)


def test_parts_of_different_wheels_are_not_taken_for_parts_of_one(tmp_path: Path) -> None:
    first = cuwheel.graft(wheel(tmp_path / "a", "both"), split=True, output=tmp_path / "pa").outputs
    other = wheel(tmp_path / "b", "both-other-body")
    second = cuwheel.graft(other, split=True, output=tmp_path / "pb").outputs
    assert rule_of(cuwheel.graft(first[0], second[1:], output=tmp_path / "out")) == "graft-no-proof"


def test_the_command(tmp_path: Path) -> None:
    command: list[str | Path] = [Path(sys.executable).with_name("cuwheel"), "graft", library("80"), library("90")]
    done = subprocess.run([*command, "-o", tmp_path / "x.so"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "graft-no-proof" in done.stdout
    forced = subprocess.run(
        [*command, "-o", tmp_path / "x.so", "--force", "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(forced.stdout)["proof"]["kind"] == "forced"


def _parts_and_whole(whole: Path, tmp_path: Path) -> None:
    """A wheel for another processor: split, put together again, linted and read; it cannot be loaded here."""
    parts = [Path(each) for each in cuwheel.graft(whole, split=True, output=tmp_path / "parts").outputs]
    assert len(parts) > 1
    made = cuwheel.graft(parts[0], parts[1:], output=tmp_path / "again")
    assert made.written, made.findings
    before, after = unpacked(whole, tmp_path / "before"), unpacked(Path(made.outputs[0]), tmp_path / "after")
    libraries = [path.relative_to(before) for path in before.rglob("*.so") if any(entries(path))]
    assert libraries
    for each in libraries:
        assert entries(after / each) == entries(before / each)
        # A segment of code and data alike, cut in two, stays executable: what sections say is not relied upon.
        told = [line for line in lint(after / each).splitlines() if "executable but contains no" not in line]
        assert told in ([], lint(before / each).splitlines())
    found = {each.path: each.device_code for each in cuwheel.inspect(Path(made.outputs[0])).libraries}
    assert found == {each.path: each.device_code for each in cuwheel.inspect(whole).libraries}


def test_a_library_for_another_processor(tmp_path: Path) -> None:
    content = (manifest.HERE / "bin" / "aarch64-130.so").read_bytes()
    whole = wheels.wheel(tmp_path / "in", {"arm/x.so": content}, name="arm", platform="linux_aarch64")
    _parts_and_whole(whole, tmp_path)


@pytest.mark.download
def test_a_published_wheel_for_another_processor(tmp_path: Path) -> None:
    try:
        (arm,) = [each for each in packages.published() if str(each) == "bitsandbytes-0.50.2-manylinux-aarch64"]
        whole = packages.wheel(arm)
    except cache.UnavailableError as error:
        pytest.skip(str(error))
    _parts_and_whole(whole, tmp_path)
