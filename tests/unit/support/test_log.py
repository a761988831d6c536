from __future__ import annotations

import logging

import pytest

from cuwheel.support import log


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_threshold", None)
    monkeypatch.setattr(log, "_listener", log._no_progress)


def test_a_library_is_silent_and_logging_hears_it(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "cuwheel"):
        log.info("read %s of %d", "x", 3)
        log.debug("not this")
    assert caplog.messages == ["read x of 3"]
    assert capsys.readouterr() == ("", "")
    with log.progress("work", 3) as progress:
        progress.advance()


def test_the_command_line_hears_from_its_level_on(capsys: pytest.CaptureFixture[str]) -> None:
    log.listen(level="info")
    log.debug("no")
    log.info("50 % done")
    log.warning("%s!", "yes")
    assert capsys.readouterr() == ("", "50 % done\nyes!\n")


def test_messages_go_to_whoever_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[tuple[str, str]] = []
    log.listen(level="info", on_message=lambda level, text: shown.append((level, text)))
    log.info("reading %s", "a\x1b[2Jb")
    log.warning("yes")
    log.listen(level="info")
    assert [level for level, _ in shown] == ["info", "warning"]
    assert "\x1b" not in shown[0][1]
    assert capsys.readouterr() == ("", "")
