"""What a repair says, from decisions that were made of libraries as bytes."""

from __future__ import annotations

import io
import json
import shlex
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from cuwheel.changes.repair.act import repair
from cuwheel.changes.repair.request import RepairRequest
from cuwheel.report import terminal
from cuwheel.report.answer import SCHEMAS, document_of
from cuwheel.support.answer import to_json
from tests.fixtures import systems
from tests.fixtures.elves import elf
from tests.fixtures.wheels import wheel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.changes.repair.answer import Repair

pytestmark = pytest.mark.unit
pytestmark = systems.NO_AUDITWHEEL

OLD = {"libc.so.6": ["GLIBC_2.2.5"]}


@pytest.fixture(autouse=True)
def _an_empty_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDNN_ROOT", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "no-env"))
    monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("cuwheel.changes.repair.contents._SYSTEM", ())
    monkeypatch.setattr("cuwheel.changes.repair.contents._LD_CONF", str(tmp_path / "none"))


def answered(folder: Path, needed: Sequence[str], **asked: Any) -> Repair:
    path = wheel(folder / "dist", {"pkg/libown.so": elf(needed=needed, versions=OLD, runpath="/opt/ci/lib")})
    return repair(RepairRequest(path, dry_run=True, **asked))


def shown(answer: Repair, *, verbose: bool = False) -> str:
    stream = io.StringIO()
    terminal.write(document_of(answer, verbose=verbose), stream)
    return stream.getvalue()


def test_what_would_be_done_and_why(tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "libcublas.so.12").write_bytes(
        elf(soname="libcublas.so.12", needed=["libcublasLt.so.12"], padding=5_000_000)
    )
    (folder / "libblas.so.3").write_bytes(elf(soname="libblas.so.3", versions={"libc.so.6": ["GLIBC_2.17"]}))
    needed = ["libcublas.so.12", "libcuda.so.1", "libblas.so.3", "libc.so.6"]
    answer = answered(tmp_path, needed, libraries=(folder,), requires=True)
    assert answer.succeeded
    text = shown(answer)
    for words in (
        "would be repaired: tag, libraries, search paths, requirements",
        "tag: manylinux_2_27_x86_64 (not lower: libcublasLt.so.12 (needed by what is",
        "kept out: 5.0 MB, unpacked, of the library that bundling would have added",
        "libcublas.so.12  kept out  5.0 MB   in 1  nvidia-cublas-cu12",
        "libcuda.so.1     kept out                 it comes with the driver",
        "not every machine has it",
        "and 2 of the system, or needed only by NVIDIA's own (--verbose)",
        "without /opt/ci/lib",
        "nvidia-cublas-cu12>=12,<13",
    ):
        assert words in text, words
    assert "was searched for in" not in text
    assert "written" not in text
    whole = shown(answer, verbose=True)
    assert "libcublasLt.so.12  kept out *" in whole
    assert "* needed only by NVIDIA's own libraries" in whole
    assert "libblas.so.3 was searched for in" in whole


def test_what_is_refused_says_so_first(tmp_path: Path) -> None:
    answer = answered(tmp_path, ["libnone.so.1", "libcudart.so.12"], requires=True)
    assert not answer.succeeded
    assert answer.wheels[0].output is None
    text = shown(answer)
    assert text.splitlines()[0].endswith(": cannot be repaired, nothing was written")
    assert "Requirements added" not in text
    assert "error  library-missing" in text


def test_a_fix_can_be_copied_whole(tmp_path: Path) -> None:
    """Whatever the wheel calls its libraries."""
    needed = ["lib$(id).so", *(f"libnone{number}.so.1" for number in range(20))]
    answer = answered(tmp_path, needed)
    (finding,) = [each for each in answer.wheels[0].findings if each.rule == "library-missing"]
    words = shlex.split(finding.fix.partition("users have it: ")[2])
    assert sorted(words[1::2]) == sorted(needed)
    assert set(words[::2]) == {"--exclude"}


def test_the_json_is_what_its_schema_says(tmp_path: Path) -> None:
    schema = json.loads((SCHEMAS / "repair-1.json").read_text())
    for needed in (["libcudart.so.12"], ["libnone.so.1"]):
        answer = answered(tmp_path, needed)
        told = json.loads(to_json(answer))
        jsonschema.validate(told, schema)
        assert told["schema"] == "cuwheel.repair/1"
        assert told["wheels"][0]["libraries"][0]["soname"] == needed[0]
