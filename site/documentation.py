"""The documentation as pages: what is in `docs/`, and what the code says of its verbs and schemas.

Sphinx fails on a link that leads nowhere, and so does this.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cuwheel.cli.options import described_command
from cuwheel.cli.parser import help_parser
from cuwheel.report import schemas
from cuwheel.report.answer import SCHEMAS
from cuwheel.support import extensions
from cuwheel.support.verbs import SECTIONS, SHOWN, Family, own_word

HERE = Path(__file__).parent
ROOT = HERE.parent
# Pages that lie elsewhere in the repository.
BESIDE = {"SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md", "benchmarks/README.md": "benchmarks.md"}


def build(folder: Path, kept: Path) -> None:
    """`kept`: a folder for sources, read pages and results, so that the next time only what changed is made anew."""
    source, made = kept / "source", kept / "made"
    with tempfile.TemporaryDirectory() as scratch:
        prepare(Path(scratch) / "source")
        _bring_up_to_date(Path(scratch) / "source", source)
    for page in made.rglob("*.html"):  # Sphinx leaves the pages of sources that are gone
        written_from = source / page.relative_to(made).with_suffix(".md")
        if page.parent != made and "_static" not in page.parts and not written_from.exists():
            page.unlink()
    command = [sys.executable, "-m", "sphinx", "--quiet", "-W", "--keep-going", "-j", "auto"]
    command += ["-c", str(HERE), "-d", str(kept / "trees"), str(source), str(made)]
    if subprocess.run(command, check=False).returncode:
        shutil.rmtree(kept)  # a page that was read is not complained about again
        sys.exit("error: the documentation has the problems above\nhint: correct them in docs/")
    shutil.copytree(made, folder, ignore=shutil.ignore_patterns(".buildinfo", "objects.inv"))


def _bring_up_to_date(new: Path, old: Path) -> None:
    """Files that are the same keep their time of change: Sphinx goes by it."""
    wanted = {each.relative_to(new): each for each in new.rglob("*") if each.is_file()}
    for each in [each for each in old.rglob("*") if each.is_file()]:
        if each.relative_to(old) not in wanted:
            each.unlink()
    for name, each in wanted.items():
        place = old / name
        if not place.is_file() or place.read_bytes() != each.read_bytes():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(each, place)


def prepare(source: Path) -> None:
    shutil.copytree(ROOT / "docs", source, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for place, name in BESIDE.items():
        shutil.copyfile(ROOT / place, source / name)
    for page in source.rglob("*.md"):
        page.write_text(_links_within(page.read_text(), depth=len(page.relative_to(source).parts) - 1))
    for name, up in (("index.md", ".."), ("howto/browser.md", "../..")):  # of the repository, where that page is not
        page = source / name
        heading, rest = page.read_text().split("\n", 1)
        page.write_text(f'{heading}\n\n<p><a href="{up}/index.html">Open cuwheel in this browser</a></p>\n{rest}')
    for folder in ("reference/causes", "reference/rules"):
        names = sorted(each.stem for each in (source / folder).glob("*.md") if each.stem != "README")
        with (source / folder / "README.md").open("a") as listing:
            listing.write(f"\n{_toctree(names)}")
    _verbs(source / "reference" / "verbs")
    _schemas(source / "reference" / "schemas")


def _links_within(text: str, depth: int) -> str:
    """Links out of `docs/` lead to the copies; a link to a source file becomes its name."""
    up = "../" * depth

    def moved(match: re.Match[str]) -> str:
        shown, place, heading = match[1], match[2].removeprefix(up).removeprefix("../"), match[3] or ""
        if place in BESIDE:
            return f"[{shown}]({up}{BESIDE[place]}{heading})"
        if match[2].startswith(f"{up}../"):
            return f"{shown} (`{place}`)"
        inside = place.removeprefix("docs/")
        return f"[{shown}]({up}{inside}{heading})" if place != inside else match[0]

    return re.sub(r"\[([^\]]+)\]\(([^)#:]+)(#[^)]*)?\)", moved, text)


def _verbs(folder: Path) -> None:
    """A page for each verb that help shows, with the help of everything that it does."""
    folder.mkdir()
    listed = []
    for title, verbs in SECTIONS.items():
        listed += [
            "",
            f"## {title.capitalize()}",
            "",
            *(f"- [{each}]({each}.md): {SHOWN[each].line}" for each in verbs),
        ]
    listed += [f"- [{name}]({name}.md): {word.shown.line}" for name, word in extensions.all_words().items()]
    words = {**{verb: own_word(verb) for verb in SHOWN}, **extensions.all_words()}
    for verb, word in words.items():
        family = word.shown if isinstance(word.shown, Family) else None
        called = {f"cuwheel {verb} {second}": name for second, name in family.commands.items()} if family else {}
        parts = []
        for prog, name in (called or {f"cuwheel {verb}": verb}).items():
            line, command = described_command(word, name)
            parts += [help_parser(prog, line, command, each).format_help() for each in ("", *command.actions)]
        page = f"# cuwheel {verb}\n\n" + "\n".join(f"```text\n{part}```\n" for part in parts)
        (folder / f"{verb}.md").write_text(page)
    (folder / "index.md").write_text("\n".join(["# Verbs", *listed, "", _toctree(words)]))


def _schemas(folder: Path) -> None:
    """A page for each kind of JSON that is printed, written or read."""
    folder.mkdir()
    places = [SCHEMAS, *map(schemas.schema_folder, extensions.all_words().values())]
    files = {each.stem: each for place in places for each in place.glob("*.json")}
    names = sorted(files)
    for name in names:
        schema = json.loads(files[name].read_text())
        (folder / f"{name}.md").write_text(f"# {name}\n\n" + "\n\n".join(_objects(schema)) + "\n")
    listed = "\n".join(f"- [{each}]({each}.md)" for each in names)
    about = "What `--json` prints and what files hold, field by field. The schemas themselves ship in the package."
    (folder / "index.md").write_text(f"# JSON\n\n{about}\n\n{listed}\n\n{_toctree(names)}")


def _objects(schema: dict[str, Any]) -> list[str]:
    parts = []
    for name, each in {**schema.get("$defs", {})}.items():
        if "properties" not in each:
            continue
        rows = "\n".join(
            f"| `{field}` | {_type(kind)} | {'' if field in each.get('required', ()) else 'optional'} |"
            for field, kind in each["properties"].items()
        )
        about = each.get("description", "").replace("\n", " ")
        parts.append(f"## {name}\n\n{about}\n\n| field | type | |\n| --- | --- | --- |\n{rows}")
    return parts


def _type(kind: dict[str, Any]) -> str:
    if "$ref" in kind:
        return str(kind["$ref"]).rpartition("/")[2]
    if "anyOf" in kind:
        return " or ".join(_type(each) for each in kind["anyOf"])
    if "enum" in kind:
        return ", ".join(f"`{each}`" for each in kind["enum"])
    if "const" in kind:
        return f"`{kind['const']}`"
    if kind.get("type") == "array":
        inside = kind.get("items") or {}
        return f"list of {_type(inside)}" if inside else "list"
    return str(kind.get("type", "any"))


def _toctree(names: Any) -> str:  # noqa: ANN401 - any iterable of names
    return "```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```\n"


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]))
