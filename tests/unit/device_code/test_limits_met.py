"""A limit that is met is said, wherever it is: as a finding where somebody collects them, else as a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import Mock

from cuwheel.building import gate_units
from cuwheel.building.recording import recorder, sccache
from cuwheel.building.recording.calls import parse_phases
from cuwheel.changes.repair import contents as repair_contents
from cuwheel.proving import checks, kit, libraries, stub
from cuwheel_core.device_code import limits, registration
from tests.unit.verdicts.libraries import library
from tests.unit.verdicts.planning.test_sizes import survey

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from cuwheel_core.support.finding import Finding


def only(found: list[Finding]) -> str:
    assert [each.rule for each in found] == ["limit-met"]
    return found[0].message


def test_without_a_collector_it_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    warning = Mock()
    monkeypatch.setattr("cuwheel.support.log.warning", warning)
    limits.met("5 of 7", "two were not read")
    assert "two were not read" in str(warning.call_args)


def test_libraries_that_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_MOST", 3)
    found = survey(*(library([], path=f"pkg/lib{n}.so") for n in range(5)))
    machine = Mock(torch_cuda=None)
    monkeypatch.setattr(
        libraries,
        "loading",
        lambda *_: Mock(always=[each.path for each in found.libraries], optional=(), candidates=(), missing=""),
    )
    with limits.collected() as met:
        check, _ = libraries.loading_check(found, machine, [], timeout=1, memory=1)
    assert check is not None
    assert "pkg/lib2.so" in check.text
    assert "pkg/lib3.so" not in check.text
    assert "3 of 5 libraries" in only(met)


def test_modules_that_are_imported() -> None:
    sizes = {f"m{n:02}.py": 1 for n in range(25)}
    contents = Mock(sizes=sizes, top_level=None, info="x-1.dist-info/")
    with limits.collected() as met:
        assert len(checks.modules_of_wheel(contents)) == 20
    assert "20 of 25 modules" in only(met)


def test_containers_that_a_driver_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit, "_MOST_PROBES", 2)
    container = Mock(offset=0, size=1)
    monkeypatch.setattr(kit, "_few", lambda _library: [(container, ())] * 5)
    monkeypatch.setattr(kit, "_answers", lambda *_: ())
    with limits.collected() as met:
        assert len(kit.probes_of(survey(library([]))).probes) == 2
    assert "2 of 5 containers" in only(met)


def test_functions_of_the_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stub, "_MOST", 2)
    with limits.collected() as met:
        assert len(stub.names_wanted([])) == 2
    assert "functions fit in the stub" in only(met)


def test_archives_that_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_units, "_MOST_ARCHIVES", 2)
    (tmp_path / "lib64").mkdir()
    for number in range(4):
        (tmp_path / "lib64" / f"lib{number}.a").touch()
    with limits.collected() as met:
        assert len(gate_units.Archives(str(tmp_path), None)._candidates()) == 2
    assert "2 of 4 static archives" in only(met)


def test_containers_that_are_searched_for_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "_ENTRIES_SEARCHED", 1)
    monkeypatch.setattr(
        "cuwheel_core.device_code.registration.names_in_entry", lambda *_: Mock(kernels=(), variables=(), managed=())
    )
    entry = Mock(real=1, row=0)
    reader = registration._KernelSearch(Mock(), [Mock(kind="cubin")], Mock())
    with limits.collected() as met:
        assert not reader.without_kernels([entry, entry])
    assert "assumed to hold kernels" in only(met)


def test_the_log_of_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sccache, "_MAX_LOG", 1)
    monkeypatch.setattr(sccache, "_PIECE", 1)
    log = tmp_path / "log"
    log.write_bytes(b"[sccache::server] [a.o]: compile result: cache hit\n" * 3)
    with limits.collected() as met:
        assert len(sccache._answers(log, 0)["a.o"]) == 1
    assert "the rest of its answers are not known" in only(met)


def test_the_configuration_of_the_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair_contents, "_MOST_FOLDERS", 2)
    for number in range(4):
        (tmp_path / f"{number}.conf").write_text(f"/folder{number}\ninclude {number + 1}.conf\n")
    with limits.collected() as met:
        assert list(repair_contents._ld_conf(str(tmp_path / "0.conf"))) == ["/folder0", "/folder1"]
    assert "the rest of the folders are not searched" in only(met)


def test_limits_that_went(tmp_path: Path) -> None:
    """What bounds them is the size of what is read."""
    rows = "a.cu , cicc , in , out , sm_90 , tool , 1 , ms\n" * 20_000
    assert len(list(parse_phases(rows))) == 20_000
    assert not hasattr(recorder, "_MAX_ENTRIES")
    (tmp_path / "gcc").touch(mode=0o755)
    assert recorder._tools([str(tmp_path)]) == {"gcc"}
