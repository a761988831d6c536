"""Each verb once in Python for Windows: a folder with a blank and an umlaut, pipes, the code page of the console."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures import small_wheel
from tests.integration import install_world
from tests.wine import windows

FIXTURES = Path(__file__).parents[1] / "fixtures" / "bin"
HERE = ("--on", "RTX 5060 Ti", "--driver", "581.80")


def on_c(path: Path) -> str:
    """How Windows calls a file on Wine's drive C:."""
    return "C:\\" + "\\".join(path.relative_to(windows.prefix() / "drive_c").parts)


def said(*words: str, status: int = 0, **options: Any) -> str:
    done = windows.cuwheel(*words, timeout=600, **options)
    text = done.stdout.decode("utf-8") + done.stderr.decode("utf-8")  # UTF-8, whatever the console's code page
    assert done.returncode == status, text
    return text.replace("\r\n", "\n")


def answer(*words: str, status: int = 0, **options: Any) -> dict[str, Any]:
    done = windows.cuwheel(*words, "--json", timeout=600, **options)
    assert done.returncode == status, done.stderr.decode(errors="replace")
    found = json.loads(done.stdout.decode("utf-8"))
    assert isinstance(found, dict)
    return found


@pytest.fixture
def library(place: Path) -> str:
    return on_c(Path(shutil.copy(FIXTURES / "windows-130.dll", place / "kärnel.dll")))


@pytest.fixture
def wheels(place: Path) -> Path:
    for version in ("1.0", "2.0"):
        files = {"demo/demo.dll": "windows-130.dll"}
        install_world.wheel(place / "wheels", "demo", version, tag="py3-none-win_amd64", files=files)
    return place / "wheels"


def test_inspect_into_a_pipe(library: str) -> None:
    assert "█" in said("inspect", library)
    (found,) = answer("inspect", library)["libraries"]
    assert found["format"] == "pe"
    assert {row["arch"] for row in found["device_code"]} == {"sm_75", "sm_90", "compute_90"}


def test_inspect_where_paths_are_long(place: Path) -> None:
    """Beyond the 260 characters that programs of Windows once had."""
    deep = place.joinpath(*["a folder with a long name"] * 11)
    deep.mkdir(parents=True)
    shutil.copy(FIXTURES / "windows-130.dll", deep / "x.dll")
    path = on_c(deep / "x.dll")
    assert len(path) > 260
    assert answer("inspect", f"\\\\?\\{path}")["libraries"]


def test_a_library_of_a_server(library: str, share: str) -> None:
    made = answer("slim", library, "--for", "h100", "-o", f"{share}\\öut\\x.dll")
    assert made["total"]["bytes_after"] < made["total"]["bytes_before"]
    assert answer("inspect", f"{share}\\öut")["libraries"][0]["device_code"][0]["arch"] == "sm_90"
    assert said("inspect", share).startswith(share.rpartition("\\")[2])


def test_kernel_names_are_those_of_the_source(place: Path) -> None:
    """By a package: Windows itself has nothing that reads them."""
    library = on_c(Path(shutil.copy(FIXTURES / "names-130.so", place / "names.so")))
    names = [each for code in answer("inspect", library, "--kernels")["code"] for each in code["kernels"]]
    assert all("(" in each["demangled"] for each in names if each["name"].startswith("_Z"))
    assert any(each["name"].startswith("_Z") for each in names)


def test_a_file_that_stays_in_use(library: str, place: Path) -> None:
    """The error names it, says what to do, and it is as it was."""
    target = place / "loaded.dll"
    shutil.copy(FIXTURES / "windows-130.dll", target)
    words = [*("slim", library, "--for", "h100", "-o", on_c(target))]
    script = (
        f"import ctypes, subprocess, sys\nctypes.WinDLL({on_c(target)!r})\n"
        f"sys.exit(subprocess.run([sys.executable, '-m', 'cuwheel', *{words!r}]).returncode)"
    )
    done = windows.run(["-c", script])
    assert done.returncode == 4
    assert f"error: {on_c(target)}: it cannot be replaced: a program has it open" in done.stderr.decode("utf-8")
    assert target.read_bytes() == (FIXTURES / "windows-130.dll").read_bytes()


def test_kernels_and_compare(library: str, place: Path) -> None:
    assert "1 kernel in all" in said("inspect", library, "--kernels")
    other = on_c(Path(shutil.copy(FIXTURES / "plain-130.so", place / "b.so")))
    assert "device code sm_90" in said("inspect", library, "--against", other)


def test_check_knows_the_floors_of_windows(library: str) -> None:
    assert answer("check", library, *HERE)["verdicts"][0]["outcome"] == "jit"
    old = answer("check", library, "--on", "RTX 4090", "--driver", "577.00", "--set", "os=windows", status=1)
    assert old["verdicts"][0]["predicted_error"]["code"] == 35


def test_plan_gpus_and_toolkits() -> None:
    (job,) = answer("plan", "--for", "RTX 4090,H100", "--cuda", "13.0")["jobs"]
    assert job["archs"] == ["sm_89", "sm_90"]
    assert "8.9" in said("lookup", "gpu", "RTX 4090")
    assert "580.88" in said("lookup", "cuda", "13.0")


def test_explain(place: Path) -> None:
    log = place / "log.txt"
    log.write_bytes("nvcc fatal   : Cannot find compiler 'cl.exe' in PATH\r\n".encode("utf-16"))  # of PowerShell
    assert answer("explain", on_c(log))["causes"][0]["id"] == "msvc-not-found"


