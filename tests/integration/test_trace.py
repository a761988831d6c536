"""`trace` with a driver that is none: what the preloaded library sees, and that the program does not notice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cuwheel
from cuwheel.report import trace as trace_report
from cuwheel.report.tables import Facts

if TYPE_CHECKING:
    from cuwheel.tracing.traced import Traced

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only"),
]
SOURCES = Path(__file__).parent / "src"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traced")
    words = ["gcc", "-O1", "-Wall", "-Werror"]
    subprocess.run(
        [*words, "-shared", "-fPIC", "-o", folder / "libcuda.so.1", SOURCES / "fake_driver.c"],
        check=True,
    )
    subprocess.run(
        [*words, "-o", folder / "program", SOURCES / "traced_program.c", "-ldl", "-lpthread"],
        check=True,
    )
    subprocess.run(
        [*words, "-shared", "-fPIC", "-o", folder / "libcupti.so.13", SOURCES / "fake_cupti.c"],
        check=True,
    )
    return folder


def environ(place: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": str(place), **more}


def traced(place: Path, *words: str, **more: str) -> Traced:
    return cuwheel.trace([str(place / "program"), *words], environ=environ(place, **more))


@pytest.mark.parametrize("how", ["runtime", "local", "streams"])
def test_loads_and_launches_are_seen_however_the_driver_was_opened(place: Path, how: str) -> None:
    found = traced(place, how)
    assert found.exit_status == 0
    assert [each.name for process in found.processes for each in process.gpus] == ["Pretend H200"]
    assert [(each.library, each.kind, each.launched) for each in found.loads] == [
        (str(place / "program"), "fatbin", ("_Z5scalePf",))
    ]
    assert not found.failures
    assert found.processes[0].ended
    (kernel,) = found.kernels
    assert (kernel.demangled, kernel.library) == ("scale(float*)", str(place / "program"))
    assert kernel.launches == found.processes[0].launches


def test_a_driver_in_a_scope_of_its_own_is_seen_too(place: Path) -> None:
    """RTLD_DEEPBIND changes what the driver itself finds, not what the program is given."""
    assert traced(place, "deep").loads


def test_the_kernel_that_has_no_code_is_named_with_its_library(place: Path) -> None:
    found = traced(place, "absent")
    assert found.exit_status == 209
    failure = found.failures[0]
    assert failure.error.code == 209
    assert failure.error.name == "cudaErrorNoKernelImageForDevice"
    assert failure.kernel == "absent_kernel"
    assert failure.library == str(place / "program")
    assert failure.gpu == "9.0"
    assert not failure.swallowed


def test_a_failure_that_the_program_dealt_with_is_told_as_such(place: Path) -> None:
    found = traced(place, "swallows")
    assert found.exit_status == 0
    assert [each.swallowed for each in found.failures] == [True]


@pytest.mark.parametrize(("how", "status", "swallowed"), [("private", 209, False), ("swallowed-private", 0, True)])
def test_code_that_is_loaded_in_private_fails_in_the_drivers_log(
    place: Path, how: str, status: int, *, swallowed: bool
) -> None:
    """The runtime of CUDA 11 calls nothing that has a name: only the driver's log tells."""
    found = traced(place, how)
    assert found.exit_status == status
    (failure,) = found.failures
    assert (failure.api, failure.error.code, failure.swallowed) == ("a load inside the CUDA runtime", 209, swallowed)
    assert failure.library == failure.caller == str(place / "program")
    assert failure.driver_log == ("No device code available for GPU ISA 90",)
    assert failure.reason == "the driver's log says: No device code available for GPU ISA 90"


def test_what_the_log_says_of_a_call_that_is_seen_belongs_to_that_call(place: Path) -> None:
    """Of one that fails again and again only the first few are written down, but the log has them all."""
    (failure,) = traced(place, "again").failures
    assert failure.api == "cuLibraryGetKernel"
    assert failure.times == 4
    assert failure.driver_log == ("No device code available for GPU ISA 90",)


