"""Which checks a wheel is put to, and what is foreseen against what happened."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pefile
import pytest
from msgspec.structs import replace

from cuwheel.building.tables import CheckTable, VerifyTable
from cuwheel.changes.binaries import pe_references
from cuwheel.device_code.survey import survey
from cuwheel.errors import UnavailableError, UsageError
from cuwheel.facts.tables import tables
from cuwheel.machine.fleet import Machine
from cuwheel.network import venvs
from cuwheel.proving import checks, installation, libraries, predictions, stub, wheels
from cuwheel.proving.outcomes import Check, Result
from cuwheel.proving.request import VerifyRequest
from cuwheel.verdicts.verdict import Verdict
from cuwheel_core.device_code import dynamic, elf, pe
from cuwheel_core.support.buffer import FileBuffer
from cuwheel_core.support.finding import Finding
from cuwheel_core.verdicts.choice import NO_KERNEL_IMAGE
from cuwheel_core.verdicts.condition import Condition, condition
from tests.fixtures import manifest, windows
from tests.fixtures.small_wheel import Wheel
from tests.unit.device_code import build

if TYPE_CHECKING:
    from pathlib import Path


def named(name: str, tmp_path: Path, table: VerifyTable | None = None, **more: Any) -> dict[str, Check]:
    path = Wheel(name=name, files={f"{name}/__init__.py": ""}).write(tmp_path)
    return {each.name: each for each in checks.checks_for(table or VerifyTable(), survey(path), **more)}


def test_imports_of_the_wheel_or_of_the_configuration(tmp_path: Path) -> None:
    assert list(named("subject", tmp_path)) == ["import subject"]
    assert list(named("subject", tmp_path, VerifyTable(imports=("a", "b.c")))) == ["import a", "import b.c"]
    assert named("subject", tmp_path, VerifyTable(imports=())) == {}


@pytest.mark.parametrize("name", ["bitsandbytes", "torch", "jax", "jaxmg", "cupy_cuda12x"])
def test_known_packages_have_ready_made_checks(tmp_path: Path, name: str) -> None:
    found = [each for each in named(name, tmp_path).values() if each.origin == "known"]
    assert found


def test_ready_made_checks_compile_and_can_fail() -> None:
    """A check that expects nothing at all proves little; each asks for something, or its end is the proof."""
    for row in tables().checks.check:
        if row.python is not None:
            compile(row.python, row.name, "exec")
        else:
            assert row.expect or row.forbid or row.number is not None


def test_case_1_is_among_them(tmp_path: Path) -> None:
    found = named("bitsandbytes", tmp_path)
    assert found["nvcc's version"].program == "nvcc"
    assert found["python -m bitsandbytes"].text == "python -m bitsandbytes"
    assert found["bitsandbytes says SUCCESS"].expect == ("SUCCESS",)
    assert found["bitsandbytes says SUCCESS"].gpu


@pytest.mark.parametrize(
    ("cuda", "release", "passes"),
    [
        (None, "13.0", True),
        ("12.2", "12.2", True),
        ("12.2", "13.0", False),
        ("12.2", "12.21", False),
        ("12", "12.9", True),
        ("12", "13.0", False),
        ("12.2.1", "12.2", True),
    ],
)
def test_nvcc_must_be_of_the_cuda_that_is_asked_for(
    tmp_path: Path, cuda: str | None, release: str, *, passes: bool
) -> None:
    said = f"Cuda compilation tools, release {release}, V{release}.48\n"
    path = Wheel(name="torch", files={"torch/__init__.py": ""}).write(tmp_path)
    (check,) = [each for each in checks.checks_for(VerifyTable(), survey(path), cuda=cuda) if each.program == "nvcc"]
    assert all(each in said for each in check.expect) is passes


@pytest.mark.parametrize(
    ("said", "passes"),
    [
        ("No CUDA, ROCm, or XPU detected; CPU library loaded successfully.", True),
        ("2. Using a CPU-only PyTorch build", True),
        ("COMPILE FROM SOURCE for CPU-only:\n  `cmake -DCOMPUTE_BACKEND=cpu -S . && make`", True),
        ("No CUDA, ROCm, or XPU detected; CPU library failed to load.", False),
        ("\n🚨 Failed to load CPU-only bitsandbytes library 🚨\n", False),
        ("WARNING: bitsandbytes is running as CPU-only!", False),
    ],
)
def test_advice_of_bitsandbytes_without_a_gpu_is_no_failure(tmp_path: Path, said: str, *, passes: bool) -> None:
    check = named("bitsandbytes", tmp_path)["python -m bitsandbytes"]
    assert any(each in said for each in check.forbid) is not passes


def test_a_wheel_for_cuda_alone_is_tried_where_there_is_a_gpu(tmp_path: Path) -> None:
    """Without a library for the processor there is nothing that could be tried without one."""
    needing = {"python -m bitsandbytes", "which library bitsandbytes loads"}
    found = named("bitsandbytes", tmp_path)
    assert all(found[each].gpu for each in needing)
    library = "bitsandbytes/libbitsandbytes_cpu.so"
    files: dict[str, str | bytes] = {"bitsandbytes/__init__.py": "", library: build.dynamic().build()}
    path = Wheel(name="bitsandbytes", files=files).write(tmp_path / "both")
    both = {each.name: each for each in checks.checks_for(VerifyTable(), survey(path))}
    assert not any(both[each].gpu for each in needing)
    assert both["bitsandbytes says SUCCESS"].gpu


def test_checks_of_a_configuration(tmp_path: Path) -> None:
    table = VerifyTable(
        imports=(),
        check=(
            CheckTable(import_="subject.gpu", capabilities=("9.0",), memory="2 GB", timeout=5),
            CheckTable(command="subject --version", expect=("1.0",)),
            CheckTable(python="\nprint(1)\nprint(2)", name=""),
        ),
    )
    first, second, third = named("subject", tmp_path, table).values()
    assert (first.name, first.kind, first.gpu, first.memory) == ("import subject.gpu", "import", True, 2_000_000_000)
    assert (second.name, second.kind, second.expect) == ("subject --version", "command", ("1.0",))
    assert (third.name, third.text) == ("print(1)", "\nprint(1)\nprint(2)")
    assert {each.timeout for each in named("subject", tmp_path, table, timeout=7.0).values()} == {7.0}
    assert {each.origin for each in (first, second, third)} == {"configuration"}


def test_chosen_checks() -> None:
    made = [Check(name=name, kind="python", text="", origin="known", timeout=1, memory=1) for name in ("a b", "a c")]
    assert [each.name for each in checks.select_checks(made, ["a *"])] == ["a b", "a c"]
    assert [each.name for each in checks.select_checks(made, ["a c"])] == ["a c"]
    with pytest.raises(UsageError, match="unknown check 'x' and 'y'") as caught:
        checks.select_checks(made, ["x", "a b", "y"])
    assert "'a b', 'a c'" in caught.value.hint


def _result(**more: Any) -> Result:
    return replace(Result(name="run", kind="python", origin="configuration", outcome="passed"), **more)


def _verdict(outcome: Any, error: Any = None, requires: tuple[Condition, ...] = ()) -> Verdict:
    return Verdict(
        target="x",
        machine="h",
        outcome=outcome,
        predicted_error=error,
        requires=requires,
        libraries=(),
        findings=(),
    )


def test_hardware_against_the_verdict() -> None:
    check = Check(name="run", kind="python", text="", origin="configuration", gpu=True, timeout=1, memory=1)
    failed = _result(outcome="failed", output="RuntimeError: CUDA error: no kernel image is available for execution")

    def told(verdict: Verdict, result: Result, of: Check = check) -> list[str]:
        return [each.message for each in predictions.contradicted_on_gpu([verdict], [of], [result])]

    assert told(_verdict("fails", NO_KERNEL_IMAGE), _result()) == [
        f"error {NO_KERNEL_IMAGE.code} was predicted on h, but checks passed there"
    ]
    assert told(_verdict("native"), failed) == ["it was predicted to run on h (native), but has no code for it"]
    assert told(_verdict("fails", NO_KERNEL_IMAGE), failed) == []
    assert told(_verdict("native"), _result()) == []
    assert told(_verdict("native"), replace(failed, output="out of memory")) == []
    assert told(_verdict("fails", NO_KERNEL_IMAGE), _result(), replace(check, gpu=False)) == []
    assert told(_verdict("fails", NO_KERNEL_IMAGE), _result(outcome="skipped")) == []


def test_imports_against_the_verdict() -> None:
    failed = _result(
        kind="import", outcome="failed", problem="ImportError: libfoo.so.3: cannot open shared object file"
    )
    glibc = replace(failed, problem="ImportError: /lib/libc.so.6: version `GLIBC_2.38' not found (required by x)")
    driver = replace(failed, problem="ImportError: libcuda.so.1: cannot open shared object file")
    unknown = _verdict("unknown")
    for result, count in ((failed, 1), (glibc, 1), (driver, 0), (replace(failed, outcome="passed"), 0)):
        assert len(list(predictions.contradicted_imports([unknown], [result]))) == count
    # A condition of the verdict was foresight enough; so is a finding that names it.
    assert not list(
        predictions.contradicted_imports(
            [_verdict("unknown", requires=(condition("library-found", names=("libfoo.so.3",)),))], [failed]
        )
    )
    found = Finding(rule="r", severity="error", message="it needs libfoo.so.3, which was not found")
    assert not list(predictions.contradicted_imports([replace(unknown, findings=(found,))], [failed]))


def test_what_the_loader_says_becomes_a_result() -> None:
    scene = libraries.LoadingContext(
        foreseen={"a.so": (Finding(rule="r", severity="error", message="m"),)}, driver=True, gpu=False
    )

    def told(*lines: str, **more: Any) -> Result:
        output = "noise\n" + "\n".join(f"cuwheel-library {each}" for each in lines) + "\ncuwheel-library [broken"
        return _result(name=libraries.LIBRARIES_CHECK, output=output, **more)

    def judged(*lines: str, of: libraries.LoadingContext = scene, **more: Any) -> Result:
        return libraries.judge_loading(told(*lines, **more), of)

    gone = "cannot open shared object file: No such file or directory"
    fine = judged('["a.so", ""]')
    assert (fine.outcome, fine.problem) == ("passed", "")
    assert 'cuwheel-library ["a' not in fine.output
    assert judged('["a.so", "libx.so: no"]').problem == "libx.so: no"
    slight = judged('["b.so", "libx.so: no"]', '["c.so", ""]')  # the package may see to it: told as a warning
    assert (slight.outcome, slight.problem) == ("passed", "but for 1 of 2: see below")
    module = "b.cpython-311-x86_64-linux-gnu.so"
    assert judged(f'["{module}", "libx.so: {gone}"]').outcome == "failed"
    # A part of CUDA is missing: no matter where there is no GPU, and the package that brings it is named.
    cuda = f'["{module}", "libcufft.so.11: {gone}"]'
    assert judged(cuda).outcome == "passed"
    assert judged(cuda, of=replace(scene, gpu=True)).outcome == "failed"
    (finding,) = libraries.loading_findings(libraries.load_attempts(told(cuda)), scene)
    assert (finding.rule, finding.severity) == ("library-does-not-load", "warning")
    assert finding.fix == "install what it needs too: --with nvidia-cufft-cu12"
    assert not list(libraries.loading_findings(libraries.load_attempts(told(cuda)), replace(scene, gpu=True)))
    driver = f'["b.so", "libcuda.so.1: {gone}"]'
    assert judged(driver, of=replace(scene, driver=False)).outcome == "skipped"
    assert judged(driver, '["c.so", ""]', of=replace(scene, driver=False)).outcome == "passed"
    crashed = judged('["b.so", null]', outcome="crashed", problem="ended by SIGSEGV")
    assert crashed.problem == "ended by SIGSEGV, in loading b.so"


def test_the_stub_is_a_library_with_these_functions(tmp_path: Path) -> None:
    path = stub.write_stub(tmp_path, ("cuInit", "cuOther"), "aarch64")
    buffer = FileBuffer(path)
    file = elf.read_elf(buffer)
    assert dynamic.read_dynamic(file).soname == "libcuda.so.1"
    assert struct.unpack_from("<H", path.read_bytes(), 18) == (183,)
    buffer.close()
    with pytest.raises(UnavailableError, match="no stub of libcuda for sparc"):
        stub.write_stub(tmp_path, (), "sparc")
    (tmp_path / "text.so").write_text("not a library")
    assert "cuInit" in stub.names_wanted([tmp_path / "text.so", tmp_path / "missing.so"])


@pytest.mark.parametrize(("cpu", "machine"), [("x86_64", 0x8664), ("aarch64", 0xAA64)])
def test_the_stub_of_windows_exports_these_functions(tmp_path: Path, cpu: str, machine: int) -> None:
    user = windows.Dll(needed=("NVCUDA.dll", "other.dll")).build()
    (tmp_path / "user.pyd").write_bytes(user)
    names = stub.names_wanted([tmp_path / "user.pyd"])
    assert "one_function" not in names, "not the driver's"
    path = stub.write_stub(tmp_path, ("cuOther", "cuInit"), cpu, windows=True)
    read = pefile.PE(path)
    assert read.FILE_HEADER.Machine == machine
    assert [each for each in read.get_warnings() if "% of the file" not in each] == []
    exported = [(each.name, each.address) for each in read.DIRECTORY_ENTRY_EXPORT.symbols]
    assert exported == [(b"cuInit", 0x1000), (b"cuOther", 0x1000)]
    assert read.DIRECTORY_ENTRY_EXPORT.name == b"nvcuda.dll"
    read.close()
    buffer = FileBuffer(path)
    assert list(pe_references.broken_rules(pe.read_pe(buffer))) == []
    buffer.close()


def test_what_is_linked_with_the_driver_of_windows(tmp_path: Path) -> None:
    """Its loader names no library that it did not find: what the file itself needs tells."""
    files: dict[str, str | bytes] = {
        "pkg/own.pyd": windows.Dll(needed=("nvcuda.dll",)).build(),
        "pkg/other.pyd": windows.Dll().build(),
    }
    found = survey(Wheel(name="pkg", tag="py3-none-win_amd64", files=files).write(tmp_path))
    scene = libraries.LoadingContext(foreseen={}, driver=False, gpu=False, needed=libraries.needed_on_windows(found))
    failed = libraries.LoadAttempt(path="pkg/own.pyd", problem="Could not find module")
    assert scene.wants_nvcuda
    assert scene.waits(failed)
    assert not scene.waits(replace(failed, path="pkg/other.pyd"))
    assert not replace(scene, driver=True).waits(failed)
    extension = replace(failed, path="pkg/blas.cp311-win_amd64.pyd")
    assert scene.is_grave(extension)
    assert not replace(scene, needed={extension.path: ("cublas64_13.dll",)}).is_grave(extension), "without a GPU"


def test_the_libraries_of_the_system_are_loaded(tmp_path: Path) -> None:
    for name, data, system, other in (
        ("pkg/own.pyd", windows.Dll().build(), "windows", "linux"),
        ("pkg/own.so", (manifest.HERE / "bin" / "plain-130.so").read_bytes(), "linux", "windows"),
    ):
        found = survey(Wheel(name="pkg", tag="py3-none-any", files={name: data}).write(tmp_path))
        here, there = (
            libraries.loading_check(found, Machine(name="x", capability=None, os=each), (), timeout=1, memory=1)[0]  # type: ignore[arg-type]
            for each in (system, other)
        )
        assert here
        assert name in here.text
        assert there is None


def test_a_wheel_that_fits_some_pythons_is_left_out_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Machine(name="here", capability=None, os="linux", cpu="x86_64", glibc="2.36", python="3.11.7")

    def find(version: str | None = None) -> Any:
        if version == "3.6":
            raise UnavailableError("Python 3.6 was not found", hint="uv python install 3.6")
        return venvs.Python(path="p", version=f"{version or '3.11'}.1", found_via="a test")

    monkeypatch.setattr("cuwheel.network.venvs.find_python", find)
    made = survey(Wheel(tag="cp312-cp312-linux_x86_64", files={"a.py": ""}).write(tmp_path))
    assert [each.outcome for each in installation.choose_pythons(made, ["3.11"], here)] == ["failed"]
    some = installation.choose_pythons(made, ["3.11", "3.12", "3.6"], here)
    assert [each.python is not None for each in some] == [False, True, False]
    assert [each.outcome for each in some] == ["skipped", "failed", "failed"]
    # Without being told, the Python that the tags name, and the own one where they allow it.
    (own,) = installation.choose_pythons(made, [], here)
    assert own.version == "3.12.1"
    anything = survey(Wheel(files={"a.py": ""}).write(tmp_path))
    (own,) = installation.choose_pythons(anything, [], here)
    assert own.version == "3.11.1"
    monkeypatch.setattr("cuwheel.support.process.find_program", lambda _: None)  # no qemu, whoever has one
    foreign = survey(Wheel(tag="py3-none-linux_aarch64", files={"a.py": ""}).write(tmp_path))
    (choice,) = installation.choose_pythons(foreign, [], here)
    assert choice.problem.startswith("it is for aarch64")


def test_the_project_of_a_wheel(tmp_path: Path) -> None:
    assert not wheels.is_of_project(tmp_path, "subject")
    (tmp_path / "cuwheel.toml").write_text("")
    assert wheels.is_of_project(tmp_path, "anything")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "Sub.Ject"\n')
    assert wheels.is_of_project(tmp_path, "sub_ject")
    assert wheels.is_of_project(tmp_path, "sub-ject-cu13")
    assert not wheels.is_of_project(tmp_path, "torch")
    (tmp_path / "pyproject.toml").write_text("no toml [")
    assert not wheels.is_of_project(tmp_path, "sub-ject")


def test_cuda_versions_asked_for() -> None:
    assert VerifyRequest("a.whl", cuda="12.8").cuda == "12.8"
    assert VerifyRequest("a.whl").cuda is None
    with pytest.raises(UsageError):
        VerifyRequest("a.whl", cuda="12.8; rm")
