"""Writes the pages that say what the code says: the rules and the exit codes. Called by `./run docs`."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from cuwheel import errors
from cuwheel.compat import check_rules, library_rules, machine_rules

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

Errors go to standard error as `error: …`, mostly followed by `hint: …` with the command to run next. The answer alone
goes to standard output, so `cuwheel VERB --json > file` never mixes the two.
"""

GROUPS = (
    ("Machines", "what `cuwheel doctor` finds", machine_rules.RULES),
    ("Libraries", "what `cuwheel inspect` finds", library_rules.RULES),
    ("Device code on machines", "what `cuwheel check` finds", check_rules.CODE_RULES),
    ("Loading", "what keeps a library from being loaded, as `cuwheel check` finds it", check_rules.HOST_RULES),
    ("Packages", "what `cuwheel check` finds of a whole wheel", check_rules.PACKAGE_RULES),
)


def pages() -> dict[str, str]:
    """Path below docs/ → text."""
    found = {"exit-codes.md": EXIT_CODES.format(rows=_exit_codes()), "rules/README.md": _index()}
    for _, _, rules in GROUPS:
        for rule in rules:
            found[f"rules/{rule.id}.md"] = (
                f"# {rule.id}\n\nSeverity: {rule.severity}, unless the finding says otherwise.\n\n"
                f"## Why\n\n{rule.why}\n\n{_fix(rule.fix)}## Source\n\n{rule.source}\n"
            )
    return found


def _fix(text: str) -> str:
    return f"## How to fix\n\n{text[:1].upper()}{text[1:]}.\n\n" if text else ""


def _exit_codes() -> str:
    classes = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.CuwheelError)]
    codes = {each.exit_code: each.meaning for each in classes if each is not errors.CuwheelError}
    return "\n".join(f"| {code} | {codes[code]} |" for code in sorted(codes))


def _index() -> str:
    lines = ["# Rules", "", "Each finding carries the id of its rule; ids do not change."]
    for title, what, rules in GROUPS:
        lines += ["", f"## {title}: {what}", ""]
        lines += [f"- [{rule.id}]({rule.id}.md) ({rule.severity})" for rule in rules]
    return "\n".join(lines) + "\n"


def main() -> int:
    for name, text in pages().items():
        path = DOCS / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    stale = {path.name for path in (DOCS / "rules").glob("*.md")} - {Path(name).name for name in pages()}
    for name in stale:
        (DOCS / "rules" / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
