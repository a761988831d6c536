"""Every rule id that the code can put into a finding is registered, once, and has a page; and none that it cannot."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import cuwheel
import cuwheel_core
from cuwheel.support import codec
from cuwheel.support.finding import RULES_FILE, find_rule, finding
from cuwheel_core.facts.tables import DATA
from cuwheel_core.support import finding as core
from cuwheel_core.support.finding import Finding, Fix, Rule

_SRC = Path(cuwheel.__file__).parent
_PAGES = Path(__file__).parents[3] / "docs" / "reference" / "rules"
_CALL = re.compile(r"(?<!def )\bfinding\(\s*([^,]+)")  # with its first argument
_HANDED_ON = re.compile(r"(?:\w+\.)?rule")
_TAKES_RULE = re.compile(r"^def (\w+)\(\s*rule: str", re.MULTILINE)
_KEYWORD = re.compile(r'\brule="([^"]+)"')


@cache
def _rows() -> tuple[Rule, ...]:
    files = (RULES_FILE, core.RULES.with_suffix(".toml"))
    return tuple(row for file in files for group in codec.own_table(file, core.RuleTable).group for row in group.rule)


def ids_and_other_words(text: str) -> tuple[set[str], list[str]]:
    """The ids that a module gives to `finding`, or to what hands them on; and what else it gives."""
    ids, other = set(_KEYWORD.findall(text)), []
    for name in _TAKES_RULE.findall(text):
        ids.update(re.findall(rf'(?<!def )\b{name}\(\s*"([^"]+)"', text))
    for given in _CALL.findall(text):
        constant = re.search(rf'^{re.escape(given)} = "([^"]+)"', text, re.MULTILINE)
        if literal := re.fullmatch(r'"([^"]+)"(?: if .+ else "([^"]+)")?', given):
            ids.update(filter(None, literal.groups()))
        elif constant:
            ids.add(constant[1])
        elif not _HANDED_ON.fullmatch(given):
            other.append(given)
    return ids, other


@cache
def _sources() -> dict[str, str]:
    packages = (_SRC, Path(cuwheel_core.__file__).parent)
    return {str(path): path.read_text(encoding="utf-8") for package in packages for path in package.rglob("*.py")}


@cache
def _used() -> dict[str, str]:
    """The ids of findings, and the module that makes each."""
    found: dict[str, str] = {}
    wrong: list[str] = []
    for path, text in _sources().items():
        ids, other = ids_and_other_words(text)
        found |= dict.fromkeys(ids, path)
        wrong += [f"{path}: {each}" for each in other]
    assert not wrong, f"write the id itself, as a string: {wrong}"
    return found


def test_every_id_that_is_used_is_registered() -> None:
    ids = {each.id for each in _rows()}
    unknown = {id_: where for id_, where in _used().items() if id_ not in ids}
    assert unknown == {}, "give it a row in src/cuwheel/support/finding_rules.toml, then ./run docs"


def test_every_id_that_is_registered_is_used() -> None:
    text = "\n".join(_sources().values())
    assert [each.id for each in _rows() if f'"{each.id}"' not in text] == [], "nothing makes such a finding"


def test_ids_are_registered_once_and_say_why() -> None:
    assert [id_ for id_, count in Counter(each.id for each in _rows()).items() if count > 1] == []
    assert [each.id for each in _rows() if not each.why or not each.source] == []


def test_a_row_is_read_by_itself_as_toml_reads_it() -> None:
    assert [each for each in _rows() if find_rule(each.id) != each] == []
    with pytest.raises(KeyError, match="no-such-rule"):
        find_rule("no-such-rule")


def test_a_finding_has_severity_and_fix_of_its_rule_unless_it_knows_better() -> None:
    row = find_rule("zip-encrypted")
    usual = Finding(rule=row.id, severity=row.severity, message="x", evidence=(), fixes=(Fix(text=row.fix),))
    assert row.fix
    assert finding(row.id, "x") == usual
    assert finding(row.id, "x", evidence=("y",), fix="", severity="note") == Finding(
        rule=row.id, severity="note", message="x", evidence=("y",)
    )


def test_every_id_has_its_page() -> None:
    assert [each.id for each in _rows() if not (_PAGES / f"{each.id}.md").is_file()] == [], "./run docs"


def test_files_of_ours_that_a_source_names_exist() -> None:
    data = (_SRC / "facts" / "data", DATA)
    places = {"docs": (_PAGES.parents[1],), "facts/data": data}
    named = {
        (row.id, folder, name)
        for row in _rows()
        for folder, name in re.findall(r"\b(docs|facts/data)/([\w/-]+\.(?:md|toml))", row.source)
    }
    assert len(named) > 20
    assert [each for each in sorted(named) if not any((place / each[2]).is_file() for place in places[each[1]])] == []


@pytest.mark.parametrize(
    ("code", "ids"),
    [
        ('finding("a-b", "message")', {"a-b"}),
        ('finding(\n    "a-b",\n    "message")', {"a-b"}),
        ('replace(found, rule="a-b")', {"a-b"}),
        ('finding("a" if undo else "b", word)', {"a", "b"}),
        ('RULE = "a-b"\nfinding(RULE, "message")', {"a-b"}),
        ('def f(rule: str, words: str): finding(rule, words)\nf("a-b", "words")', {"a-b"}),
        ("finding(misfit.rule, words)", set()),
    ],
)
def test_ids_are_found_however_they_are_given(code: str, ids: set[str]) -> None:
    assert ids_and_other_words(code) == (ids, [])


@pytest.mark.parametrize("code", ['finding(f"a-{kind}", "x")', 'finding(names[0], "x")', 'finding(made(), "x")'])
def test_ids_that_are_put_together_are_refused(code: str) -> None:
    assert ids_and_other_words(code)[1]
