"""Recorded calls run again: real compilers, real builds, as a person does it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cuwheel import api
from cuwheel.support import files
from tests.fixtures import cargo, command, toolkits
from tests.fixtures.cache import UnavailableError

CUWHEEL = Path(sys.executable).with_name("cuwheel")
EXAMPLES = Path(__file__).parents[2] / "examples"
PLAIN = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}

pytestmark = pytest.mark.skipif(not shutil.which("gcc", path=PLAIN["PATH"]), reason="there is no gcc")


def cuwheel(*words: str | Path, cwd: Path, **variables: str) -> command.Told:
    # What it compiles is the tests' own: a home that is not there is made where this is root, and refused elsewhere.
    return command.call(*words, env=PLAIN | {"CUWHEEL_CACHE": str(files.cache_folder())} | variables, cwd=cwd)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """In a folder with a blank in its name; it builds where no folder of CPATH has a broken header."""
    folder = tmp_path / "my project"
    (folder / "bad headers").mkdir(parents=True)
    (folder / "bad headers" / "thing.h").write_text("#error the wrong header\n")
    (folder / "include").mkdir()
    (folder / "include" / "thing.h").write_text("#define THING 3\n")
    (folder / "a b.c").write_text("#include <thing.h>\nint thing(void) { return THING; }\n")
    # Hidden from whoever looks at the build's output.
    (folder / "build.sh").write_text('gcc -c "a b.c" -idirafter include -o "a b.o" >/dev/null 2>&1 || exit 7\n')
    return folder


def test_by_hand_it_works_from_the_build_it_does_not(project: Path) -> None:
    """The whole of it: recorded, shown, run again, compared, and the one variable of many named."""
    crowd = {f"VARIABLE_{index}": str(index) for index in range(30)}
    bad = str(project / "bad headers")
    recorded = cuwheel(
        "record", "-o", "rec", "--", "sh", "build.sh", cwd=project, CPATH=f"/usr/include:{bad}", TERM="dumb", **crowd
    )
    assert recorded.status == 7
    assert "the wrong header" in recorded.stderr  # what the build hid

    again = cuwheel("record", "replay", "rec", cwd=project)
    assert again.status == 1
    assert again.stdout == ""
    assert "#error the wrong header" in again.stderr
    assert not (project / "a b.o").exists()

    here = cuwheel("record", "replay", "rec:1", "--here", cwd=project)
    assert here.status == 0, here.stderr
    assert (project / "a b.o").exists()

    (project / "a b.o").write_text("the build's")
    diff = cuwheel("record", "diff", "rec", "--json", cwd=project)
    assert diff.status == 0, diff.stderr
    answer = json.loads(diff.stdout)
    assert answer["blame"]["verdict"] == "found"
    assert answer["blame"]["answer"] == "In rec:1 it fails: with CPATH unset it works."
    assert answer["blame"]["runs"] <= 12
    assert {"CPATH", *crowd} <= {each["name"] for each in answer["differences"]["variables"]}
    assert (project / "a b.o").read_text() == "the build's"  # nothing was written over

    inside = cuwheel("record", "diff", "rec", cwd=project, CPATH="/usr/include")
    assert f"with {bad} removed from CPATH it works." in " ".join(inside.stdout.split())


def test_record_offers_the_comparison_or_makes_it(project: Path) -> None:
    bad = str(project / "bad headers")
    offered = cuwheel("record", "-o", "rec", "--", "sh", "build.sh", cwd=project, CPATH=bad)
    assert "compare  cuwheel record diff rec:1" in offered.stderr
    # A build that sets the variable itself: in the shell that starts it the call works.
    (project / "outer.sh").write_text(f"CPATH='{bad}' exec sh build.sh\n")
    made = cuwheel("record", "--diff", "-o", "made", "--", "sh", "outer.sh", cwd=project)
    assert made.status == 7  # the command's own
    assert "In made:1 it fails: with CPATH unset it works." in made.stderr
    assert "What differs" in made.stderr
    assert "--diff" not in made.stderr
    report = json.loads((project / "made" / "report.json").read_text())
    assert report["comparison"]["blame"]["verdict"] == "found"
    assert not (project / "a b.o").exists()
    good = cuwheel("record", "--diff", "-o", "good", "--", "sh", "build.sh", cwd=project)
    assert (good.status, "What differs" in good.stderr) == (0, False)


def test_the_printed_command_does_the_same(project: Path) -> None:
    cuwheel("record", "-o", "rec", "--", "sh", "build.sh", cwd=project, CPATH=str(project / "bad headers"))
    printed = cuwheel("record", "replay", "rec:1", "--print", cwd=project).stdout
    pasted = subprocess.run(["/bin/sh"], input=printed, capture_output=True, text=True, env=PLAIN, check=False)
    assert pasted.returncode == 1
    assert "#error the wrong header" in pasted.stderr
    fine = subprocess.run(
        ["/bin/sh"], input=cuwheel("record", "replay", "rec:1", "--print", "--here", cwd=project).stdout, env=PLAIN,
        text=True, check=True,
    )  # fmt: skip
    assert fine.returncode == 0
    assert (project / "a b.o").exists()


def test_output_and_status_are_the_calls_own(project: Path) -> None:
    """Preprocessed text comes out as it is, and nothing is added to it."""
    (project / "odd.c").write_bytes(b"int a; /* \xff\x00 */\n\x1b[31m\n")
    direct = subprocess.run(["gcc", "-E", "odd.c"], cwd=project, env=PLAIN, capture_output=True, check=False)
    cuwheel("record", "-o", "rec", "--", "gcc", "-E", "odd.c", cwd=project)
    again = subprocess.run(
        [CUWHEEL, "record", "replay", "-q", "rec:1"], cwd=project, env=PLAIN, capture_output=True, check=False
    )
    assert again.stdout == direct.stdout
    assert again.returncode == direct.returncode
    told = cuwheel("record", "replay", "rec:1", "--json", "--scratch", cwd=project)
    assert json.loads(told.stdout)["stdout"].startswith("# 0")


def compiler(folder: Path, script: str) -> str:
    """A program that the recorder takes for a compiler; the PATH that leads to it."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "gcc").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin" / "gcc").chmod(0o755)
    return f"{folder / 'bin'}:{PLAIN['PATH']}"