@pytest.mark.parametrize("where", ["drive", "share"])
def test_publish_find_install_and_undo(wheels: Path, place: Path, share: str, where: str) -> None:
    index, env = on_c(place / "index") if where == "drive" else f"{share}\\index", on_c(place / "env")
    published = answer("publish", on_c(wheels), "--to", index)
    assert [each["added"] for each in published["wheels"]] == [True, True]
    found = answer("find", "demo", "--index", index, *HERE)
    assert [each["version"] for each in found["candidates"] if each["chosen"]] == ["2.0"]
    uv = on_disk(windows.python() / "Scripts" / "uv.exe")
    python = on_disk(windows.python() / "python.exe")
    made = windows.run(["-c", f"import subprocess; subprocess.run([{uv!r}, 'venv', '--python', {python!r}, {env!r}])"])
    assert (place / "env" / "pyvenv.cfg").is_file(), made.stderr
    done = answer("install", "demo==1.0", "--env", env, "--index", index, *HERE)
    assert [(each["name"], each["to"]) for each in done["changes"]] == [("demo", "1.0")]
    assert install_world.versions(place / "env") == {"demo-1.0"}
    answer("install", "--undo", "--env", env)
    assert install_world.versions(place / "env") == set()


def on_disk(path: Path) -> str:
    return windows.named(path)


def test_verify(wheels: Path) -> None:
    wheel = next(wheels.glob("demo-2.0*"))
    told = " ".join(said("verify", on_c(wheel), "--offline").split())
    assert "import demo passed" in told
    assert "libraries load passed" in told


def test_verify_of_one_that_crashes(place: Path) -> None:
    body = "import ctypes; ctypes.string_at(0)"
    wheel = install_world.wheel(place / "w", "demo", "1.0", body, tag="py3-none-any")
    found = answer("verify", on_c(wheel), "--offline", status=1)
    (check,) = [each for each in found["wheels"][0]["installations"][0]["checks"] if each["name"] == "import demo"]
    assert check["outcome"] in ("crashed", "failed")


def test_verify_without_a_driver_and_with_a_stub_of_it(place: Path) -> None:
    functions = "".join(f"int {name}(void) {{ return 0; }}\n" for name in ("cuInit", "cuRareFunction"))
    own = "int cuInit(void), cuRareFunction(void);\n"
    own += "__declspec(dllexport) int both(void) { return cuInit() + cuRareFunction(); }"
    opens = "import ctypes, pathlib\nprint(ctypes.CDLL(str(pathlib.Path(__file__).with_name('own.dll'))).both())"
    for name, source, others in (("nvcuda.dll", functions, ()), ("own.dll", own, ("nvcuda.dll",))):
        (place / "source.c").write_text(source)
        subprocess.run([windows.COMPILER, "-shared", "source.c", *others, "-o", name], cwd=place, check=True)
    files: dict[str, str | bytes] = {"demo/__init__.py": opens, "demo/own.dll": (place / "own.dll").read_bytes()}
    wheel = on_c(small_wheel.Wheel(name="demo", tag="py3-none-win_amd64", files=files).write(place / "w"))
    for options, outcome, words in (((), "failed", "--stub"), (("--stub",), "passed", "200")):
        found = answer("verify", wheel, "--offline", *options, status=0 if options else 1)["wheels"][0][
            "installations"
        ][0]
        (check,) = [each for each in found["checks"] if each["name"] == "import demo"]
        assert (found["stub"], check["outcome"]) == (bool(options), outcome), check
        assert words in check["problem"] + check["output"]
        (libraries,) = [each for each in found["checks"] if each["name"] == "libraries load"]
        assert libraries["outcome"] == ("passed" if options else "skipped"), libraries


def test_doctor_with_nvml_by_its_dll(place: Path) -> None:
    """A stand-in nvml.dll where the driver puts its own."""
    (place / "System32").mkdir()
    target = place / "System32" / "nvml.dll"
    subprocess.run([windows.COMPILER, "-shared", "-o", target, Path(__file__).with_name("nvml.c")], check=True)
    # Wine sets the variable itself where a program of Linux starts one of Windows; not where one of Windows does.
    start = f"import os, sys; os.environ['WINDIR'] = {on_c(place)!r}; from cuwheel.cli import main; "
    done = windows.run(["-c", f"{start}sys.exit(main(['doctor', '--json']))"])
    machine = json.loads(done.stdout.decode("utf-8"))["machine"]
    assert machine["system"]["distribution"]["value"].startswith("Windows 10")
    assert (machine["driver"]["version"], machine["driver"]["cuda"]) == ("581.80", "13.0")
    assert [(each["name"], each["capability"]) for each in machine["gpus"]] == [("NVIDIA GeForce RTX 5060 Ti", "12.0")]


def test_a_file_that_is_in_use(library: str, place: Path) -> None:
    """A report is written over one that a viewer has open for a moment: it waits, and then succeeds."""
    report = place / "report.html"
    said("inspect", library, "--html", on_c(report))
    script = (
        f"import subprocess, sys, threading\nopen_now = open({on_c(report)!r}, 'rb')\n"
        "threading.Timer(1.0, open_now.close).start()\n"
        f"sys.exit(subprocess.run([sys.executable, '-m', 'cuwheel', 'inspect', {library!r}, '--html', "
        f"{on_c(report)!r}]).returncode)"
    )
    assert windows.run(["-c", script]).returncode == 0


def test_errors_are_sentences(place: Path) -> None:
    for words in (["inspect", on_c(place / "nothing.dll")], ["inspect", "\\\\server\\share\\x.dll"]):
        done = windows.cuwheel(*words)
        assert done.returncode not in (0, 70), words
        assert done.stderr.decode("utf-8").startswith("error: ")
