"""Architectures of a plan in place of the caller's: as a model of it in Python does it, and nvcc agrees."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.building.recording import words
from cuwheel.building.recording.shims import RecordOptions
from tests.fixtures import toolkits
from tests.integration.recording import Bench, bench

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.building.recording.calls import Call

PLAN = ("-gencode", "arch=compute_90,code=sm_90")
KEPT = [
    ["--version"],
    ["--list-gpu-arch"],
    ["-arch=sm_80", "-ptx", "a.cu"],
    ["-arch", "sm_80", "-E", "a.cu"],
    ["-cubin", "-arch=sm_80", "a.cu"],
    ["-arch=sm_80"],
]
CHANGED = [
    (["-arch=sm_80", "-c", "a.cu"], ["-c", "a.cu"]),
    (["-arch", "sm_80", "-c", "a.cu"], ["-c", "a.cu"]),
    (["-gencode", "arch=compute_80,code=sm_80", "-gencode=arch=compute_86,code=[sm_86,compute_86]", "a.o"], ["a.o"]),
    (
        ["--generate-code=arch=compute_80,code=sm_80", "--gpu-code", "sm_80", "-code=sm_86", "-dlink", "a.o"],
        ["-dlink", "a.o"],
    ),
    (
        ["--gpu-architecture", "native", "a.cu", "-Xcompiler", "-arch=x", "-o", "-code"],
        ["a.cu", "-Xcompiler", "-arch=x", "-o", "-code"],
    ),
    (["-c", "a.cu"], ["-c", "a.cu"]),
    (["a.cu", "-architecture", "-codeine", "--gencode=x"], ["a.cu", "-architecture", "-codeine", "--gencode=x"]),
    (["a.cu", "-arch"], ["a.cu"]),
]
ATOMS = (
    "-arch", "-arch=sm_80", "sm_80", "-code", "-gencode", "arch=compute_80,code=sm_80", "--gpu-architecture=sm_75",
    "-c", "a.cu", "-Xcompiler", "-fPIC", "-o", "x.o", "--version", "-E", "-ptx", "-D", "-DX=1", "", "-optf", "one.opt",
    "--options-file=one.opt,two.opt", "-optf=missing.opt", "--dryrun", "-I", "-time=x", "@one.opt", "=", "-code=",
)  # fmt: skip
FILES = {"one.opt": "-DONE -arch=sm_70 'a b' ", "two.opt": '-gencode "arch=compute_80,code=sm_80"\n-O2\\ x -code sm_1'}


@pytest.fixture
def at(tmp_path: Path) -> Bench:
    made = bench(tmp_path / "bench", "path")
    shutil.copy("/bin/true", made.tools / "nvcc")
    for name, text in FILES.items():
        (made.folder / name).write_text(text)
    return made


def called(at: Bench, cases: list[list[str]], **more: str) -> tuple[Call, ...]:
    """All of them in one record; nvcc is a program that does nothing."""
    script = "import json, subprocess, sys\nfor each in json.load(open('cases.json')): subprocess.call(['nvcc', *each])"
    (at.folder / "cases.json").write_text(json.dumps(cases))
    wish = RecordOptions(archs=PLAN, phases=False)
    calls = at.run([sys.executable, "-S", "-c", script], wish=wish, popen=None, **more).calls
    assert len(calls) == len(cases)
    return calls


def test_what_is_changed_and_what_is_not(at: Bench) -> None:
    cases = [*KEPT, *(given for given, _ in CHANGED)]
    calls = called(at, cases)
    assert [list(call.words) for call in calls] == cases
    assert [call.ran for call in calls[: len(KEPT)]] == [()] * len(KEPT)
    assert [list(call.ran) for call in calls[len(KEPT) :]] == [[*wanted, *PLAN] for _, wanted in CHANGED]


def test_any_words(at: Bench) -> None:
    chance = random.Random(8)  # noqa: S311 - nobody is to guess it
    cases = [[chance.choice(ATOMS) for _ in range(chance.randrange(1, 9))] for _ in range(300)]
    for case, call in zip(cases, called(at, cases), strict=True):
        assert [_with_text(word) for word in call.ran] == _as_planned(case), case


# A model of shim/archs.h: nvcc takes these spellings and no others, with the value in the same word behind `=`, or in
# the next.

_ARCHS = ("-arch", "--gpu-architecture", "-code", "--gpu-code", "-gencode", "--generate-code")
_FILES = ("--options-file", "-optf")
_TAKING = (*_ARCHS, *_FILES, "-Xcompiler", "-o", "-D", "-I")  # of those that ATOMS and FILES have
_ALONE = ("--version", "-E", "-ptx")  # nvcc tells something, or makes one architecture
_FILE_WORD = re.compile(r"""(?:\\.|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^ \t\r\n"'\\])+""")