def test_a_launch_of_the_wrong_shape_says_which(place: Path) -> None:
    failure = traced(place, "shape").failures[0]
    assert failure.api == "cuLaunchKernel"
    assert failure.block == (4096, 1, 1)
    assert "4096 × 1 × 1 threads" in failure.reason
    assert failure.demangled == "scale(float*)"


@pytest.mark.parametrize(
    ("how", "error", "kernel", "reason"),
    [
        ("registers", 701, "heavy(float*)", "this kernel can have 256 threads a block (142 registers each)"),
        ("shared", 1, "wide(float*)", "this kernel may have 49.2 kB of it so far"),
        ("cooperative", 720, "meet(int*)", "the GPU runs 264 at once"),
    ],
)
def test_a_launch_that_asks_for_too_much_says_what_the_kernel_can_have(
    place: Path, how: str, error: int, kernel: str, reason: str
) -> None:
    (failure,) = traced(place, how).failures
    assert (failure.error.code, failure.demangled) == (error, kernel)
    assert reason in failure.reason
    assert failure.fix


def test_a_pool_that_is_exhausted_is_seen(place: Path) -> None:
    (failure,) = traced(place, "pool").failures
    assert (failure.api, failure.error.code, failure.bytes) == ("cuMemAllocFromPoolAsync", 2, 1 << 28)


def test_what_the_compiler_of_the_driver_said_is_told(place: Path) -> None:
    (failure,) = traced(place, "ptx").failures
    assert failure.error.code == 218
    assert "PTX ISA 8.0 for compute_90" in failure.reason
    assert "line 5; fatal: Unknown opcode" in failure.reason


def test_an_image_that_is_cut_short_does_not_hurt_the_program(place: Path) -> None:
    found = traced(place, "cut")
    assert found.status == 200
    assert [each.error.code for each in found.failures] == [200]


def test_an_allocation_says_how_much_was_wanted(place: Path) -> None:
    failure = traced(place, "memory").failures[0]
    assert failure.api == "cuMemAlloc_v2"
    assert failure.bytes == 1 << 40
    assert "1.1 TB" in failure.reason


def test_a_late_error_names_the_last_launches(place: Path) -> None:
    failure = traced(place, "runtime", FAKE_SYNC="700").failures[0]
    assert failure.error.code == 700
    assert failure.last == ("scale(float*)",)
    assert "CUDA_LAUNCH_BLOCKING=1" in failure.fix


def test_a_graph_that_is_launched_is_among_the_last_launches_with_its_kernels(place: Path) -> None:
    found = traced(place, "graph", FAKE_SYNC="700")
    assert found.failures[0].last[:3] == (*["a CUDA graph of chase(int**), fill(int*)"] * 2, "other()")
    rows = next(each for each in trace_report.document(found, verbose=False).blocks if isinstance(each, Facts)).rows
    assert [each.value for each in rows if each.name in ("last launched", "before that")] == [
        "a CUDA graph of chase(int**), fill(int*), 2 times",
        "other() in program, 6 times",
    ]


def test_a_late_error_is_told_once_though_every_call_has_it(place: Path) -> None:
    (failure,) = traced(place, "free", FAKE_SYNC="716").failures
    assert (failure.api, failure.error.code, failure.times) == ("cuMemFree_v2", 716, 2)
    assert failure.last == ("scale(float*)",)
    assert failure.last_libraries == (str(place / "program"),)


def test_with_launches_that_wait_the_kernel_itself_is_named(place: Path) -> None:
    """What the advice for a late error leads to."""
    (failure,) = traced(place, "runtime", FAKE_SYNC="700", CUDA_LAUNCH_BLOCKING="1").failures
    assert failure.demangled == "scale(float*)"
    assert failure.library == str(place / "program")
    assert "CUDA_LAUNCH_BLOCKING" not in failure.fix


def test_what_was_seen_until_a_kill_is_there(place: Path) -> None:
    found = traced(place, "killed")
    assert found.status == -9
    assert found.exit_status == 137
    assert not found.processes[0].ended
    assert found.loads[0].launched == ("_Z5scalePf",)


