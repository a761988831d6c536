from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.toolchains import assembler
from cuwheel_core.facts import toolkits

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_linker_of_the_environment_is_one_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info, library = tmp_path / "some_linker-13.0.88.dist-info", tmp_path / "nvidia" / "libnvJitLink.so.13"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-linker\nVersion: 13.0.88\n")
    (info / "RECORD").write_text("nvidia/libnvJitLink.so.13,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert assembler._installed_linker("some-linker", toolkits.find_toolkit("13.0")) is None
    library.parent.mkdir()
    library.write_bytes(b"")
    found = assembler._installed_linker("some-linker", toolkits.find_toolkit("13.0"))
    assert found == assembler.Assembler(cuda="13.0", version="13.0.88", program=str(library))
    assert assembler._installed_linker("some-linker", toolkits.find_toolkit("12.9")) is None
