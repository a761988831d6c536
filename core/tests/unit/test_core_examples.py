"""The two adapters in `examples/core`, with a `rapids_cli` of the same interface as 0.2.0's."""

from __future__ import annotations

import runpy
import shutil
import sys
import sysconfig
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "core"
LIBRARY = ROOT / "tests" / "fixtures" / "bin" / "all-124.so"


@pytest.mark.parametrize(("gpus", "status"), [("h100", 0), ("h100,12.0", 1)])
def test_wheels_are_refused_before_they_are_published(
    gpus: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["prepublish.py", gpus, str(LIBRARY)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / "prepublish.py"), run_name="__main__")
    assert ended.value.code == status
    assert ("uses_a_stack has no code for 12.0" in capsys.readouterr().out) == bool(status)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "libcudf").mkdir()
    shutil.copy(LIBRARY, tmp_path / "libcudf" / "libcudf.so")
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"purelib": str(tmp_path)})
    return tmp_path


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(("capability", "failure"), [((9, 0), ""), ((12, 0), "cudaErrorNoKernelImageForDevice")])
def test_rapids_doctor_hears_of_libraries_without_code(
    capability: tuple[int, int], failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    providers = ModuleType("rapids_cli.providers")
    gpu = SimpleNamespace(compute_capability=capability)
    info = SimpleNamespace(devices=[gpu], driver_version="580.65.06")
    providers.get_gpu_info = lambda: info  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rapids_cli", ModuleType("rapids_cli"))
    monkeypatch.setitem(sys.modules, "rapids_cli.providers", providers)
    check = runpy.run_path(str(EXAMPLES / "rapids_check" / "rapids_device_code_check.py"))["device_code_check"]
    if failure:
        with pytest.raises(ValueError, match=failure):
            check(verbose=True)
    else:
        assert check(verbose=True) == "device code fits 9.0"
