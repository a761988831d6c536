"""Every option that a message, a cause or a page names is one that there is."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.cli.options import flat
from cuwheel.cli.parser import rows_of
from tests.fixtures.verbs import CALLED

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("docs/*/*.md"),
    *(ROOT / each for each in ("README.md", "lab/README.md")),
    *ROOT.glob("src/cuwheel/**/*.toml"),
]
# What others run without reading it: written workflows, the action, the demo, the examples' own workflows.
SCRIPTS = [
    *ROOT.glob("src/cuwheel/**/*.j2"),
    *(ROOT / each for each in ("action.yml", "demo/demo.sh", ".pre-commit-hooks.yaml")),
    *(each for each in sorted(ROOT.glob("examples/**/*")) if each.suffix in (".yml", ".yaml", ".md", ".toml", ".py")),
]
MODULES = sorted((*ROOT.glob("src/cuwheel/**/*.py"), *ROOT.glob("lab/src/**/*.py")))
# `cuwheel VERB …` up to where a sentence, a quotation or a command ends.
COMMAND = re.compile(r"(?<![\w/.-])cuwheel ([a-z]+)((?: (?!cuwheel )[^\s`;|&()#]+)*)")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]*)")
# In hints of ours, of programs of others.
FOREIGN = {
    *("--no-deps", "--no-build-isolation", "--upgrade", "--init", "--recursive", "--compress-mode", "--version"),
    *("--generate-line-info", "--user", "--gpus", "--runtime", "--index-url", "--force-reinstall", "--check"),
    *("--set-rpath", "--device", "--shutdown", "--update"),
}


@cache
def options(called: str) -> frozenset[str]:
    rows = flat(rows_of(CALLED[called].command))
    return frozenset(each for row in rows for each in row.flags) | {"--help"}


def texts(path: Path) -> Iterator[str]:
    """Of a module, every text that is not a docstring; of a page, its commands with lines that go on joined."""
    if path.suffix != ".py":
        yield path.read_text().replace("\\\n", " ")
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            parts = (each.value if isinstance(each, ast.Constant) else "X" for each in node.values)
            yield "".join(str(each) for each in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def strangers(text: str) -> Iterator[str]:
    for verb, rest in COMMAND.findall(text):
        first = next(iter(rest.split()), "")
        called = f"{verb} {first}" if f"{verb} {first}" in CALLED else verb
        if called not in CALLED:
            continue  # prose: "cuwheel is …"
        words = rest.split(" -- ")[0] if called in ("record", "trace", "lab bench") else rest
        for option in OPTION.findall(words):
            if option not in options(called):
                yield f"cuwheel {called} {option}"


def test_commands_name_options_of_their_verb() -> None:
    named = ((path, each) for path in (*PAGES, *SCRIPTS, *MODULES) for text in texts(path) for each in strangers(text))
    wrong = [f"{path.relative_to(ROOT)}: {each}" for path, each in named]
    assert not wrong, "\n".join(wrong)


def hints(path: Path) -> Iterator[str]:
    """What is said in `hint=` and `fix=`, and in constants that are handed to them."""
    for node in ast.walk(ast.parse(path.read_text())):
        found = node.value if isinstance(node, ast.keyword) and node.arg in ("hint", "fix") else None
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
            found = node.value
        for each in ast.walk(found) if found else ():
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield each.value


def test_hints_name_options_that_some_verb_has() -> None:
    known = {option for called in CALLED for option in options(called)} | FOREIGN
    where = [path for path in MODULES if path.parent.name not in ("cli", "recording") and path.stem != "cli"]
    texts_of = {path: [text for text in hints(path) if " " in text] for path in where}
    named = {(path.name, each) for path, found in texts_of.items() for text in found for each in OPTION.findall(text)}
    assert sorted(each for each in named if each[1] not in known) == []


def test_the_check_itself_can_fail() -> None:
    assert list(strangers("hint: cuwheel build --no-such-option; cuwheel inspect --json")) == [
        "cuwheel build --no-such-option"
    ]
    assert list(strangers("cuwheel toolchain install 13.0 --apt-source /x")) == ["cuwheel toolchain --apt-source"]
