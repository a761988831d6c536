"""Writes what the code says: pages of rules and causes, the exit codes, README's verbs. Called by `./run docs`."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cuwheel import api, errors
from cuwheel.building import gate
from cuwheel.diagnosis.causes import knowledge
from cuwheel.facts import architectures
from cuwheel.facts.arch import Arch, Capability
from cuwheel.facts.spellings import table as spellings
from cuwheel.facts.spellings.row import Releases
from cuwheel.proving import wheel_rules
from cuwheel.report import catalogue
from cuwheel.support import codec, finding
from cuwheel.support.finding import Severity
from cuwheel.support.verbs import VERBS
from cuwheel.verdicts import rules

if TYPE_CHECKING:
    from cuwheel.diagnosis.rows import CauseFile
    from cuwheel.verdicts.rule import Rule

DOCS = Path(__file__).parent

EXIT_CODES = """\
# Exit codes

Scripts and CI may rely on these. Every class of error has its own.

| code | meaning |
| --- | --- |
| 0 | yes, or done |
| 1 | the answer is no: it will not run, a problem was found, a need is not met |
{rows}
| 70 | a bug in cuwheel: run it again with `--verbose` and report what it prints |
| 130 | interrupted (Ctrl-C) |

An invalid value of an option is always 2, whatever is wrong with it: an unknown GPU, a file that is not there,
a version that does not exist. All problems are reported at once. 3, 4 and 5 are for what stands without an option
(`cuwheel gpus NAME`, the wheel of `cuwheel inspect WHEEL`) and for what is met on the way.

Errors go to standard error as `error: …`, mostly followed by `hint: …` with the command to run next. The answer alone
goes to standard output, so `cuwheel VERB --json > file` never mixes the two.
"""


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule of `finding_rules.toml`: its findings are made where a verb works, and not by a table of checks."""

    id: str
    severity: Severity
    why: str
    source: str
    fix: str = ""


