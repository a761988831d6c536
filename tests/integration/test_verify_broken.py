"""Wheels broken on purpose, each in its own way: named right, and the one who asks is none the worse."""

from __future__ import annotations

import struct
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from cuwheel import api
from cuwheel.errors import UsageError
from cuwheel.facts import packages
from cuwheel.report.answer import document_of
from cuwheel.report.document import Heading
from cuwheel_core.errors import UnreadableError, UnsafeWheelError
from tests.fixtures.small_wheel import PYTHON, SUFFIX, Wheel, extension, library

if TYPE_CHECKING:
    from cuwheel.proving.outcomes import Installation, Result, Verify

LINUX = f"{PYTHON}-{PYTHON}-linux_x86_64"
SOURCE = "subject/__init__.py"
Files: TypeAlias = dict[str, str | bytes]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that is no project, without a toolkit, with a folder of temporary files that can be looked into."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))


def verified(wheel: Path, **wish: Any) -> Verify:
    return api.verify(wheel, offline=True, **wish)


def tried(answer: Verify) -> Installation:
    (wheel,) = answer.wheels
    (installation,) = wheel.installations
    return installation


def imported(text: str, tmp_path: Path, **wish: Any) -> tuple[Verify, Result]:
    answer = verified(Wheel(files={SOURCE: text}).write(tmp_path), checks=["import *"], **wish)
    (result,) = tried(answer).checks
    assert result.name == "import subject"
    return answer, result


def test_a_sound_wheel(tmp_path: Path) -> None:
    """And nothing is left of it."""
    native = extension(tmp_path / "made", "native")
    files: Files = {
        SOURCE: "from . import native\n__version__ = '1.0'\n",
        f"subject/native{SUFFIX}": native.read_bytes(),
    }
    answer = verified(Wheel(tag=LINUX, files=files).write(tmp_path))
    assert answer.succeeded
    assert [finding.rule for finding in answer.wheels[0].findings] == ["tag-plain-linux"]
    results = {each.name: each for each in tried(answer).checks}
    assert {name: each.outcome for name, each in results.items()} == {
        "import subject": "passed",
        "libraries load": "passed",
    }
    assert results["import subject"].version == "1.0"
    assert "site-packages/subject/__init__.py" in results["import subject"].file
    assert tried(answer).packages == ("subject==1.0",)
    assert tried(answer).contradictions == ()
    assert not list((tmp_path / "scratch").iterdir())


def test_a_segmentation_fault(tmp_path: Path) -> None:
    native = extension(tmp_path / "made", "native", "*(volatile int *)0 = 1")
    files: Files = {SOURCE: "from . import native\n", f"subject/native{SUFFIX}": native.read_bytes()}
    answer = verified(Wheel(tag=LINUX, files=files).write(tmp_path), checks=["import *"])
    (result,) = tried(answer).checks
    assert not answer.succeeded
    assert (result.outcome, result.signal, result.problem) == ("crashed", "SIGSEGV", "ended by SIGSEGV")
    assert 'subject/__init__.py", line 1' in result.output  # where Python was


def test_a_crash_in_the_loader_names_the_library(tmp_path: Path) -> None:
    """A constructor that runs when the library is loaded; the package itself does not load it at import."""
    source = "__attribute__((constructor)) static void start() { __builtin_trap(); }"
    files: Files = {SOURCE: "", "subject/libslow.so": b""}
    files["subject/libslow.so"] = library(tmp_path / "made", "libslow.so", source).read_bytes()
    answer = verified(Wheel(tag=LINUX, files=files).write(tmp_path))
    results = {each.name: each for each in tried(answer).checks}
    assert results["import subject"].outcome == "passed"
    assert results["libraries load"].outcome == "crashed"
    assert results["libraries load"].problem == "ended by SIGILL, in loading subject/libslow.so"


def test_a_hang(tmp_path: Path) -> None:
    began = time.monotonic()
    answer, result = imported("import time\ntime.sleep(3600)", tmp_path, timeout=2)
    assert time.monotonic() - began < 600
    assert not answer.succeeded
    assert (result.outcome, result.problem) == ("timeout", "did not end within 2 s and was stopped")