def _as_planned(case: list[str]) -> list[str]:
    """What nvcc gets in place of these words, files of options as what is in them; nothing where they stay."""
    result: list[str] = []
    seen: list[str] = []  # without the values of options, but with what files say
    for pair in _pairs(case):
        option, joined, value = pair[0].partition("=")
        if option in _FILES and (joined or len(pair) > 1):
            texts = [FILES.get(name, "") for name in (value if joined else pair[1]).split(",")]
            inside = [each for text in texts for each in _pairs(_FILE_WORD.findall(text))]
            kept = [each for each in inside if each[0].partition("=")[0] not in _ARCHS]
            seen += [each[0] for each in kept]
            if kept != inside:
                copy = f"<{' '.join(word for each in kept for word in each)}>"
                result += [f"--options-file={copy}"] if joined else [pair[0], copy]
                continue
        else:
            seen.append(pair[0])
        result += [] if option in _ARCHS else pair
    asked = {word.partition("=")[0] for word in seen}
    stays = not any(word and not word.startswith("-") for word in seen) or asked.intersection(_ALONE)
    return [] if stays else [*result, *PLAN]


def _pairs(given: list[str]) -> Iterator[list[str]]:
    """Each word, with the next one where that is its value."""
    index = 0
    while index < len(given):
        yield given[index : index + (2 if given[index] in _TAKING else 1)]
        index += 2 if given[index] in _TAKING else 1


def _with_text(word: str) -> str:
    """A copy of a file of options as what is in it."""
    name, joined, path = word.rpartition("=")
    return f"{name}{joined}<{Path(path).read_text()}>" if path.endswith(".options") else word


def test_variables_of_nvcc(at: Bench) -> None:
    flags = '-DA "-DB=c d" -gencode arch=compute_80,code=sm_80 -arch=sm_70 -O1'
    (call,) = called(at, [["-c", "a.cu"]], NVCC_APPEND_FLAGS=flags, NVCC_PREPEND_FLAGS="-O0")
    assert call.changed == {"NVCC_APPEND_FLAGS": '-DA "-DB=c d" -O1'}
    (call,) = called(at, [["-c", "a.cu"]], NVCC_APPEND_FLAGS=flags, NVCC_PREPEND_FLAGS="--version")
    assert call.changed == {}
    assert call.ran == ()


def test_nvcc_makes_what_is_planned(tmp_path: Path) -> None:
    """By its own dry run: what is compiled is the plan's alone, whatever flags, files and variables said."""
    at = bench(tmp_path / "bench", "preload")
    nvcc = toolkits.nvcc("13.0") / "bin" / "nvcc"
    (at.folder / "a.cu").write_text("__global__ void k() {}\n")
    (at.folder / "one.opt").write_text("-gencode arch=compute_86,code=sm_86")
    command = [str(nvcc), "-v", "-arch=sm_80", "--options-file", "one.opt", "-dc", "a.cu", "-o", "a.o"]
    record = at.run(command, wish=RecordOptions(archs=PLAN), NVCC_PREPEND_FLAGS="-gencode=arch=compute_75,code=sm_75")
    assert record.status == 0, at.stderr
    assert words.parse_words(record.calls[0].ran).archs == ("sm_90",)
    made = {
        each for line in at.stderr.decode().splitlines() if "ptxas" in line for each in line.split() if "sm_" in each
    }
    assert {each for each in made if each.startswith("-arch")} == {"-arch=sm_90"}
    assert {phase.arch for phase in record.calls[0].phases if phase.name == "ptxas"} == {"sm_90"}


def test_cudafe_takes_the_id_that_a_file_has_elsewhere(tmp_path: Path) -> None:
    """By its path or its name; in what the host registers as in the device code. Only nvcc is recorded."""
    at = bench(tmp_path / "bench", "preload")
    nvcc = toolkits.nvcc("13.0") / "bin" / "nvcc"
    ids = {str(at.folder / "a.cu"): "_deadbeef_4_a_cu_2c92614a_636", "b_c_cu": "_cafecafe_6_b_c_cu_run"}
    names = ("a.cu", "b-c.cu", "other.cu")
    for name in names:
        (at.folder / name).write_text("namespace { __global__ void k() {} }\nvoid run() { k<<<1, 1>>>(); }\n")
    record = at.run([str(nvcc), "-arch=sm_80", "--threads=2", "-dc", *names], wish=RecordOptions(module_ids=ids))
    assert record.status == 0, at.stderr
    assert [call.name for call in record.calls] == ["nvcc"]
    made = {name: (at.folder / name).with_suffix(".o").read_bytes() for name in names}
    for name, wanted in zip(names, ids.values(), strict=False):
        assert b"\0" + wanted.encode() + b"\0" in made[name]
        assert f"_ZN{len(wanted) + 11}_GLOBAL__N_{wanted}1kEv".encode() in made[name]
    assert not re.search(b"deadbeef|cafecafe", made["other.cu"])


@pytest.mark.slow
def test_the_same_file_without_a_plan(tmp_path: Path) -> None:
    at = bench(tmp_path / "bench", "preload")
    nvcc = toolkits.nvcc("13.0") / "bin" / "nvcc"
    plain = subprocess.run(
        [nvcc, "--dryrun", "-arch=sm_80", "-c", "a.cu"], capture_output=True, check=True, env=at.environ
    )
    at.run([str(nvcc), "--dryrun", "-arch=sm_80", "-c", "a.cu"])
    assert _plain(at.stderr) == _plain(plain.stderr)
    plain = subprocess.run([nvcc, "--version"], capture_output=True, check=True, env=at.environ)
    at.run([str(nvcc), "--version"])
    assert at.stdout == plain.stdout


def _plain(text: bytes) -> str:
    """Without the names of scratch files, which hold the process id."""
    return re.sub(r"tmpxft_[0-9a-f]+_", "tmpxft_", text.decode())
