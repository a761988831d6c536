"""Every file of causes: sound, and every example explained by its own cause."""

from __future__ import annotations

import itertools
import re
import shutil
from pathlib import Path

import pytest
from msgspec import Struct

from cuwheel.diagnosis import causes, text
from cuwheel.diagnosis.explain import explain
from cuwheel.diagnosis.known import CONCLUDED, CONDITIONS
from cuwheel.diagnosis.pattern import fold
from cuwheel.diagnosis.rows import Example
from cuwheel.support import codec
from cuwheel_core.errors import FactsError

KNOWLEDGE = causes.knowledge()
FACTS = frozenset(CONDITIONS)
NAMES = CONCLUDED | {reading.name for reading in KNOWLEDGE.readings.reading}


def test_all_files_are_sound() -> None:
    assert causes.load(causes.FOLDER, FACTS, NAMES) == KNOWLEDGE


def mistakes(id_: str, example: Example) -> list[str]:
    """What is wrong with how an example is explained: by another cause, without its words, or with a rival as sure."""
    found = explain(text.parse(example.log)).causes
    if not found or found[0].id != id_:
        return [f"is explained by {[each.id for each in found][:3]}"]
    said = " ".join(found[0].fix)
    rivals = {each.id for each in found[1:] if each.confidence >= 0.75 * found[0].confidence} - set(example.also)
    return [
        *(f"{word!r} is not said: {said}" for word in example.says if word not in said),
        *(f"{each} is nearly as sure" for each in sorted(rivals)),
    ]


class Labelled(Example, frozen=True, kw_only=True):
    cause: str


class More(Struct, frozen=True, kw_only=True):
    """examples.toml: logs that say what others of their cause say already, kept for the tests alone."""

    example: tuple[Labelled, ...]


MORE = codec.own_table(Path(__file__).with_name("examples.toml"), More).example


@pytest.mark.parametrize("id_", KNOWLEDGE.causes)
def test_each_example_is_explained_by_its_own_cause_alone(id_: str) -> None:
    numbered = enumerate((*KNOWLEDGE.causes[id_].example, *(each for each in MORE if each.cause == id_)))
    wrong = [f"example {number} {each}" for number, example in numbered for each in mistakes(id_, example)]
    assert not wrong, "\n".join(wrong)


def test_every_cause_has_pages_worth_of_knowledge() -> None:
    for id_, file in KNOWLEDGE.causes.items():
        assert file.why.strip(), id_
        assert all(fix.source for fix in file.fix), id_


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "causes"
    shutil.copytree(causes.FOLDER, folder)
    for name in ("readings.toml", "ways_out.toml", "lists.toml"):
        shutil.copy(causes.FOLDER.with_name(name), tmp_path / name)
    (folder / "broken.toml").write_text(
        'title = "x"\nfamily = "f"\nwhy = "w"\nways_out = ["teleport"]\nsource = []\nexplained_by = ["nobody"]\n'
        'instead = ["somebody", "worse", "worse", "broken"]\n'
        '[lists]\nlibrary = ["cudart", "cublas"]\n'
        '[[signature]]\nany = ["{nonsense} text", "<a|b", "<is |-> |has >no", "ab", '
        '"{n}{word} twice", "no <@such> list"]\nweight = 1.5\n'
        'holds = ["moon-is-full"]\n'
        '[[fix]]\ntext = "ask {oracle}"\nsource = ""\n'
    )
    (folder / "worse.toml").write_text("title = 3\nfamly = 'f'\n")
    (folder / "worst.toml").write_text("not toml")
    with pytest.raises(FactsError) as caught:
        causes.load(folder, FACTS, NAMES)
    told = "\n".join(caught.value.problems)
    told_of = (
        "unknown kind", "stray '<'", "stray '|'", "to search for", "two holes", "teleport", "nobody", "moon-is-full",
        "oracle", "no source", "no example", "weight 1.5", "whatever is known", "did you mean 'family'", "worst.toml",
        "names a list that is not there", "'somebody'", "'broken' instead, which does not say when",
        "'worse' instead twice",
    )  # fmt: skip
    assert [word for word in told_of if word not in told] == []


def test_what_a_cause_may_be_instead_is_another_that_says_when() -> None:
    for id_, file in KNOWLEDGE.causes.items():
        assert id_ not in file.instead
        assert bool(file.when) == (id_ != "not-cuda")
        assert not file.when.endswith((".", " "))


def test_no_text_of_a_signature_says_what_another_says_already() -> None:
    """A text finds every line that a longer one around it finds."""
    repeated = []
    for id_, file in KNOWLEDGE.causes.items():
        for signature in file.signature:
            plain = [fold(text) for text in signature.any if not set(text) & set("*<{")]
            pairs = itertools.permutations(plain, 2)
            repeated += [f"{id_}: {longer!r} has {text!r} in it" for text, longer in pairs if text in longer]
    assert repeated == []


@pytest.mark.parametrize(
    ("standard", "expected"), [("17", "from 8 on"), ("20", "from 10 on"), ("26", "install a newer one")]
)
def test_the_compiler_that_knows_a_standard_comes_from_the_table(standard: str, expected: str) -> None:
    found = explain(text.parse(f"c++: error: unrecognized command-line option '-std=c++{standard}'\n")).causes[0]
    assert found.id == "host-compiler-too-old"
    assert any(f"does not know C++{standard}" in fix and expected in fix for fix in found.fix)


def test_fixes_take_the_cuda_of_packages_from_the_tables() -> None:
    """Suffixes of packages and indexes change with every release: they are filled in."""
    written = [
        f"{id_}: {found[0]}"
        for id_, file in KNOWLEDGE.causes.items()
        for fix in file.fix
        if (found := re.search(r"-cu\d\d\b|cuda1\d\b|whl/cu\d{3}|\bGCC \d", fix.text))
    ]
    assert written == []
