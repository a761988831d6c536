"""What a person reads first: the answer, then what to do, in lines that can be copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuwheel.cli import main
from cuwheel.errors import EXIT_UNKNOWN
from cuwheel.machine import probe
from cuwheel_core.support import wording
from tests.unit.verdicts.machines import MACHINES

BIN = Path(__file__).parents[2] / "fixtures" / "bin"
LIBRARY = str(BIN / "names-130.so")
NO_GPU = next(machine for machine in MACHINES if not machine.profile.gpus).profile
GCC = """\
/usr/local/cuda-12.1/bin/nvcc -c a.cu
/usr/local/cuda-12.1/include/crt/host_config.h:132:2: error: #error -- unsupported GNU version! \
gcc versions later than 12 are not supported!
"""
TORCH = """\
torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device
NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.
"""


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def shown(words: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(words) == status
    return capsys.readouterr().out.splitlines()


def test_a_cause_its_proof_and_commands_to_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gcc.log").write_text(GCC)
    said = shown(["explain", str(tmp_path / "gcc.log")], 0, capsys)
    assert said[0] == "The host compiler is newer than this nvcc accepts"
    assert said[1].startswith("  line 2  host_config.h:132:2: error: #error -- unsupported GNU version!")
    commands = [line.strip() for line in said if line.startswith(" " * 12)]
    assert "apt install g++-12" in commands
    assert 'export NVCC_PREPEND_FLAGS="-ccbin g++-12" CUDAHOSTCXX="g++-12"' in commands
    assert said[-1].endswith("host-compiler-too-new (99 %); other ways: --verbose")


def test_torch_without_code_for_the_gpu_is_found_and_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "torch.log").write_text(TORCH)
    said = [line.strip() for line in shown(["explain", str(tmp_path / "torch.log")], 0, capsys)]
    assert "cuwheel find torch --on 'GeForce RTX 5090'" in said
    assert "cuwheel install torch --on 'GeForce RTX 5090'" in said


@pytest.mark.skipif(not Path("/bin/true").is_file(), reason="needs a program without CUDA code")
def test_without_cuda_code_there_is_nothing_to_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(["check", "/bin/true", "--on", "h100"], 0, capsys) == ["true: no CUDA code, nothing to check"]


def test_without_a_gpu_nobody_can_tell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(probe, "probe", lambda _env, **_: NO_GPU)
    said = shown(["check", LIBRARY], EXIT_UNKNOWN, capsys)
    assert said[0] == "names-130.so: cannot tell, this machine has no GPU that cuwheel can see"
    assert said[1] == f"  Name one: cuwheel check {LIBRARY} --on h100"


def test_a_file_without_code_for_the_gpu_is_not_slimmed(capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(["slim", LIBRARY, "--for", "gtx 1080", "--dry-run"], 1, capsys)
    assert said[0] == "names-130.so has no code for gtx 1080 (6.1): nothing was removed"
    assert "because sm_75 in" in " ".join(said)


def test_where_nothing_can_go_the_first_line_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(["slim", LIBRARY, "--for", "7.5,9.0,10.0", "--dry-run"], 0, capsys)
    assert said[0].endswith(": nothing to remove")


def test_what_one_side_alone_has_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, files in (("old", ("names-130.so", "plain-130.so")), ("new", ("names-130.so",))):
        (tmp_path / name).mkdir()
        for each in files:
            (tmp_path / name / each).write_bytes((BIN / each).read_bytes())
    said = shown(["inspect", str(tmp_path / "old"), "--against", str(tmp_path / "new")], 0, capsys)
    at = said.index("plain-130.so (gone)")
    assert said[at + 1] == f"{(BIN / 'plain-130.so').stat().st_size:,} bytes"


def test_a_fleet_is_counted_in_kinds_of_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "fleet.toml").write_text(
        "[[machine]]\nname = 'new'\ngpu = 'h100'\ncount = 16\n[[machine]]\nname = 'old'\ngpu = 'gtx 1080'\ncount = 8\n"
    )
    said = shown(["check", LIBRARY, "--on", str(tmp_path / "fleet.toml")], 1, capsys)
    assert said[0] == "names-130.so: runs on 1 of 2 kinds of machine (16 of 24 GPUs)"
    assert [line.split()[:2] for line in said[1:3]] == [["runs", "new"], ["fails", "old"]]
    assert "Fix" in said


def test_files_that_are_alike_are_counted_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, of in (("a.so", "plain-130.so"), ("b.so", "plain-130.so"), ("c.so", "plain-124.so")):
        (tmp_path / name).write_bytes((BIN / of).read_bytes())
    files = [str(tmp_path / name) for name in ("a.so", "b.so", "c.so")]
    assert shown(["check", *files, "--on", "h100"], 0, capsys)[0] == "3 of 3 run on h100"
    said = shown(["check", *files, "--on", "h100,gtx 1080"], 1, capsys)
    assert said[0] == "a.so runs on 1 of 2 machines, b.so on 1, c.so on 2"
    assert said[1].split() == ["a.so", "and", "b.so", "c.so"]  # the same of both: one column


def test_doctor_begins_with_its_verdict(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(probe, "probe", lambda _env, **_: NO_GPU)
    assert main(["doctor"]) in (0, 1)
    assert capsys.readouterr().out.startswith("This machine has no GPU; ")


def test_a_long_name_is_elided_and_never_broken() -> None:
    assert wording.elided("libbitsandbytes_cuda118.so", 24) == "libbitsa…ytes_cuda118.so"
    assert wording.elided("libfoo.so", 24) == "libfoo.so"


def test_a_new_driver_is_no_advice_where_it_does_not_help(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "fleet.toml").write_text("[[machine]]\nname = 'old'\ngpu = 'gtx 1080'\ndriver = '535.104'\ncount = 8\n")
    said = shown(["check", LIBRARY, "--on", str(tmp_path / "fleet.toml")], 1, capsys)
    assert any("no code for 6.1" in line for line in said)
    assert "update the driver" not in " ".join(said)
    assert "a newer driver alone does not help" in " ".join(said)


def test_what_names_a_capability_does_not_say_it_twice(capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(["check", LIBRARY, "--on", "hopper"], 0, capsys)
    assert said[1].split()[:4] == ["runs", "hopper", "9.0", "native"]


def test_there_is_one_way_to_write_a_percentage() -> None:
    sources = Path(wording.__file__).parents[1].rglob("*.py")
    assert [str(each) for each in sources if "%}" in each.read_text("utf-8").replace("%%}", "")] == []
