"""`cuwheel lab matrix`, with real compilers and real copies."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures import toolkits
from tests.fixtures.cache import UnavailableError
from tests.integration.test_replay import PLAIN
from tests.integration.test_replay import cuwheel as command

import cuwheel
import cuwheel_lab
from cuwheel.building.recording import reader, sccache
from cuwheel.errors import UsageError
from cuwheel.support import process

pytestmark = pytest.mark.skipif(not shutil.which("gcc", path=PLAIN["PATH"]), reason="there is no gcc")

MATRIX = """
command = "sh build.sh {mode}"
directory = "source"
timeout = 5

[environment]
WIDTH = "3"

[axes.mode]
good = "good"
bad = "bad"
slow = { words = "sleep", environment = { SECONDS_TO_SLEEP = "600" } }

[axes.width]
as-it-is = {}
wide = { environment = { WIDTH = "4" } }
unset = { unset = ["HOME"], environment = { WIDTH = "5" } }

[[exclude]]
mode = ["slow", "bad"]
width = ["wide", "unset"]

[[include]]
mode = "good"
width = "as-it-is"
"""
BUILD = """
echo "$1 $WIDTH ${HOME-none}" >> "$COUNT"
[ ! -e leftover ] || exit 9
touch leftover
case $1 in
    sleep) sleep $SECONDS_TO_SLEEP ;;
    bad) gcc -c a.c -DWIDTH=$WIDTH -lnothing -include nowhere.h -o a.o 2>/dev/null; exit 3 ;;
    *) gcc -c a.c -DWIDTH=$WIDTH -o a.o ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "target").mkdir(parents=True)
    (source / "target" / "huge").write_text("not copied")
    (source / "a.c").write_text("int width = WIDTH;\n")
    (source / "build.sh").write_text(BUILD)
    (tmp_path / "matrix.toml").write_text(MATRIX.replace("timeout = 5", "timeout = 2"))
    return tmp_path