def test_sixty_four_threads_lose_nothing(place: Path) -> None:
    found = traced(place, "threads")
    assert found.exit_status == 0
    assert len(found.loads) == 64 * 50
    assert all(each.launched for each in found.loads)
    assert found.unread == 0
    assert found.processes[0].lost == 0


def test_a_child_of_fork_has_a_file_of_its_own(place: Path) -> None:
    found = traced(place, "fork")
    assert found.exit_status == 0
    assert len(found.processes) == 2
    parent, child = sorted(found.processes, key=lambda each: each.parent == found.processes[0].pid)
    assert child.parent == parent.pid
    assert {name for each in found.loads for name in each.launched} == {"_Z5scalePf", "_Z5childPf"}


def test_a_process_that_only_began_with_cuda_is_seen(place: Path) -> None:
    found = traced(place, "begins")
    assert [each.gpus[0].name for each in found.processes] == ["Pretend H200"]


def test_a_child_that_cannot_use_cuda_because_of_the_fork_is_told_so(place: Path) -> None:
    found = traced(place, "forked")
    assert found.exit_status == 3
    (failure,) = found.failures
    assert (failure.error.code, failure.process) == (3, 1)
    assert "before the fork" in failure.reason


def test_forks_amid_threads_that_work_neither_hang_nor_lose_anything(place: Path) -> None:
    found = traced(place, "middle")
    assert found.exit_status == 0
    assert len(found.processes) == 11
    assert sum("_Z5childPf" in each.launched for each in found.loads) == 10
    assert len(found.loads) == 8 * 50 + 10
    assert found.unread == 0


def test_signals_all_the_time_lose_nothing(place: Path) -> None:
    found = traced(place, "signals")
    assert found.exit_status == 0
    assert len(found.loads) == 64 * 50
    assert found.unread == found.processes[0].lost == 0


def test_a_handler_of_signals_that_forks_does_not_hang(place: Path) -> None:
    assert traced(place, "forking-signals").exit_status == 0


def test_a_driver_in_another_namespace_is_no_hindrance(place: Path) -> None:
    found = traced(place, "namespace")
    assert found.exit_status == 0
    assert found.processes


def test_every_way_to_ask_for_a_function_gives_the_same_one(place: Path) -> None:
    found = traced(place, "everywhere")
    assert found.exit_status == 0
    assert found.loads[0].launched == ("_Z5scalePf",)


@pytest.mark.parametrize("order", ["before", "after", "both"])
def test_other_preloaded_libraries_are_no_hindrance(place: Path, order: str, tmp_path: Path) -> None:
    """One that links the driver, and one that stands before dlsym as we do."""
    source = tmp_path / "other.c"
    source.write_text("int cuInit(unsigned); int other(void) { return cuInit(0); }\n")
    library = tmp_path / "libother.so"
    words = ["gcc", "-shared", "-fPIC", "-o", str(library), str(source), f"-L{place}", "-l:libcuda.so.1"]
    subprocess.run(words, check=True)
    more = {"LD_PRELOAD": str(library)} if order != "after" else {}
    command = ["env", f"LD_PRELOAD={library}", str(place / "program")] if order == "both" else [str(place / "program")]
    if order == "after":  # the program itself puts it behind ours
        command = ["sh", "-c", f'LD_PRELOAD="$LD_PRELOAD:{library}" exec "$0"', str(place / "program")]
    found = cuwheel.trace(command, environ=environ(place, **more))
    assert found.exit_status == 0
    assert bool(found.loads) == (order != "both")