def test_megabytes(tmp_path: Path) -> None:
    answer, result = imported("import sys\nfor _ in range(40): sys.stdout.write('z' * 1_000_000)", tmp_path)
    assert answer.succeeded
    assert result.output_bytes == 40_000_000
    assert len(result.output) < 40_000


def test_a_fork_that_stays(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    text = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        f"    open({str(told)!r}, 'w').write(str(os.getpid()))\n"
        "    time.sleep(600)\n"
        f"while not os.path.exists({str(told)!r}) or not open({str(told)!r}).read(): time.sleep(0.01)\n"
    )
    answer, result = imported(text, tmp_path)
    assert not answer.succeeded
    assert result.problem.startswith("left a process running, stopped now: python")
    stat = Path(f"/proc/{told.read_text()}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("ending", ["import os; os._exit(0)", "raise SystemExit(0)"])
def test_a_status_of_0_without_an_import(tmp_path: Path, ending: str) -> None:
    answer, result = imported(ending, tmp_path)
    assert not answer.succeeded
    assert (result.outcome, result.status) == ("failed", 0)
    assert "before the import was done" in result.problem


def test_a_library_of_cuda_that_is_missing_is_foreseen_and_seen(tmp_path: Path) -> None:
    native = extension(tmp_path / "made", "native", needs=[library(tmp_path / "made", "libcublas.so.11")])
    files: Files = {SOURCE: "from . import native\n", f"subject/native{SUFFIX}": native.read_bytes()}
    answer = verified(Wheel(tag=LINUX, files=files).write(tmp_path))
    assert not answer.succeeded
    results = {each.name: each for each in tried(answer).checks}
    missing = "libcublas.so.11: cannot open shared object file"
    assert results["import subject"].outcome == "failed"
    assert missing in results["import subject"].problem
    (finding,) = [each for each in tried(answer).findings if each.rule == "library-does-not-load"]
    assert missing in finding.evidence[0]
    assert finding.fix == "install what it needs too: --with nvidia-cublas-cu11"
    (verdict,) = tried(answer).verdicts
    assert verdict.outcome == "fails"
    assert "needed-library-missing" in {each.rule for each in verdict.findings}
    assert tried(answer).contradictions == ()  # both say the same


def test_a_library_of_nobody_that_is_missing_fails_even_if_nothing_imports_it(tmp_path: Path) -> None:
    native = extension(tmp_path / "made", "native", needs=[library(tmp_path / "made", "libstrange.so.7")])
    files: Files = {SOURCE: "", f"subject/native{SUFFIX}": native.read_bytes()}
    answer = verified(Wheel(tag=LINUX, files=files).write(tmp_path))
    assert not answer.succeeded
    results = {each.name: each for each in tried(answer).checks}
    assert results["import subject"].outcome == "passed"
    assert results["libraries load"].outcome == "failed"
    assert "libstrange.so.7: cannot open shared object file" in results["libraries load"].problem


def test_a_library_that_nobody_foresaw_to_be_missing_is_told_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the tables say every Linux has, and this one has not."""
    original = packages.from_system
    monkeypatch.setattr(packages, "from_system", lambda soname: soname == "libstrange.so.7" or original(soname))
    native = extension(tmp_path / "made", "native", needs=[library(tmp_path / "made", "libstrange.so.7")])
    files: Files = {SOURCE: "from . import native\n", f"subject/native{SUFFIX}": native.read_bytes()}
    answer = verified(Wheel(tag=LINUX, files=files).write(tmp_path))
    assert not answer.succeeded
    (found,) = tried(answer).contradictions
    assert found.rule == "prediction-contradicted"
    assert found.message == "import subject fails because libstrange.so.7 is missing, which was not predicted"
    assert document_of(answer, verbose=False).blocks[0] == Heading("Predicted otherwise")


def test_a_library_that_was_foreseen_to_be_missing_and_loads(tmp_path: Path) -> None:
    """Only the package itself knows where it is, and loads it first."""
    deep = library(tmp_path / "made", "libcublas.so.11")
    native = extension(tmp_path / "made", "native", needs=[deep])
    opened = f"import ctypes\nctypes.CDLL({str(deep)!r}, ctypes.RTLD_GLOBAL)\nfrom . import native\n"
    files: Files = {SOURCE: opened, f"subject/native{SUFFIX}": native.read_bytes()}
    answer = verified(Wheel(tag=LINUX, files=files).write(tmp_path))
    assert {each.outcome for each in tried(answer).checks} == {"passed"}
    assert answer.succeeded
    (found,) = tried(answer).contradictions
    assert found.message == f"subject/native{SUFFIX} was predicted not to load here, but it loads"
    assert "libcublas.so.11" in found.evidence[0]


def test_a_driver_that_is_not_here_is_a_stub_if_asked_for(tmp_path: Path) -> None:
    driver = library(tmp_path / "made", "libcuda.so.1", 'extern "C" int cuInit(int) { return 0; }')
    source = 'extern "C" int cuInit(int); extern "C" int start() { return cuInit(0); }'
    native = library(tmp_path / "made", "libnative.so", source, needs=[driver])
    opened = (
        "import ctypes, os\n"
        "print('cuInit says', ctypes.CDLL(os.path.join(os.path.dirname(__file__), 'libnative.so')).start())\n"
    )
    wheel = Wheel(tag=LINUX, files={SOURCE: opened, "subject/libnative.so": native.read_bytes()}).write(tmp_path)
    without = verified(wheel)
    results = {each.name: each for each in tried(without).checks}
    assert not tried(without).stub
    assert "libcuda.so.1: cannot open shared object file" in results["import subject"].problem
    assert "--stub" in results["import subject"].problem
    assert results["libraries load"].outcome == "skipped"
    assert "--stub" in results["libraries load"].problem
    assert tried(without).contradictions == ()
    stubbed = verified(wheel, stub=True)
    results = {each.name: each for each in tried(stubbed).checks}
    assert tried(stubbed).stub
    assert stubbed.succeeded
    assert results["import subject"].output == "cuInit says 100\n"
    assert results["libraries load"].outcome == "passed"


def test_no_library_for_the_cuda_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As bitsandbytes: one library a CUDA version, chosen at import; the import itself succeeds without."""
    native = library(tmp_path / "made", "libbitsandbytes_cuda124.so").read_bytes()
    files: Files = {"bitsandbytes/__init__.py": "", "bitsandbytes/libbitsandbytes_cuda124.so": native}
    wheel = Wheel(name="bitsandbytes", tag="py3-none-linux_x86_64", files=files).write(tmp_path)
    fine = verified(wheel, checks=["import *", "libraries load"], cuda="12.8")
    assert fine.succeeded  # the highest lower minor of the same major serves
    assert {each.name: each.outcome for each in tried(fine).checks}["libraries load"] == "passed"
    wrong = verified(wheel, checks=["import *"], cuda="13.0")
    assert not wrong.succeeded
    (finding,) = [each for each in wrong.wheels[0].findings if each.severity == "error"]
    assert finding.rule == "no-library-for-cuda"
    assert finding.message == "it has no library for CUDA 13.0: those in it are for CUDA 12.4"
    with pytest.raises(UsageError, match="'new' is not a CUDA version"):
        verified(wheel, cuda="new")
    monkeypatch.setenv("BNB_CUDA_VERSION", "122")
    pinned = verified(wheel, checks=["import *"])
    assert not pinned.succeeded
    (finding,) = [each for each in tried(pinned).findings if each.severity == "error"]
    assert "BNB_CUDA_VERSION=122" in finding.message
    assert "none for 12.2" in finding.message


def test_a_wrong_hash_is_told_and_the_rest_is_tried(tmp_path: Path) -> None:
    record = {SOURCE: f"{SOURCE},sha256={'A' * 43},20"}
    answer = verified(Wheel(record=record).write(tmp_path))
    assert not answer.succeeded
    (finding,) = answer.wheels[0].findings
    assert (finding.rule, finding.evidence) == ("record-hash", (SOURCE,))
    assert tried(answer).outcome == "passed"


@pytest.mark.parametrize(
    ("tag", "problem"),
    [
        ("cp39-cp39-linux_x86_64", "tag-extension"),
        (f"{PYTHON}-abi3-linux_x86_64", "tag-extension"),
        (f"{PYTHON}-{PYTHON}-linux_aarch64", "tag-processor"),
        (f"{PYTHON}-{PYTHON}-win_amd64", "tag-processor"),
        (f"{PYTHON}-{PYTHON}-any", "tag-without-platform"),
        ("py3-none-linux_x86_64", "tag-extension"),
        (f"{PYTHON}-{PYTHON}-manylinux1_x86_64", "tag-glibc"),
    ],
)
def test_wrong_tags(tmp_path: Path, tag: str, problem: str) -> None:
    # What the C++ compilers of today make of this wants a glibc that is newer than manylinux1.
    source = 'extern "C" double pow(double, double); extern "C" double PyInit_native(double x) { return pow(x, x); }'
    native = library(tmp_path / "made", f"native{SUFFIX}", source, needs=[Path("-lm")])
    files: Files = {SOURCE: "", f"subject/native{SUFFIX}": native.read_bytes()}
    answer = verified(Wheel(tag=tag, files=files).write(tmp_path), static=True)
    assert not answer.succeeded
    assert problem in {each.rule for each in answer.wheels[0].findings if each.severity == "error"}


def test_code_for_another_processor(tmp_path: Path) -> None:
    native = bytearray(extension(tmp_path / "made", "native").read_bytes())
    struct.pack_into("<H", native, 18, 183)  # e_machine: aarch64
    files: Files = {SOURCE: "from . import native\n", f"subject/native{SUFFIX}": bytes(native)}
    answer = verified(Wheel(tag=LINUX, files=files).write(tmp_path))
    assert not answer.succeeded
    (finding,) = [each for each in answer.wheels[0].findings if each.severity == "error"]
    assert finding.rule == "tag-processor"
    assert tried(answer).contradictions == ()


def test_a_wheel_for_another_python_is_left_out_or_fails(tmp_path: Path) -> None:
    wheel = Wheel(tag="cp39-cp39-linux_x86_64", files={SOURCE: ""}).write(tmp_path)
    answer = verified(wheel, python=[f"{PYTHON[2]}.{PYTHON[3:]}"])
    assert not answer.succeeded
    assert tried(answer).outcome == "failed"
    assert tried(answer).problem.startswith("its tags do not allow it: Python is 3.")
    missing = verified(Wheel().write(tmp_path), python=["3.6", f"{PYTHON[2]}.{PYTHON[3:]}"])
    assert [each.outcome for each in missing.wheels[0].installations] == ["failed", "passed"]
    assert "Python 3.6 was not found" in missing.wheels[0].installations[0].problem


def test_requirements_that_cannot_be_met(tmp_path: Path) -> None:
    answer = verified(Wheel(requires=["no-such-distribution>=1"]).write(tmp_path))
    assert not answer.succeeded
    assert tried(answer).outcome == "failed"
    assert "no-such-distribution" in tried(answer).problem


def test_requirements_from_a_folder(tmp_path: Path) -> None:
    Wheel(name="helper", files={"helper.py": "VALUE = 7\n"}).write(tmp_path / "links")
    wheel = Wheel(requires=["helper"], files={SOURCE: "import helper\nprint(helper.VALUE)\n"}).write(tmp_path)
    answer = verified(wheel, find_links=[tmp_path / "links"])
    assert answer.succeeded
    assert tried(answer).packages == ("helper==1.0", "subject==1.0")
    assert tried(answer).checks[0].output == "7\n"


def test_broken_requirements_and_shared_files_are_found(tmp_path: Path) -> None:
    links = tmp_path / "links"
    other = Wheel(name="other", requires=["subject>=2"], files={SOURCE: "", "other.py": ""}).write(links)
    answer = verified(Wheel(requires=["other"]).write(tmp_path), find_links=[links], requires=[str(other)])
    assert not answer.succeeded
    assert tried(answer).outcome == "failed"
    assert "subject" in tried(answer).problem
    sharing = Wheel(name="other", files={SOURCE: "", "other.py": ""}).write(links)
    answer = verified(Wheel().write(tmp_path), requires=[str(sharing)])
    (finding,) = tried(answer).findings
    assert (finding.rule, finding.severity, finding.evidence) == ("files-of-two-distributions", "warning", (SOURCE,))


def test_checks_of_a_configuration(tmp_path: Path) -> None:
    config = tmp_path / "cuwheel.toml"
    config.write_text(
        """
        [verify]
        imports = ["subject"]
        requires = []
        [[verify.check]]
        name = "adds"
        python = "import subject; print('sum', subject.add(2, 2))"
        number = 4
        [[verify.check]]
        name = "program"
        command = "subject-tool --loud"
        expect = ["LOUD"]
        [[verify.check]]
        name = "on a GPU"
        python = "raise SystemExit(1)"
        gpu = true
        [[verify.check]]
        name = "wrong"
        command = "python -c 'print(0.1 + 0.2)'"
        number = 0.25
        tolerance = 0.01
        [[verify.check]]
        name = "much"
        python = "x = bytearray(1_500_000_000)"
        memory = "300 MB"
        """
    )
    files: Files = {
        SOURCE: "def add(a, b): return a + b\ndef main():\n    import sys; print(sys.argv[1].upper())\n",
        "subject-1.0.dist-info/entry_points.txt": "[console_scripts]\nsubject-tool = subject:main\n",
    }
    answer = verified(Wheel(files=files).write(tmp_path), config=config)
    assert not answer.succeeded
    assert {each.name: (each.outcome, each.problem) for each in tried(answer).checks} == {
        "import subject": ("passed", ""),
        "adds": ("passed", ""),
        "program": ("passed", ""),
        "on a GPU": ("skipped", "needs a GPU, but this machine has none"),
        "wrong": ("failed", "printed 0.3, expected 0.25 within 0.01"),
        "much": ("memory", "asked for more memory than its limit of 0.3 GB"),
    }
    only = verified(Wheel(files=files).write(tmp_path), config=config, checks=["adds", "prog*"])
    assert [each.name for each in tried(only).checks] == ["adds", "program"]
    with pytest.raises(UsageError, match="unknown check 'nothing'"):
        verified(Wheel(files=files).write(tmp_path), config=config, checks=["nothing"])


def test_the_environment_is_fresh_and_kept_if_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What leads Python astray does not reach the checks."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "subject.py").write_text("raise RuntimeError('from elsewhere')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    answer = verified(Wheel().write(tmp_path), keep=True)
    assert answer.succeeded
    kept = Path(tried(answer).folder)
    assert (kept / "bin/python").exists()
    assert tried(answer).checks[0].file.startswith(str(kept))


def test_a_module_that_is_not_the_wheels(tmp_path: Path) -> None:
    """Python has one of this name, and it comes first."""
    answer = verified(Wheel(files={"secrets.py": "raise RuntimeError"}).write(tmp_path))
    assert not answer.succeeded
    assert tried(answer).checks[0].problem.startswith("the imported module is not from the wheel: ")


def test_dry_run_installs_nothing(tmp_path: Path) -> None:
    answer = verified(Wheel().write(tmp_path), dry_run=True, requires=["helper"])
    assert answer.succeeded
    assert tried(answer).outcome == "planned"
    assert [each.name for each in tried(answer).planned] == ["import subject"]
    assert tried(answer).requirements[1:] == ("helper",)
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize(("member", "size"), [("../../out.py", 0), ("subject/zeros", 1 << 27)])
def test_what_would_do_harm_is_not_unpacked(tmp_path: Path, member: str, size: int) -> None:
    wheel = Wheel(tag="py3-none-any").write(tmp_path)
    with zipfile.ZipFile(wheel, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, bytes(size))
    with pytest.raises(UnsafeWheelError):
        verified(wheel)


def test_a_wheel_for_another_system_is_not_helped_by_another_python(tmp_path: Path) -> None:
    answer = verified(Wheel(tag="cp39-cp39-win_amd64", files={SOURCE: ""}).write(tmp_path))
    assert "the operating system is linux, not windows" in tried(answer).problem
    assert "hint" not in tried(answer).problem


def test_what_is_no_wheel_at_all(tmp_path: Path) -> None:
    (tmp_path / "bad-1-py3-none-any.whl").write_bytes(b"no zip")
    good = Wheel().write(tmp_path)
    answer = api.verify([tmp_path / "bad-1-py3-none-any.whl", good], offline=True)
    assert not answer.succeeded
    assert [[each.rule for each in wheel.findings] for wheel in answer.wheels] == [["not-a-wheel"], []]
    assert answer.wheels[1].succeeded
    with pytest.raises(UnreadableError):
        verified(tmp_path / "missing-1-py3-none-any.whl")
    with pytest.raises(UsageError, match="is not a wheel"):
        verified(tmp_path)