def run(project: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = command("lab", "matrix", "matrix.toml", "--json", *words, cwd=project, COUNT=str(project / "count"))
    assert done.stdout, done.stderr
    return done.status, json.loads(done.stdout)


def test_each_is_recorded_and_what_fails_stops_nothing(project: Path) -> None:
    status, answer = run(project)
    assert status == 1
    results = {tuple(cell["choices"].values()): cell["run"]["result"] for cell in answer["cells"]}
    assert results == {
        ("good", "as-it-is"): "succeeded",
        ("good", "wide"): "succeeded",
        ("good", "unset"): "succeeded",
        ("bad", "as-it-is"): "failed",
        ("slow", "as-it-is"): "timeout",
    }
    ran = (project / "count").read_text().splitlines()
    assert ran == [
        "good 3 /nonexistent",
        "good 4 /nonexistent",
        "good 5 none",
        "bad 3 /nonexistent",
        "sleep 3 /nonexistent",
    ]

    bad = next(cell for cell in answer["cells"] if cell["choices"]["mode"] == "bad")
    assert (bad["run"]["status"], bad["run"]["failed_calls"]) == (3, 1)
    assert "nowhere.h" in bad["error"]  # what the script hid
    again = command(*bad["again"].split()[1:], cwd=project)
    assert "nowhere.h" in again.stderr
    good = project / "cuwheel-matrix" / "001-good-as-it-is"
    assert not (good / "source").exists()
    assert len(cuwheel.replay_list(good / "record").calls) == 1
    assert not (project / "source" / "leftover").exists()
    table = (project / "cuwheel-matrix" / "matrix.md").read_text()
    assert "| good | wide | succeeded |" in table
    assert "| bad | as-it-is | failed (3) |" in table


def test_going_on_where_it_was_left(project: Path) -> None:
    run(project)
    state = project / "cuwheel-matrix" / "matrix.json"
    answer = json.loads(state.read_text())
    answer["cells"][1]["run"] = None  # as if it had been interrupted there
    state.write_text(json.dumps(answer))
    (project / "count").unlink()
    status, again = run(project, "--resume")
    assert status == 1
    assert (project / "count").read_text() == "good 4 /nonexistent\n"
    assert again["cells"][1]["run"]["result"] == "succeeded"
    state.write_text("{ damaged")
    (project / "matrix.toml").write_text(MATRIX.replace("slow = {", "slow2 = {").replace('"slow"', '"slow2"'))
    run(project, "--resume", "--dry-run")
    assert (project / "count").read_text() == "good 4 /nonexistent\n"
    refused = command("lab", "matrix", "matrix.toml", cwd=project)
    assert refused.status == 2
    assert "--resume" in refused.stderr


def test_cleaned_in_place(project: Path) -> None:
    text = (
        MATRIX.replace("timeout = 5", 'timeout = 2\nclean = "rm -f leftover"')
        .replace("bad = ", "# ")
        .replace('"slow", "bad"', '"slow"')
    )
    (project / "matrix.toml").write_text(text)
    _, answer = run(project)
    assert [cell["run"]["result"] for cell in answer["cells"]] == ["succeeded"] * 3 + ["timeout"]
    assert (project / "source" / "a.o").exists()
    (project / "matrix.toml").write_text(text.replace("rm -f leftover", "false"))
    status, answer = run(project, "-o", "other")
    assert status == 1
    assert {cell["run"]["result"] for cell in answer["cells"]} == {"not-run"}
    assert "so the folder is not clean" in answer["cells"][0]["run"]["problem"]


def test_a_toolkit_that_is_not_there(project: Path) -> None:
    (project / "matrix.toml").write_text(
        'command = "sh -c \'echo $CUDA_HOME $CUDACXX\'"\ndirectory = "source"\n'
        '[axes]\ntoolkit = ["/nowhere/cuda-9", "./tk"]\n'
    )
    (project / "tk" / "bin").mkdir(parents=True)
    (project / "tk" / "bin" / "nvcc").write_text("")
    _, answer = run(project)
    assert [cell["run"]["result"] for cell in answer["cells"]] == ["not-run", "succeeded"]
    assert "is not a CUDA toolkit" in answer["cells"][0]["run"]["problem"]
    root = (project / "tk").resolve()
    assert (project / "cuwheel-matrix" / "002-tk" / "output.log").read_text() == f"{root} {root}/bin/nvcc\n"


def test_the_output_may_lie_inside_the_source(project: Path) -> None:
    (project / "matrix.toml").write_text(
        'command = "sh build.sh good"\naxes = {}\ndirectory = "source"\n[environment]\nWIDTH="1"\n'
    )
    status, answer = run(project, "-o", "source/out")
    assert status == 0, answer


def test_usage(project: Path) -> None:
    for words in (["--resume"], ["--matrix", "matrix.toml", "--", "make"], ["--matrix", "matrix.toml", "--trace", "x"]):
        assert command("record", *words, cwd=project).status == 2
    with pytest.raises(UsageError, match="not empty"):
        cuwheel_lab.matrix(project / "matrix.toml", output=project)


@pytest.mark.slow
def test_with_and_without_a_compiler_cache(tmp_path: Path) -> None:
    """sccache before nvcc, with a server of its own that ends with the run."""
    if process.find_program("sccache") is None:
        pytest.skip("there is no sccache")
    try:
        toolkit = toolkits.nvcc("13.0")
    except UnavailableError as error:
        pytest.skip(str(error))
    (tmp_path / "k.cu").write_text("__global__ void k() {}\n")
    (tmp_path / "matrix.toml").write_text(
        "command = \"sh -c 'nvcc -c k.cu -o k.o && rm k.o && nvcc -c k.cu -o k.o'\"\n"
        f'[axes]\ntoolkit = ["{toolkit}"]\ncache = ["off", "on"]\n'
    )
    status, answer = run(tmp_path)
    assert status == 0, answer
    off, on = (cell["run"] for cell in answer["cells"])
    assert off["cache_hits"] is None
    assert on["cache_hits"] >= 1
    assert [call.cache_hit for call in reader.read_record(off["record"]).calls] == [None, None]
    assert [call.cache_hit for call in reader.read_record(on["record"]).calls] == [False, True]
    assert (off["calls"], on["calls"]) == (2, 2)
    running = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False)
    assert running.stdout == ""