def test_a_signal_is_told_as_shells_do(tmp_path: Path) -> None:
    path = compiler(tmp_path, "kill -SEGV $$")
    cuwheel("record", "-o", "rec", "--", "sh", "-c", "gcc -c x.c", cwd=tmp_path, PATH=path)
    assert cuwheel("record", "replay", "rec:1", cwd=tmp_path).status == 128 + 11


def test_a_call_that_is_different_each_time(tmp_path: Path) -> None:
    """Fails every other time, whatever the environment: no variable is blamed."""
    path = compiler(tmp_path, "if [ -e turn ]; then rm turn; exit 1; else : > turn; fi")
    cuwheel("record", "-o", "rec", "--", "gcc", "-c", "x.c", cwd=tmp_path, PATH=path, LIBRARY_PATH="/a")
    done = cuwheel("record", "diff", "rec:1", "--json", cwd=tmp_path, PATH=path)
    assert done.status == 1
    blame = json.loads(done.stdout)["blame"]
    assert blame["verdict"] == "flaky"
    assert "does not always behave the same" in blame["answer"]


def test_a_run_that_hangs_is_ended(tmp_path: Path) -> None:
    path = compiler(tmp_path, '[ -z "$HANGS" ] || sleep 600')
    record = ["record", "-o", "rec", "--", "gcc", "-c", "x.c"]
    cuwheel(*record, cwd=tmp_path, PATH=path)
    done = cuwheel("record", "diff", "rec:1", "--timeout", "0.3", "--json", cwd=tmp_path, PATH=path, HANGS="yes")
    blame = json.loads(done.stdout)["blame"]
    assert blame["answer"] == "In here it fails: with HANGS unset it works."
    assert blame["right"]["status"] is None


def test_another_compiler_is_found_to_be_it(tmp_path: Path) -> None:
    path = compiler(tmp_path, "echo 'x.c:1:1: error: I am old' >&2; exit 1")
    (tmp_path / "x.c").write_text("int x;\n")
    cuwheel("record", "-o", "rec", "--", "gcc", "-c", "x.c", cwd=tmp_path, PATH=path)
    done = cuwheel("record", "diff", "rec:1", cwd=tmp_path)
    assert "/gcc run instead it works." in " ".join(done.stdout.split())
    assert not (tmp_path / "x.o").exists()


def test_response_files_that_are_gone(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("int x = VALUE;\n")
    (tmp_path / "flags.rsp").write_text("-DVALUE=3 -c x.c\n")
    made = cuwheel("record", "-o", "rec", "--", "gcc", "@flags.rsp", "-o", "x.o", cwd=tmp_path)
    assert made.status == 0, made.stderr
    (tmp_path / "flags.rsp").unlink()
    (tmp_path / "x.o").unlink()
    again = cuwheel("record", "replay", "rec:1", cwd=tmp_path)
    assert again.status == 0, again.stderr
    assert "flags.rsp" in again.stderr  # said to come from the record
    assert (tmp_path / "x.o").exists()


def test_secrets_come_from_here(tmp_path: Path) -> None:
    path = compiler(tmp_path, '[ "$MY_TOKEN" = geheim ]')
    cuwheel("record", "-o", "rec", "--", "gcc", "-c", "x.c", cwd=tmp_path, PATH=path, MY_TOKEN="geheim")  # noqa: S106
    assert "geheim" not in "".join(path.read_text() for path in (tmp_path / "rec").rglob("*") if path.is_file())
    without = cuwheel("record", "replay", "rec:1", cwd=tmp_path)
    assert without.status == 1
    assert "MY_TOKEN is masked in the record; not set here" in without.stderr
    assert cuwheel("record", "replay", "rec:1", cwd=tmp_path, MY_TOKEN="geheim").status == 0  # noqa: S106


def test_a_whole_build_again_without_touching_it(tmp_path: Path) -> None:
    """Compiled, archived and linked by CMake; every call of it once more, and no file of the build is another."""
    if not shutil.which("cmake", path=PLAIN["PATH"]):
        pytest.skip("there is no cmake")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(x CXX)\n"
        "add_library(a STATIC a.cpp)\nadd_library(b SHARED b.cpp)\n"
    )
    for name in "ab":
        (tmp_path / f"{name}.cpp").write_text(f"int {name}() {{ return 1; }}\n")
    build = "cmake -S . -B build && cmake --build build"
    assert cuwheel("record", "-o", "rec", "--", "sh", "-c", build, cwd=tmp_path).status == 0

    def tree() -> dict[Path, tuple[int, bytes]]:
        files = (path for path in tmp_path.rglob("*") if path.is_file() and "rec" not in path.parts)
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = tree()
    done = [call for call in api.replay_list(tmp_path / "rec").calls if call.what.startswith(("c++ ", "ar "))]
    own = [call for call in done if "CMakeCXXCompiler" not in call.what]
    assert len(own) >= 4  # two compiled, one archived, one linked
    for call in own:
        again = api.replay(f"{tmp_path / 'rec'}:{call.number}", scratch=True)
        assert again.exit_status == 0, again.stderr
        assert all(not Path(each.now).is_relative_to(tmp_path) for each in again.written)
    assert tree() == before


