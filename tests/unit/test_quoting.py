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