class Group(Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    what: str
    rule: tuple[Row, ...]


class File(Struct, frozen=True, forbid_unknown_fields=True):
    group: tuple[Group, ...]


ROWS = codec.own_table(Path(finding.__file__).with_name("finding_rules.toml"), File)
GROUPS: tuple[tuple[str, str, tuple[Rule[Any] | Row, ...]], ...] = (
    *rules.GROUPS,
    ("The gate", "what keeps a wheel from leaving `cuwheel build`", gate.RULES),
    ("Wheels as files", "what `cuwheel verify` finds before anything is installed", wheel_rules.RULES),
    *((group.title, group.what, group.rule) for group in ROWS.group),
)


def pages() -> dict[str, str]:
    """Path below docs/ → text."""
    found = {"exit-codes.md": EXIT_CODES.format(rows=_exit_codes()), "rules/README.md": _index()}
    for _, _, group in GROUPS:
        for rule in group:
            found[f"rules/{rule.id}.md"] = (
                f"# {rule.id}\n\nSeverity: {rule.severity}, unless the finding says otherwise.\n\n"
                f"## Why\n\n{rule.why}\n\n{_fix(rule.fix)}## Source\n\n{rule.source}\n"
            )
    found["spellings.md"] = _spellings()
    found["../README.md"] = _readme()
    found["causes/README.md"] = _causes()
    found |= {f"causes/{id_}.md": _cause(id_, file) for id_, file in knowledge().causes.items()}
    return found


def catalogue_contents() -> str:
    """What ships, with the last release for each generation. Apart from `pages`: every wheel in it is judged."""
    found = api.catalogue_list()
    machines = [each.machine for each in found.projects[0].newest]
    titles = [f"{architectures.find_architecture(Capability.parse(each)).generation} {each}" for each in machines]
    lines = ["# What the catalogue holds", ""]
    lines += [
        f"The [catalogue](catalogue.md) that ships with cuwheel, collected from the public index up to {found.date}:",
        f"{found.wheels} wheels of {len(found.projects)} packages for Linux on x86-64. Of each package the last",
        "release that runs on the first GPUs of each generation, of those that are held. *jit*: compiled by the",
        "driver; *partly*: not all of it runs; *no code*: it has none that a GPU loads; –: none of them runs there.",
        "This page is written from it.",
        "",
        f"| package | held | {' | '.join(titles)} |",
        f"| --- | --- |{' --- |' * len(titles)}",
    ]
    for each in found.projects:
        versions = each.versions
        held = versions[0] if len(versions) == 1 else f"{versions[-1]} to {versions[0]} ({len(versions)})"
        cells = (catalogue.newest_words(one) for one in each.newest)
        lines.append(f"| {each.name} | {held} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _readme() -> str:
    """README as it is, with its list of verbs from their table."""
    rows = [
        f"| `{' '.join(filter(None, ('cuwheel', each.name, each.takes)))}` | {each.line} |" for each in VERBS.values()
    ]
    listed = "\n".join(("| verb | what it does |", "| --- | --- |", *rows, ""))
    return re.sub(r"\| verb \| what it does \|\n(\|.*\n)+", lambda _: listed, (DOCS.parent / "README.md").read_text())


def _spellings() -> str:
    shown = ((("sm_80", "sm_90"), ("compute_90",)), (("sm_90a",), ()), ((), ("compute_90",)))
    lists = [([Arch.parse(each) for each in archs], [Arch.parse(each) for each in ptx]) for archs, ptx in shown]
    lines = ["# Spellings of architecture lists", ""]
    lines += [
        "`cuwheel plan` writes a list as every build system spells it, and reads it back (`--read LIST --as NAME`)."
    ]
    lines += ["Each is a module of `src/cuwheel/facts/spellings`, and this page is written from them.", ""]
    lines += ["| name | whose | where | in a configuration |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.name} | {row.owner} | `{row.variable}` | `{{archs.{row.name}}}` |" for row in spellings.ROWS]
    for archs, ptx in lists:
        lines += ["", f"## {' '.join(map(str, (*archs, *ptx)))}", "", "| name | list |", "| --- | --- |"]
        for row in spellings.ROWS:
            spelt = row.write(row.variable, archs, ptx, Releases())
            near = f"; the nearest is `{spelt.nearest}`" if spelt.nearest else ""
            lines.append(f"| {row.name} | {f'`{spelt.value}`' if spelt.value else f'none: {spelt.reason}{near}'} |")
    return "\n".join(lines) + "\n"


def _causes() -> str:
    lines = ["# Causes", "", "What `cuwheel explain` finds in logs. Ids do not change. Each is a file in"]
    lines += ["`src/cuwheel/diagnosis/causes`, and this page is written from them."]
    causes = knowledge().causes
    for family in dict.fromkeys(file.family for file in causes.values()):
        lines += ["", f"## {family}", ""]
        lines += [f"- [{id_}]({id_}.md): {file.title}" for id_, file in causes.items() if file.family == family]
    return "\n".join(lines) + "\n"


def _cause(id_: str, file: CauseFile) -> str:
    parts = [f"# {id_}", f"{file.title[:1].upper()}{file.title[1:]}.", "## Why", " ".join(file.why.split())]
    parts += [
        "## What to do",
        "\n".join(f"- {fix.text}{_situation(fix.when)}  \n  (source: {fix.source})" for fix in file.fix),
    ]
    parts += ["Words in braces are filled in from the log, the machine's profile and the tables."]
    if file.ways_out:
        parts += ["## Ways out", "\n".join(f"- {way.title}" for way in knowledge().ways.way if way.id in file.ways_out)]
    parts += ["## What it looks like", "\n\n".join(f"```\n{each.log.strip()}\n```" for each in file.example)]
    parts += ["## Sources", "\n".join(f"- {each}" for each in file.source)]
    return "\n\n".join(parts) + "\n"


def _situation(when: tuple[str, ...]) -> str:
    return f" *({', '.join(when)})*" if when else ""


def _fix(text: str) -> str:
    return f"## How to fix\n\n{text[:1].upper()}{text[1:]}.\n\n" if text else ""


def _exit_codes() -> str:
    classes = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.CuwheelError)]
    codes = {each.exit_code: each.meaning for each in classes if each is not errors.CuwheelError}
    return "\n".join(f"| {code} | {codes[code]} |" for code in sorted(codes))


def _index() -> str:
    lines = ["# Rules", "", "Each finding carries the id of its rule; ids do not change."]
    for title, what, group in GROUPS:
        lines += ["", f"## {title}: {what}", ""]
        lines += [f"- [{rule.id}]({rule.id}.md) ({rule.severity})" for rule in group]
    return "\n".join(lines) + "\n"


def main() -> int:
    for name, text in pages().items():
        path = DOCS / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (DOCS / "catalogue-contents.md").write_text(catalogue_contents())
    for folder in ("rules", "causes"):
        written = {f"{folder}/{path.name}" for path in (DOCS / folder).glob("*.md")}
        for name in written - pages().keys():
            (DOCS / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
