"""`./run wine`: a file of tests that hangs or ends Python costs no other, and is counted as failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.wine import __main__ as job
from tests.wine import windows

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

_FILES = {
    "test_good.py": "import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip('not here')\n",
    "test_absent.py": "import pytest\npytest.importorskip('nothing_of_this_name')\ndef test_a(): pass\n",
    "test_bad.py": "def test_a(): pass\ndef test_b(): assert 0\n",
    "test_hangs.py": "import time\ndef test_a(): pass\ndef test_b(): time.sleep(600)\n",
    "test_dies.py": "import os\ndef test_a(): os._exit(3)\n",
    "test_broken.py": "import nothing_of_this_name\n",
}


def test_every_end_is_told(place: Path) -> None:
    found = {}
    for name, text in _FILES.items():
        (place / name).write_text(text)
        # Apart from the project: its settings and fixtures are not what is tried.
        options = ["-c", windows.named(place / "pytest.ini"), "--rootdir", windows.named(place)]
        (place / "pytest.ini").write_text("[pytest]\n")
        found[name] = job.run((windows.named(place / name),), options, limit=25.0 if name == "test_hangs.py" else 600.0)
    good = found["test_good.py"]
    assert (good.passed, good.skipped, good.failed) == (1, ("not here",), ())
    assert "could not import 'nothing_of_this_name'" in found["test_absent.py"].skipped[0]
    assert (found["test_bad.py"].passed, len(found["test_bad.py"].failed)) == (1, 1)
    assert found["test_hangs.py"].failed[0].endswith("did not end within 25 s")
    assert found["test_dies.py"].failed[0].endswith("ended with status 3")
    assert len(found["test_broken.py"].failed) == 1
    assert job.summary(list(found.values())).splitlines()[-1] == "2 passed, 2 skipped, 4 failed"


def test_folders_are_their_files() -> None:
    *folders, one = job.pieces(["tests/unit/wheel", "tests/property", "tests/unit/support/test_files.py::test_x"])
    assert [{each.rpartition("/")[0] for each in files} for files in folders] == [
        {"tests/unit/wheel"},
        {"tests/property"},
    ]
    assert one == ("tests/unit/support/test_files.py::test_x",)


def test_a_folder_that_does_not_end_is_run_file_by_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(names: tuple[str, ...], _: object) -> job.Piece:
        return job.Piece(name=names[0], seconds=1.0, ended="b" not in names, passed=1)

    monkeypatch.setattr(job, "run", run)
    assert len(job.run_whole(("a", "c"), ())) == 1
    assert [each.name for each in job.run_whole(("a", "b", "c"), ())] == ["a", "b", "c"]
