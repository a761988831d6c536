"""One word for one thing: what an option's name says is the same in every verb (docs/reference/stability.md)."""

from __future__ import annotations

from collections import defaultdict

from cuwheel.cli.options import Option, flat
from tests.fixtures.verbs import CALLED

# What each of these reads is one kind of thing; the first names it.
KINDS = (
    ("folder or file to write", "new_folder", "new_file", "new_file_or_folder", "copy_place"),
    ("machines", "machines", "machines_or_all", "machine_words", "whole_machine", "one_machine"),
    ("CUDA versions", "toolkits", "toolkit", "cuda", "cuda_minor"),
    ("environment", "environment", "packages"),
    ("catalogue", "catalogue", "catalogue_place"),
    ("place of wheels", "links", "folder"),
    ("lock", "locked", "file_or_folder"),
    ("compiler", "program", "compiler"),
    ("processors", "cpu", "cpus"),
    ("machines", "named_machines"),
)
# Names that still mean different things. A new one is not taken; one that is mended is struck out here.
NOT_YET = {"--against", "--allow", "--check", "--compile", "--keep", "--read", "--set", "--with"}


def meaning(row: Option) -> str:
    """A flag, or the kind of thing that its value is."""
    if not row.value:
        return "flag"
    kind = getattr(row.kind, "__name__", "text")
    return next((first for first, *names in KINDS if kind in names), kind)


def test_an_option_means_the_same_in_every_verb() -> None:
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, called in CALLED.items():
        for row in flat(called.command.options):
            for flag in row.flags:
                found[flag][meaning(row)].append(name)
    differing = {flag: dict(kinds) for flag, kinds in found.items() if len(kinds) > 1}
    told = "\n".join(f"{flag}: {kinds}" for flag, kinds in differing.items() if flag not in NOT_YET)
    assert not told, told
    assert sorted(NOT_YET - differing.keys()) == [], "mended: strike them out"


def test_a_short_letter_is_of_one_option() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for called in CALLED.values():
        for row in flat(called.command.options):
            for flag in row.flags:
                if not flag.startswith("--"):
                    found[flag].add(row.name)
    assert {flag: names for flag, names in found.items() if len(names) > 1} == {}
