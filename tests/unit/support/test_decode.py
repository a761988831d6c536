from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import Struct

from cuwheel.building import config
from cuwheel.errors import MOST_SOUGHT, ConfigurationError
from cuwheel.machine import fleet
from cuwheel.support import codec
from cuwheel_core.support import wording
from cuwheel_lab.measuring import matrix, trials_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


class Inner(Struct, frozen=True, kw_only=True):
    name: str
    count: int = 0


class Outer(Struct, frozen=True, kw_only=True):
    title: str
    inner: tuple[Inner, ...] = ()
    maybe: Inner | None = None


def test_right_data_becomes_the_value() -> None:
    problems: list[str] = []
    data = {"title": "t", "inner": [{"name": "a", "count": 2}], "maybe": {"name": "b"}}
    expected = Outer(title="t", inner=(Inner(name="a", count=2),), maybe=Inner(name="b"))
    assert codec.convert_or_list_problems(data, Outer, "file", problems) == expected
    assert problems == []


def test_every_problem_is_named_at_once() -> None:
    problems: list[str] = []
    data = {"titel": "t", "inner": [{"name": 3}, {"count": "x"}], "maybe": {"name": "b", "cuont": 1}}
    assert codec.convert_or_list_problems(data, Outer, "file", problems) is None
    assert sorted(problems) == [
        "file.inner[0].name: expected `str`, got `int`",
        "file.inner[1].count: expected `int`, got `str`",
        "file.inner[1]: 'name' is missing",
        "file.maybe: unknown key 'cuont'; did you mean 'count'?",
        "file: 'title' is missing",
        "file: unknown key 'titel'; did you mean 'title'?",
    ]


@pytest.mark.parametrize(
    "text",
    [
        b"a" + b".a" * 50_000 + b" = 1",
        b"[a" + b".a" * 50_000 + b"]",
        b"x = { a" + b".a" * 50_000 + b" = 1 }",
        b"x = " + b"[" * 50_000,
        b"x = " + b"9" * 50_000,
    ],
)
def test_keys_and_numbers_without_end_are_refused_at_once(text: bytes) -> None:
    began = time.process_time()
    with pytest.raises(msgspec.DecodeError):
        codec.parse_toml(text)
    assert time.process_time() - began < 2


def test_values_may_have_any_number_of_dots() -> None:
    assert codec.parse_toml(b'x = "' + b"." * 1000 + b'"\n[a.b]\nc.d = 1\n') == {
        "x": "." * 1000,
        "a": {"b": {"c": {"d": 1}}},
    }


def test_a_file_is_refused_that_is_too_large_or_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    with path.open("wb") as file:
        file.truncate(8 << 30)
    with pytest.raises(msgspec.DecodeError, match="it has more than"):
        codec.read_toml(path)
    path.write_bytes(b"a = '\xff'")
    with pytest.raises(msgspec.DecodeError, match="it is not UTF-8"):
        codec.read_toml(path)
    path.write_bytes(b"a = 1")
    assert codec.read_toml(path) == {"a": 1}


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": "\xff"}',
        b'{"\xff": 1}',
        b'{"a": ' + b"[" * 50_000,
        b'{"a": ' * 50_000,
        b'{"a":',
        b"",
        b"\0",
        '{"a": "\ud800"}',
    ],
    ids=[
        "not UTF-8",
        "a key is not",
        "lists nested deep",
        "objects nested deep",
        "cut short",
        "empty",
        "NUL",
        "surrogate",
    ],
)
@pytest.mark.parametrize("type_", [Any, dict[str, object], dict[str, str]], ids=str)
def test_whatever_is_wrong_with_json_is_one_error(text: bytes | str, type_: Any) -> None:
    with pytest.raises(msgspec.DecodeError):
        codec.decode(text, type_)


def test_json_of_a_type() -> None:
    assert codec.decode(b'{"a": "b"}', dict[str, str]) == codec.decode('{"a": "b"}') == {"a": "b"}


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words for which names that are alike were sought."""
    sought: list[str] = []
    real = wording.similar_names

    def alike(word: str, known: Iterable[str], most: int = 3) -> list[str]:
        sought.append(word)
        return real(word, known, most)

    monkeypatch.setattr(wording, "similar_names", alike)
    return sought


def test_names_alike_are_sought_for_the_first_problems_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sought = _counted(monkeypatch)
    for count in (20_000, 40_000):
        sought.clear()
        problems: list[str] = []
        data = {"title": "t", **{f"titel{number}": 1 for number in range(count)}}
        assert codec.convert_or_list_problems(data, Outer, "file", problems) is None
        assert codec.convert_or_list_problems({"titel": 1}, Outer, "another part of it", problems) is None
        assert len(problems) == len(sought) == MOST_SOUGHT
    message = ConfigurationError("a.toml", problems).message
    assert message.startswith("a.toml has at least 1000 problems")
    assert message.endswith("and 900 more")


@pytest.mark.parametrize(
    "load",
    [
        lambda path: config.find_configuration(None, path, {}).table,
        trials_file.load_trials,
        matrix.load_matrix,
        fleet.read_fleet_file,
    ],
)
def test_a_file_of_unknown_keys_is_refused_in_time(
    load: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sought = _counted(monkeypatch)
    path = tmp_path / "cuwheel.toml"
    unknown = "".join(f"pythn{number} = 1\n" for number in range(30_000))
    path.write_text(f'{unknown}[[machine]]\nname = "a"\ngpu = "h100"\n{unknown}')  # of a fleet, in a row too
    with pytest.raises(ConfigurationError, match="problem"):
        load(path)
    assert len(sought) <= MOST_SOUGHT
