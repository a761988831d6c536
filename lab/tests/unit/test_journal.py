from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from campaigns import header, written

from cuwheel.errors import NewerSchemaError
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_lab.measuring import analysis, journal
from cuwheel_lab.measuring.journal import Line

if TYPE_CHECKING:
    from pathlib import Path

AXES = {"start": ("cold", "warm")}
CONDITIONS = [{"start": "cold"}, {"start": "warm"}]


@pytest.fixture(autouse=True)
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "boot-id"
    path.write_text("one\n")
    monkeypatch.setenv("CUWHEEL_BOOT_ID_FILE", str(path))
    return path


def test_a_trial_without_an_end_is_judged_by_the_boot(tmp_path: Path, boot: Path) -> None:
    folder = written(tmp_path / "j", header(AXES, CONDITIONS), [(0, "passed"), (1, None)])
    found = analysis.analyse(folder)
    assert (found.runs, found.failures, found.without_result) == (1, 0, 1)
    boot.write_text("two\n")
    found = analysis.analyse(folder)
    assert (found.runs, found.failures, found.without_result) == (2, 1, 0)
    assert found.groups[1].kinds == {"machine": 1}


def test_while_it_runs_a_trial_without_an_end_is_no_result(tmp_path: Path, boot: Path) -> None:
    folder = written(tmp_path / "j", header(AXES, CONDITIONS), [(0, "passed"), (1, None)])
    boot.write_text("two\n")
    with journal.open_journal(folder):
        found = analysis.analyse(folder)
    assert (found.running, found.runs, found.failures) == (True, 1, 0)


def test_a_journal_cut_at_every_byte_is_read_and_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was whole before the cut is there; the next line is not swallowed."""
    monkeypatch.setattr("os.fsync", lambda _handle: None)  # two thousand waits for the disk
    folder = written(tmp_path / "j", header(AXES, CONDITIONS), [(0, "passed"), (1, "signal"), (0, "machine")])
    whole = (folder / journal.NAME).read_bytes()
    ends = [index for index, byte in enumerate(whole) if byte == ord("\n")]
    extra = Line(reboot=journal.Reboot(condition=7, repeat=7, boot="b"))
    cut = tmp_path / "cut"
    cut.mkdir()
    for length in range(len(whole) + 1):
        (cut / journal.NAME).write_bytes(whole[:length])
        complete = sum(end <= length for end in ends)  # without its line break a line is whole too
        assert len(list(journal.read_lines(cut))) == complete, length
        state = journal.read_state(cut)
        assert len(state.results) == max(0, (complete - 1) // 2), length
        assert (state.unfinished is not None) == (complete >= 2 and complete % 2 == 0), length
        with journal.open_journal(cut) as writer:
            writer.add(extra)
        assert [each.reboot for each in journal.read_lines(cut)].count(extra.reboot) == 1, length
        assert len(list(journal.read_lines(cut))) == complete + 1, length


def test_two_runners_at_once_are_refused(tmp_path: Path) -> None:
    with (
        journal.open_journal(tmp_path / "j"),
        pytest.raises(UnreadableError, match="another cuwheel process"),
        journal.open_journal(tmp_path / "j"),
    ):
        pass
    with journal.open_journal(tmp_path / "j"):
        assert journal.is_running(tmp_path / "j")
    assert not journal.is_running(tmp_path / "j")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe\n",
        b"[]\n{}\nnull\n7\n",
        b'{"header": 7}\n',
        b'{"header": {"schema": 7}}\n',
        b"[" * 99999,
        b"{}" * 500000,
    ],
)
def test_whatever_stands_in_it_nothing_breaks(tmp_path: Path, text: bytes) -> None:
    (tmp_path / journal.NAME).write_bytes(text)
    with pytest.raises(MalformedError, match="no header"):
        analysis.analyse(tmp_path)


def test_a_condition_that_there_is_not_is_left_out(tmp_path: Path) -> None:
    trials: list[tuple[int, journal.Outcome | None]] = [(0, "signal"), (7, "signal"), (-9, "signal")]
    found = analysis.analyse(written(tmp_path / "j", header(AXES, CONDITIONS), trials))
    assert (found.runs, found.failures, len(found.failed)) == (1, 1, 1)


def test_a_newer_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / journal.NAME).write_text('{"header":{"schema":"cuwheel.trials-journal/2"}}\n')
    with pytest.raises(NewerSchemaError):
        analysis.analyse(tmp_path)


def test_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError) as caught:
        analysis.analyse(tmp_path)
    assert "trials run" in caught.value.hint