@pytest.mark.parametrize("name", ["nvcc", "nvcc.exe"])
def test_a_toolkit_by_its_folder_as_either_system_has_it(tmp_path: Path, name: str) -> None:
    compiler = tmp_path / "cuda" / "bin" / name
    compiler.parent.mkdir(parents=True)
    compiler.write_text("#!/bin/sh\n")
    (tmp_path / "none").mkdir()
    (tmp_path / "matrix.toml").write_text(
        "command = 'sh -c \"echo $CUDACXX $CUDA_PATH >> $COUNT\"'\n[axes]\ntoolkit = ['./cuda', './none']\n"
    )
    _, answer = run(tmp_path)
    assert [cell["run"]["result"] for cell in answer["cells"]] == ["succeeded", "not-run"]
    assert (tmp_path / "count").read_text() == f"{compiler} {tmp_path / 'cuda'}\n"
    assert "it has no nvcc" in answer["cells"][1]["run"]["problem"]


COPIES = """
command = "sh build.sh"
directory = "source"

[axes.mode]
broken = { environment = { CPATH = "bad", MODE = "broken" } }
good = { environment = { MODE = "good" } }
ungenerated = { environment = { MODE = "none" } }

[axes.width]
one = { environment = { WIDTH = "1" } }
two = { environment = { WIDTH = "2" } }

[[exclude]]
mode = ["broken", "ungenerated"]
width = "one"
"""


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """A build that names its own folder in full: each configuration has another."""
    source = tmp_path / "source"
    (source / "bad").mkdir(parents=True)
    (source / "bad" / "thing.h").write_text("#error the wrong header\n")
    (source / "a.c").write_text("#include <thing.h>\nint width = WIDTH;\n")
    (source / "build.sh").write_text(
        'mkdir made\n[ "$MODE" = none ] || echo > made/thing.h\n'
        'gcc -c "$PWD/a.c" -DWIDTH=$WIDTH -idirafter "$PWD/made" -o a.o 2>/dev/null\n'
    )
    (tmp_path / "matrix.toml").write_text(COPIES)
    return tmp_path


def test_one_that_failed_is_compared_with_one_whose_copy_is_gone(copies: Path) -> None:
    status, answer = run(copies)
    assert status == 1
    broken, _, good, none = answer["cells"]
    assert (good["run"]["result"], good["compare"], broken["difference"]) == ("succeeded", "", "")
    assert not (copies / "cuwheel-matrix" / "003-good-two" / "source").exists()
    here = "cuwheel-matrix"
    assert broken["compare"] == f"cuwheel record diff {here}/001-broken-two/record {here}/003-good-two/record"
    assert none["compare"].endswith(
        "record diff cuwheel-matrix/004-ungenerated-two/record cuwheel-matrix/003-good-two/record"
    )
    compared = command(*broken["compare"].split()[1:], cwd=copies)
    told = " ".join(compared.stdout.split())
    assert compared.status == 0, compared.stderr
    assert "In 001-broken-two:1 it fails: with CPATH unset it works." in told
    assert "its own copy of the source was removed" in told


def test_all_that_failed_are_compared_by_themselves(copies: Path) -> None:
    _, answer = run(copies, "--diff")
    broken, _, _, none = answer["cells"]
    assert broken["difference"] == "In 001-broken-two:1 it fails: with CPATH unset it works."
    assert "003-good-two:1 worked in its own copy: files that its build made" in none["difference"]
    assert broken["difference"] in (copies / "cuwheel-matrix" / "matrix.md").read_text()


def test_a_cache_that_is_too_old_is_named(project: Path) -> None:
    """By its version, before anything is waited for."""
    asked = re.search(r'cache = \["sccache>=([\d.]+)"\]', (Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert asked
    assert asked[1] == sccache.NEEDED
    old = project / "sccache"
    old.write_text("#!/bin/sh\necho sccache 0.7.4\n")
    old.chmod(0o755)
    (project / "matrix.toml").write_text('command = "true"\n[axes]\ncache = ["on"]\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "find_program", lambda _name, _path=None: str(old))
        answer = cuwheel_lab.matrix(project / "matrix.toml", output=project / "out")
    (only,) = (cell.run for cell in answer.cells)
    assert only
    assert only.result == "not-run"
    assert only.problem == f"{old} is sccache 0.7.4, but {sccache.NEEDED} or later is needed"