# nvcc


@pytest.fixture(scope="module")
def toolkit() -> Path:
    try:
        return toolkits.nvcc("13.0")
    except UnavailableError as error:
        pytest.skip(str(error))


@cargo.needed
def test_a_build_script_that_hides_what_nvcc_says(toolkit: Path, tmp_path: Path) -> None:
    """Case 4: cargo says that nvcc failed and nothing else; by hand the same command works."""
    crate = tmp_path / "crate"
    shutil.copytree(EXAMPLES / "cargo_kernel" / "crate", crate, ignore=shutil.ignore_patterns("target"))
    (crate / ".cargo").mkdir()
    (crate / ".cargo" / "config.toml").write_text('[env]\nNVCC_APPEND_FLAGS = "-arch=sm_50"\n')
    environ = {
        "PATH": f"{toolkit / 'bin'}:{Path(cargo.find() or '').parent}:{PLAIN['PATH']}", "CUDA_HOME": str(toolkit),
        **{name: os.environ[name] for name in ("HOME", "CARGO_HOME", "RUSTUP_HOME") if name in os.environ},
    }  # fmt: skip
    recorded = cuwheel("record", "-o", "rec", "--", "cargo", "build", "--offline", cwd=crate, **environ)
    assert recorded.status == 101

    cargo_said = recorded.stderr.split("nvcc failed")[0] + "nvcc failed\n"
    (tmp_path / "cargo.log").write_text(cargo_said)
    assert "sm_50" not in cargo_said
    assert api.explain(tmp_path / "cargo.log").causes[0].id == "nvcc-silent-failure"

    found = api.explain(crate / "rec")
    assert found.causes[0].id == "gpu-architecture-removed"
    assert found.call is not None
    assert any("sm_50" in line for line in found.call.output)
    by_name = {each.name: each for each in found.call.settings}
    assert by_name["NVCC_APPEND_FLAGS"].origin == str(crate / ".cargo" / "config.toml")

    number = found.call.number
    again = cuwheel("record", "replay", f"rec:{number}", cwd=crate, **environ)
    assert again.status == 1
    assert "Unsupported gpu architecture 'sm_50'" in again.stdout + again.stderr

    diff = cuwheel("record", "diff", f"rec:{number}", cwd=crate, **environ)
    told = " ".join(diff.stdout.split())
    assert diff.status == 0, diff.stderr
    assert f"In rec:{number} it fails: with NVCC_APPEND_FLAGS unset it works." in told
    assert f"is set by {crate / '.cargo' / 'config.toml'}".replace(" ", "") in told.replace(" ", "")


@pytest.mark.slow
def test_two_toolkits(toolkit: Path, tmp_path: Path) -> None:
    """The build took another nvcc than the shell would: by versions, and by what differs."""
    try:
        newer = toolkits.nvcc("13.4")
    except UnavailableError as error:
        pytest.skip(str(error))
    (tmp_path / "k.cu").write_text("#if __CUDACC_VER_MINOR__ > 0\n#error too new\n#endif\n__global__ void k() {}\n")
    nvcc = str(newer / "bin" / "nvcc")
    cuwheel("record", "-o", "rec", "--", nvcc, "-ptx", "k.cu", cwd=tmp_path)
    done = cuwheel("record", "diff", "rec:1", "--json", cwd=tmp_path, PATH=f"{toolkit / 'bin'}:{PLAIN['PATH']}")
    answer = json.loads(done.stdout)
    assert [each["kind"] for each in answer["blame"]["culprits"]] == ["program"]
    assert answer["blame"]["culprits"][0]["works"] == str(toolkit / "bin" / "nvcc")
    versions = answer["differences"]["versions"]["nvcc"]
    assert "(13.4" in versions["left"]
    assert "(13.0" in versions["right"]
