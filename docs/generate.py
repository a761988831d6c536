"""Writes what the code says: pages of rules, causes, the API and exit codes; README's verbs. Called by `./run docs`."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields, replace

import cuwheel
from cuwheel import api, errors
from cuwheel.building import tables
from cuwheel.delivery.catalogue import SHIPPED, CatalogueReader
from cuwheel.diagnosis.causes import knowledge
from cuwheel.facts import spellings
from cuwheel.facts.spellings.row import Releases
from cuwheel.report import catalogue
from cuwheel.support import codec, finding
from cuwheel.support.extensions import find_word
from cuwheel.support.verbs import FAMILIES, OTHER_NAMES, SECTIONS, SHOWN, VERBS, Word, public_names
from cuwheel_core import errors as core_errors
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts import gpus
from cuwheel_core.facts.arch import Arch, Capability
from cuwheel_core.support import finding as core_finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    from cuwheel.diagnosis.rows import CauseFile, FixRow

DOCS = Path(__file__).parent
_WIDTH = 100  # of a signature on one line

EXIT_CODES = """\
# Exit codes

For whoever calls cuwheel from a script or CI: these do not change. Every class of error has its own.

| code | meaning |
| --- | --- |
| 0 | yes, or done |
| 1 | the answer is no: it will not run, a problem was found, a need is not met |
{rows}
| 15 | `check`, `find`, `install --dry-run`: nobody can tell, since the GPU or the device code is not known |
| 70 | a bug in cuwheel: run it again with `--verbose` and report what it prints |
| 130 | interrupted (Ctrl-C) |

An invalid value of an option is always 2, whatever is wrong with it: an unknown GPU, a file that is not there,
a version that does not exist. All problems are reported at once. 3, 4 and 5 are for what stands without an option
(`cuwheel lookup gpu NAME`, the wheel of `cuwheel inspect WHEEL`) and for what is met on the way.

Errors go to standard error as `error: …`, mostly followed by `hint: …` with the command to run next. The answer alone
goes to standard output, so `cuwheel VERB > file` never mixes the two.

With `--json` there is always one object on standard output, and never a second: the answer, or why there is none. Its
schema (`cuwheel/schemas/error-1.json`) tells the two apart:

```console
$ cuwheel lookup gpu "titan 4" --json
error: no GPU named 'titan 4'
hint: did you mean 'TITAN V' or 'TITAN RTX' or 'TITAN X Pascal' or 'GeForce GTX TITAN'?
{{
  "schema": "cuwheel.error/1",
  "error": "UnknownNameError",
  "message": "no GPU named 'titan 4'",
  "hint": "did you mean 'TITAN V' or 'TITAN RTX' or 'TITAN X Pascal' or 'GeForce GTX TITAN'?",
  "fixes": [
    {{
      "text": "did you mean 'TITAN V' or 'TITAN RTX' or 'TITAN X Pascal' or 'GeForce GTX TITAN'?",
      "commands": [],
      "changes": [],
      "needs": [],
      "unless": [],
      "fills": [],
      "shell": "",
      "to": "",
      "rules_out": []
    }}
  ],
  "status": 3
}}
```