def test_a_program_that_closes_strange_files_keeps_its_own(place: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    found = traced(place, "closes", str(own))
    assert found.exit_status == 0
    assert own.read_text() == "mine\n"
    assert {name for each in found.loads for name in each.launched} == {"_Z5scalePf", "_Z5againPf"}


def test_a_full_disk_does_not_disturb_the_program(place: Path) -> None:
    assert traced(place, "full").exit_status == 0


def test_a_folder_that_vanishes_does_not_disturb_the_program(place: Path, tmp_path: Path) -> None:
    from cuwheel.tracing import session

    gone = tmp_path / "gone"
    gone.mkdir()
    variables = session.environ_for(gone, environ(place))
    gone.rmdir()
    done = subprocess.run([place / "program"], env=variables, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("how", ["nothing", "next"])
def test_programs_that_only_ask_get_the_answers_they_would_get(place: Path, how: str) -> None:
    """No driver function appears in a program that has none, and RTLD_NEXT means the caller's next."""
    found = traced(place, how)
    assert found.exit_status == 0
    assert not found.processes


def test_the_command_keeps_its_streams_and_status(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    words = [
        sys.executable,
        "-m",
        "cuwheel",
        "trace",
        "-o",
        str(out),
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; exit 3",
    ]
    done = subprocess.run(words, env=environ(place), capture_output=True, check=False)
    assert done.returncode == 3
    assert done.stdout == b"out\n"
    assert done.stderr.startswith(b"err\n")
    assert json.loads(out.read_text())["schema"] == "cuwheel.trace/1"


def test_what_was_kept_can_be_read_again(place: Path, tmp_path: Path) -> None:
    from cuwheel import api

    kept = tmp_path / "kept"
    first = api.trace([str(place / "program"), "absent"], keep=kept, environ=environ(place))
    again = api.read_trace(kept)
    assert [each.kernel for each in again.failures] == [each.kernel for each in first.failures]


def test_the_python_stack_is_told(place: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import ctypes\n"
        "driver = ctypes.PyDLL('libcuda.so.1')\n"
        "def allocate():\n"
        "    return driver.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1 << 40))\n"
        "allocate()\n"
    )
    failure = cuwheel.trace([sys.executable, str(script)], environ=environ(place)).failures[0]
    assert failure.python[:2] == (f"{script}:4 in allocate", f"{script}:5 in <module>")


def test_what_a_test_of_pytest_does_is_seen_with_its_stack(place: Path, tmp_path: Path) -> None:
    """pytest rewrites tests, captures what they print and runs them in its own process."""
    (tmp_path / "test_one.py").write_text(
        "import ctypes\n"
        "driver = ctypes.PyDLL('libcuda.so.1')\n"
        "def test_allocation():\n"
        "    assert driver.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1 << 40)) == 0\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_one.py")]
    found = cuwheel.trace(command, environ=environ(place), cwd=tmp_path)
    assert found.exit_status == 1
    (failure,) = found.failures
    assert not failure.swallowed
    assert failure.python[0] == f"{tmp_path / 'test_one.py'}:4 in test_allocation"


def test_cupti_names_a_kernel_that_the_runtime_itself_refuses(place: Path) -> None:
    words = [str(place / "program"), "refused"]
    found = cuwheel.trace(words, environ=environ(place), cupti=place / "libcupti.so.13")
    assert [(each.api, each.error.code, each.demangled) for each in found.failures] == [
        ("cudaLaunchKernel", 98, "found(float*)")
    ]
    assert [(each.demangled, each.launches, each.seconds) for each in found.times] == [("scale(float*)", 3, 3e-6)]
    assert found.processes[0].ended


def test_cupti_is_found_beside_the_python_of_the_command(tmp_path: Path) -> None:
    from cuwheel.errors import ToolError
    from cuwheel.tracing import session

    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    nowhere = {"PATH": "", "CUDA_HOME": str(tmp_path / "none")}
    if not Path("/usr/local/cuda").exists():
        with pytest.raises(ToolError, match="CUPTI was not found"):
            session.find_cupti([str(python)], nowhere)
    library = tmp_path / "lib" / "python3.12" / "site-packages" / "nvidia" / "cuda_cupti" / "lib" / "libcupti.so.12"
    library.parent.mkdir(parents=True)
    library.touch()
    assert session.find_cupti([str(python)], nowhere) == library.resolve()


def test_a_thread_can_trace(place: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(traced, place, "runtime").result().loads
