"""Commands to type: by the rules of the machine that they are for."""

from __future__ import annotations

import pytest

from cuwheel import quoting

WORDS = ("cuwheel", "replay", r"C:\two words\record:3")


@pytest.mark.parametrize(
    ("system", "shown"), [("nt", r'"C:\two words\record:3"'), ("posix", r"'C:\two words\record:3'")]
)
def test_a_command_of_this_machine(monkeypatch: pytest.MonkeyPatch, system: str, shown: str) -> None:
    monkeypatch.setattr("os.name", system)
    assert quoting.here(WORDS) == f"cuwheel replay {shown}"


@pytest.mark.parametrize(
    ("system", "words"),
    [
        ("nt", ("build.bat", r"C:\src\a b", r"D:\cuda\v13.0\bin", "x y", "#1")),
        ("posix", ("build.bat", r"C:\src\a b", "D:cudav13.0bin", "x y", "#1")),
    ],
)
def test_backslashes_of_windows_are_letters(
    monkeypatch: pytest.MonkeyPatch, system: str, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr("os.name", system)
    assert quoting.split("build.bat 'C:\\src\\a b' D:\\cuda\\v13.0\\bin \"x y\" #1") == words
    with pytest.raises(ValueError, match="No closing quotation"):
        quoting.split("make 'x")