`error` is the name of its class in `import cuwheel` ([the list](api.md#errors)), `Interrupted`, or `Bug`; `hint` is
empty where nobody knows one; `fixes` is the same as values, with commands as lists of words; `status` is the exit
status. So it is for a wrong command line, and an interrupt. On a terminal a command of a hint has a line of its own.
`trace` gives its standard output to the command that it runs: there `--json` is for `--read` alone.
"""

# Its examples run in tests/unit/report/test_api_page.py, which holds what they print.
API = """\
# The Python API

For whoever calls cuwheel from a program. `import cuwheel` has every name of this page, and type checkers know them all.
A verb of the command line is a function with the same words: `--on` is `on=`, `--for` is `machines=`, `--dry-run` is
`dry_run=`. It returns the frozen value that `--json` prints; `succeeded` is false where the command would exit with 1.
`to_json()` is what `--json` prints, to the letter, and `to_dict()` the same as dictionaries and lists.
What cannot be answered raises a `cuwheel.CuwheelError`. This page is written from the code.

Will it run there, and if not, why?

```python
import cuwheel

answer = cuwheel.check("dist/pkg-1.0-cp311-cp311-linux_x86_64.whl", on=["h100", "gtx 1080 ti"])
for verdict in answer.verdicts:
    print(verdict.machine, verdict.outcome)
```

```text
h100 native
gtx 1080 ti fails
```

```python
written = answer.to_dict()
print(written["schema"], *(each["outcome"] for each in written["verdicts"]))
```

```text
cuwheel.check/1 native fails
```

`msgspec.json.encode` and `dataclasses.asdict` are not the way: an answer holds values of its own (`Capability`, paths),
and texts that may hold a secret are masked when it is written.

Machines are named in one way by [all functions](#machines): a text, with commas or not, or a list.

What has to be compiled for these machines?

```python
for job in cuwheel.plan("h100", "l40", cuda=["13.0"]).jobs:
    print(job.cuda, *job.archs)
```

```text
13.0 sm_89 sm_90
```

Why did it fail?

```python
for cause in cuwheel.explain("build.log", on="h100").causes:
    print(cause.id)
```

```text
unsupported-gpu-architecture
```

A request is a value: it can be kept, compared and passed on. Its fields may also be given one by one.

```python
from pathlib import Path

request = cuwheel.SlimRequest(answer.targets[0].target, machines=["h100"], output=Path("slim"))
for change in cuwheel.slim(request).files:
    print(change.path, *(f"{each.arch} {each.kind}" for each in change.dropped))
```

```text
pkg/libpkg.so sm_80 cubin compute_90 ptx
```

Errors say what happened, and what to do next.

```python
try:
    cuwheel.check("foo.whl", on=["h10"])
except cuwheel.UnknownNameError as error:
    print(error.message, error.hint, sep="; ")
```

```text
no GPU named 'h10'; did you mean 'H100'?
```

[A maintainer's script](../../examples/release.py) builds a project, looks at what came of it, and publishes it.
"""


def _groups() -> tuple[core_finding.RuleGroup, ...]:
    """The tool's rules, with those of the core in the group of the same title."""
    more = {each.title: each.rule for each in codec.own_table(_CORE_RULES, core_finding.RuleTable).group}
    own = codec.own_table(finding.RULES_FILE, core_finding.RuleTable).group
    return tuple(replace(each, rule=(*each.rule, *more.get(each.title, ()))) for each in own)


_CORE_RULES = core_finding.RULES.with_suffix(".toml")
LAB = cast("Word", find_word("lab"))
GROUPS = _groups()


def pages() -> dict[str, str]:
    """Path below docs/ → text."""
    found = {"reference/exit-codes.md": EXIT_CODES.format(rows=_exit_codes()), "reference/rules/README.md": _index()}
    for group in GROUPS:
        for rule in group.rule:
            found[f"reference/rules/{rule.id}.md"] = (
                f"# {rule.id}\n\nFor whoever sees this rule in a finding. "
                f"Severity: {rule.severity}, unless the finding says otherwise.\n\n"
                f"## Why\n\n{rule.why}\n\n{_fix(rule.fix)}## Source\n\n{rule.source}\n"
            )
    found["reference/spellings.md"] = _spellings()
    found["reference/api.md"] = _api()
    found["../README.md"] = _readme()
    found["../src/cuwheel/__init__.pyi"] = _stub({**public_names(), "__version__": "cuwheel.version"})
    functions = {name: module for name, module in public_names().items() if module.startswith("cuwheel.api.")}
    found["../src/cuwheel/api/__init__.pyi"] = _stub(functions)
    found["../lab/src/cuwheel_lab/__init__.pyi"] = _stub({**LAB.public_names(), "__version__": "cuwheel_lab.version"})
    found["reference/api-lab.md"] = _api_of("lab", LAB)
    found["../src/cuwheel/building/settings.pyi"] = _settings_stub()
    found["reference/causes/README.md"] = _causes()
    found |= {f"reference/causes/{id_}.md": _cause(id_, file) for id_, file in knowledge().causes.items()}
    return found


def _stub(names: Mapping[str, str]) -> str:
    """What type checkers read of a package whose names are imported when they are first used."""
    imports = (f"from {module} import {name} as {name}\n" for name, module in names.items())
    exported = (f'    "{name}",\n' for name in sorted(names))
    return "".join(["# Written by ./run docs.\n\n", *sorted(imports), "\n__all__ = [\n", *exported, "]\n"])


# What a caller gives for what a table holds.
_GIVEN = {
    "tuple[str, ...]": "Sequence[str]",
    "dict[str, str]": "Mapping[str, str]",
    "PlanOptions": "PlanSettings",
    "GateTable": "GateSettings",
    "RepairTable": "RepairSettings",
    "GuardTable": 'GuardSettings | Literal["inject"]',
}


def _settings_stub() -> str:
    """What type checkers read of the keys of a configuration."""
    head = (
        "# Written by ./run docs.\n\n"
        "from collections.abc import Mapping, Sequence\nfrom typing import Literal, TypedDict\n\n"
        "from cuwheel.building.tables import Backend as Backend\nfrom cuwheel.building.tables import Naming as Naming\n"
    )
    classes = []
    for name, table in tables.SETTINGS.items():
        written = {key: text.replace("'", '"') for key, text in table.__annotations__.items()}
        rows = (f"    {key}: {_GIVEN.get(written[key], written[key])}\n" for key in tables.setting_names(table))
        classes.append(f"\nclass {name}(TypedDict, total=False):\n{''.join(rows)}")
    return head + "".join(classes)


def _platforms() -> str:
    """How many of them are for which system."""
    files = [each.file for each in CatalogueReader(SHIPPED).contents.wheels]
    windows = sum("win_" in each for each in files)
    arm = sum("linux" in each and "aarch64" in each for each in files)
    return f"{len(files) - windows - arm} for Linux on x86-64, {arm} on aarch64 and {windows} for Windows"


def catalogue_contents() -> str:
    """What ships, with the last release for each generation. Apart from `pages`: every wheel in it is judged."""
    found = api.catalogue_list()
    machines = [each.machine for each in found.projects[0].newest]
    titles = [f"{gpus.find_architecture(Capability.parse(each)).generation} {each}" for each in machines]
    lines = ["# What the catalogue holds", ""]
    lines += [
        "For whoever asks what the catalogue knows.",
        "",
        f"The [catalogue](../howto/catalogue.md) that ships with cuwheel, from the public index up to {found.date}:",
        f"{found.wheels} wheels of {len(found.projects)} packages, {_platforms()}.",
        "Of each package the last release that runs on Linux, x86-64, with the first GPUs of each generation, of",
        "those that are held. *jit*: compiled by the",
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
    """README as it is, with its list of verbs from their table, in the sections of `cuwheel --help`."""
    rows = ["| | |", "| --- | --- |"]
    for title, names in SECTIONS.items():
        rows.append(f"| **{title[:1].upper()}{title[1:]}** | |")
        shown = {name: SHOWN[name] for name in names} | ({"lab": LAB.shown} if title == "more" else {})
        rows += [f"| `{f'cuwheel {name} {each.takes}'.strip()}` | {each.line} |" for name, each in shown.items()]
    listed = "\n".join((*rows, ""))
    return re.sub(r"\| \| \|\n(\|.*\n)+", lambda _: listed, (DOCS.parent / "README.md").read_text())


def _api() -> str:
    parts = [API.rstrip(), "## Functions", "Where a function takes a request, it takes the fields of that request too."]
    for title, names in SECTIONS.items():
        parts.append(f"### {title[:1].upper()}{title[1:]}")
        for verb in (VERBS[each] for name in names for each in _verbs_of(name)):
            parts += [_function(each.partition(".")[2]) for each in verb.functions]
    parts.append("## Requests")
    requests = sorted({each for each in cuwheel.__all__ if each.endswith("Request")})
    parts += [_request(getattr(cuwheel, each)) for each in requests]
    parts += ["## Answers", "What functions return, with the schema of their JSON."]
    answers = {each.rpartition(".")[2]: verb.name for verb in VERBS.values() for each in verb.answers}
    rows = [f"| `{each}` | {_schema(each)} |" for each in sorted(answers)]
    parts.append("\n".join(["| name | schema |", "| --- | --- |", *rows]))
    parts += ["## Errors", "Each has `message`, `hint` and `exit_code`; all are kinds of `CuwheelError`."]
    kinds = sorted(_errors(), key=lambda each: each.__name__)
    rows = [f"| `{each.__name__}` | {each.exit_code} | {each.meaning} |" for each in kinds]
    parts.append("\n".join(["| name | exit code | meaning |", "| --- | --- | --- |", *rows]))
    parts += ["## Other values", "What functions take, and what is found in answers."]
    listed = (each for module, names in OTHER_NAMES.items() if not module.endswith(".errors") for each in names)
    parts += [_value(each) for each in sorted(listed) if not each.endswith("Request")]
    return "\n\n".join(parts) + "\n"


def _api_of(name: str, word: Word) -> str:
    """The page of another distribution's functions."""
    package = importlib.import_module(word.package)
    parts = [
        f"# The Python API of {word.package}",
        f"For whoever calls `cuwheel {name}` from a program. It is written from the code, as [cuwheel's](api.md) is.",
        "## Functions",
    ]
    parts += [_function(each.rpartition(".")[2], package) for verb in word.verbs for each in verb.functions]
    parts.append("## Requests")
    parts += [_request(getattr(package, verb.request.rpartition(".")[2])) for verb in word.verbs if verb.request]
    parts += ["## Answers", "What functions return, with the schema of their JSON."]
    answers = sorted(each.rpartition(".")[2] for verb in word.verbs for each in verb.answers)
    rows = [f"| `{each}` | {_schema(each, package)} |" for each in answers]
    parts.append("\n".join(["| name | schema |", "| --- | --- |", *rows]))
    parts += ["## Other values", "What functions take, and what is found in answers."]
    parts += [_value(each, package) for each in sorted(each for names in word.names.values() for each in names)]
    return "\n\n".join(parts) + "\n"


def _verbs_of(name: str) -> tuple[str, ...]:
    """The verbs behind a word of `cuwheel --help`."""
    return tuple(each for each in FAMILIES[name].commands.values() if each in VERBS) if name in FAMILIES else (name,)


def _function(name: str, package: ModuleType = cuwheel) -> str:
    function = getattr(package, name)
    signature = inspect.signature(function)
    asked = getattr(function, "request", None)
    given = [f"request: {asked.__name__}"] if asked else list(_parameters(signature))
    end = f") -> {signature.return_annotation}"
    line = f"{name}({', '.join(given)}{end}"
    if len(line) > _WIDTH:
        line = "\n".join([f"{name}(", *(f"    {each}," for each in given), end])
    return f"#### {name}\n\n```text\n{line}\n```\n\n{_sentence(function)}"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    star = False
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not star:
            yield "*"
        star = star or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        several = "*" if each.kind is each.VAR_POSITIONAL else ""
        default = "" if each.default is each.empty else f" = {each.default!r}"
        yield f"{several}{each.name}: {each.annotation}{default}"


def _request(request: type) -> str:
    """With its whole docstring and those of its bases: that is where fields are explained."""
    rows = ["| field | type | default |", "| --- | --- | --- |"]
    by_name = {each.name: each for each in dataclasses.fields(request)}
    for each in (by_name[name] for name in inspect.signature(request).parameters):
        default = each.default if each.default_factory is dataclasses.MISSING else each.default_factory()
        shown = f'Path("{default.as_posix()}")' if isinstance(default, Path) else repr(default)
        said = "" if default is dataclasses.MISSING else f"`{shown}`"
        rows.append(f"| `{each.name}` | `{_cell(each.type)}` | {said} |")
    below = [each for each in request.__mro__[1:] if dataclasses.is_dataclass(each)]
    told = [
        inspect.cleandoc(request.__doc__ or ""),
        *(inspect.cleandoc(each.__doc__ or "").partition("\n\n")[2] for each in below),
    ]
    return "\n\n".join([f"### {request.__name__}", *told, "\n".join(rows)])


MACHINES = """\
How functions take machines (`on=`, `machines=`, the arguments of `plan`, `compile=` of `graft`): a text, `"h100"`, or
several with commas, `"h100,l40"`; a path; a value; or a list of these. A text is a GPU's name, a capability, a
generation, the file of a machine profile or a fleet, or `this` machine. Values are `Machine` and `MachineProfile`; a
build takes texts and paths alone, since its machines stand in its configuration. `doctor` and `explain` are about one
machine: a profile, or of `explain` also a GPU. What names no machine is a `UsageError`; a GPU that nobody knows is an
`UnknownNameError`."""


def _value(name: str, package: ModuleType = cuwheel) -> str:
    kind = getattr(package, name)
    if name == "Machines":
        return f"### {name}\n\n{MACHINES}"
    if get_origin(kind) is Literal:
        return f"### {name}\n\nOne of {', '.join(f'`{each}`' for each in get_args(kind))}."
    if inspect.isclass(kind) and issubclass(kind, Struct):
        names = [each.name for each in fields(kind)]
    else:
        names = list(getattr(kind, "__annotations__", {}))
    listed = ", ".join(f"`{each}`" for each in names)
    parts = (f"### {name}", inspect.cleandoc(kind.__doc__ or ""), f"Fields: {listed}." if listed else "")
    return "\n\n".join(filter(None, parts))


def _schema(name: str, package: ModuleType = cuwheel) -> str:
    return f"`{next(each.default for each in fields(getattr(package, name)) if each.name == 'schema')}`"


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|")


def _sentence(function: Any) -> str:  # noqa: ANN401 - a function, or what a decorator made of one
    first = inspect.cleandoc(function.__doc__).partition("\n\n")[0]
    return re.split(r"(?<=\.)\s", first, maxsplit=1)[0]


def _spellings() -> str:
    shown = ((("sm_80", "sm_90"), ("compute_90",)), (("sm_90a",), ()), ((), ("compute_90",)))
    lists = [([Arch.parse(each) for each in archs], [Arch.parse(each) for each in ptx]) for archs, ptx in shown]
    lines = ["# Spellings of architecture lists", ""]
    lines += [
        "For whoever writes an architecture list by hand. `cuwheel plan` writes one as every build system spells it,",
        "and reads it back (`--read LIST --as NAME`).",
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
    lines = ["# Causes", "", "For whoever has an id from `cuwheel explain`. Ids do not change. Each is a file in"]
    lines += ["`src/cuwheel/diagnosis/causes`, and this page is written from them."]
    causes = knowledge().causes
    for family in dict.fromkeys(file.family for file in causes.values()):
        lines += ["", f"## {family}", ""]
        lines += [f"- [{id_}]({id_}.md): {file.title}" for id_, file in causes.items() if file.family == family]
    return "\n".join(lines) + "\n"


def _cause(id_: str, file: CauseFile) -> str:
    parts = [
        f"# {id_}",
        f"For whoever was told this by `cuwheel explain`: {file.title}.",
        "## Why",
        " ".join(file.why.split()),
    ]
    parts += [
        "## What to do",
        "\n".join(map(_way, file.fix)),
    ]
    parts += ["Words in braces are filled in from the log, the machine's profile and the tables."]
    if file.ways_out:
        parts += ["## Ways out", "\n".join(f"- {way.title}" for way in knowledge().ways.way if way.id in file.ways_out)]
    if file.instead:
        causes = knowledge().causes
        others = [f"- [{each}]({each}.md), when {causes[each].when}" for each in file.instead]
        parts += ["## If that is not it", f"It is this when {file.when}. It may also be", "\n".join(others)]
    parts += ["## What it looks like", "\n\n".join(f"```\n{each.log.strip()}\n```" for each in file.example)]
    parts += ["## Sources", "\n".join(f"- {each}" for each in file.source)]
    return "\n\n".join(parts) + "\n"


def _way(fix: FixRow) -> str:
    commands = "".join(f"  \n  `{each}`" for each in fix.commands)
    return f"- {fix.text.strip()}{_situation(fix.when)}{commands}  \n  (source: {fix.source})"


def _situation(when: tuple[str, ...]) -> str:
    return f" *({', '.join(when)})*" if when else ""


def _fix(text: str) -> str:
    return f"## How to fix\n\n{text[:1].upper()}{text[1:]}.\n\n" if text else ""


def _errors() -> list[type[CuwheelError]]:
    """The kinds of error of the core and of the tool."""
    found = [each for module in (core_errors, errors) for _, each in inspect.getmembers(module, inspect.isclass)]
    return [each for each in dict.fromkeys(found) if issubclass(each, CuwheelError) and each is not CuwheelError]


def _exit_codes() -> str:
    codes = {each.exit_code: each.meaning for each in _errors()}
    return "\n".join(f"| {code} | {codes[code]} |" for code in sorted(codes))


def _index() -> str:
    lines = [
        "# Rules",
        "",
        "For whoever has a finding and wants its reason. Each carries the id of its rule; ids do not change.",
    ]
    for group in GROUPS:
        lines += ["", f"## {group.title}: {group.what}", ""]
        lines += [f"- [{rule.id}]({rule.id}.md) ({rule.severity})" for rule in group.rule]
    return "\n".join(lines) + "\n"


def main() -> int:
    for name, text in pages().items():
        path = DOCS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (DOCS / "why" / "catalogue-contents.md").write_text(catalogue_contents())
    for folder in ("reference/rules", "reference/causes"):
        written = {f"{folder}/{path.name}" for path in (DOCS / folder).glob("*.md")}
        for name in written - pages().keys():
            (DOCS / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
