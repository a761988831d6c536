"""The answer of `check` as CI services show it: a job's summary, annotations, JUnit's XML, SARIF."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree as ET

from cuwheel.report import kernel_matrix, markdown
from cuwheel.report.answer import document_of
from cuwheel.report.document import Document, Heading
from cuwheel.report.tables import figure, table
from cuwheel.support import codec, files
from cuwheel.support.answer import shown
from cuwheel.support.finding import find_rule
from cuwheel.version import __version__
from cuwheel_core.support import printable, wording
from cuwheel_core.support.finding import SEVERITIES, Finding
from cuwheel_core.verdicts.condition import outcome_in_words

if TYPE_CHECKING:
    from cuwheel.report.inspect import Inspect
    from cuwheel.verdicts.verdict import Check, Target, Verdict

_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
_ANNOTATED = ("error", "warning")  # notes are in the summary
_MACHINES = 4


def save(answer: Check, folder: Path, covered: Sequence[Inspect] = ()) -> None:
    """`covered`: the answers of `inspect --coverage` about the targets, whose kernels stand in the summary."""
    answer = shown(answer)
    folder.mkdir(parents=True, exist_ok=True)
    files.write(folder / "summary.md", summary(answer, [shown(each) for each in covered]))
    files.write(folder / "annotations.txt", github_annotations(answer))
    files.write(folder / "junit.xml", junit(answer))
    files.write(folder / "check.sarif", sarif(answer))


def summary(answer: Check, covered: Sequence[Inspect] = ()) -> str:
    """The document of the terminal, the files with their sizes, and which kernels lack code for which machine."""
    rows = ((wording.file_name(each.target), wording.size(each.size), " ".join(each.archs)) for each in answer.targets)
    found = document_of(answer, verbose=False)
    blocks = [*found.blocks, table(("file", figure("size"), "device code for"), rows)]
    for each in covered:
        if each.kernel_matrix and each.kernel_matrix.kernels:
            blocks.append(Heading(f"Kernels of {wording.file_name(each.target)}"))
            blocks += kernel_matrix.blocks(each.kernel_matrix, each.libraries, verbose=False)
    return markdown.text(Document(found.title, tuple(blocks)))


# What is to be said of each file, the same on several machines once.


class _Told(NamedTuple):
    target: Target
    finding: Finding
    machines: tuple[str, ...]  # none: it is so on any

    @property
    def text(self) -> str:
        where = f"{wording.a_few(self.machines, _MACHINES)}: " if self.machines else ""
        name = "" if self.finding.about == self.target.name else f"{self.target.name}: "
        return f"{name}{where}{self.finding.message}"


def _told(answer: Check) -> list[_Told]:
    """The gravest first."""
    found = [_Told(target, each, ()) for target in answer.targets for each in target.findings]
    for target, verdicts in _by_target(answer):
        alike: dict[tuple[str, str], tuple[Finding, list[str]]] = {}
        for verdict in verdicts:
            for each in verdict.findings:
                alike.setdefault((each.rule, each.message), (each, []))[1].append(verdict.machine)
        found += [_Told(target, each, tuple(dict.fromkeys(machines))) for each, machines in alike.values()]
    return sorted(found, key=lambda each: SEVERITIES.index(each.finding.severity))


def _by_target(answer: Check) -> Iterator[tuple[Target, tuple[Verdict, ...]]]:
    several = len(answer.machines)
    for index, target in enumerate(answer.targets):
        yield target, answer.verdicts[index * several : (index + 1) * several]


def _place(target: str) -> PurePath:
    """Relative to the folder of the job, where it lies there."""
    path, here = PurePath(target), Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def github_annotations(answer: Check) -> str:
    """GitHub's commands, a line each: https://docs.github.com/actions/reference/workflow-commands."""
    lines = []
    for each in _told(answer):
        if each.finding.severity in _ANNOTATED:
            fix = [f"fix: {each.finding.fix}"] if each.finding.fix else []
            where = printable.annotation(_place(each.target.target).as_posix(), inside=True)
            message = printable.annotation(each.text, *fix)
            lines.append(f"::{each.finding.severity} file={where},title=cuwheel {each.finding.rule}::{message}\n")
    return "".join(lines)


def junit(answer: Check) -> str:
    """A suite for each file; a case for each machine, and one for the file itself."""
    suites = ET.Element("testsuites", name="cuwheel check")
    for target, verdicts in _by_target(answer):
        suite = ET.SubElement(suites, "testsuite", name=printable.line(target.name))
        wrong = [each for each in target.findings if each.severity == "error"]
        _case(suite, "size and architectures", "failure" if wrong else "", "not as it should be", wrong)
        for verdict in verdicts:
            kind, message = _result(verdict)
            grave = [each for each in verdict.findings if kind and each.severity != "note"]
            _case(suite, verdict.machine, kind, message, grave or list(verdict.findings))
        for name, tag in (("tests", "."), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(name, str(len(suite.findall("testcase" if tag == "." else f"testcase/{tag}"))))
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _result(verdict: Verdict) -> tuple[str, str]:
    """What JUnit calls it, and why."""
    if verdict.outcome == "fails":
        error = verdict.predicted_error
        return "failure", f"fails: error {error.code} ({error.name})" if error else "fails"
    if verdict.main_part_fails:
        return "failure", outcome_in_words(verdict.summary, verdict.requires)
    if verdict.outcome == "unknown":
        return ("skipped", "no CUDA code") if verdict.has_no_code else ("error", "nobody can tell whether it runs")
    return "", ""


def _case(suite: ET.Element, name: str, kind: str, message: str, findings: list[Finding]) -> None:
    case = ET.SubElement(suite, "testcase", classname=suite.get("name", ""), name=printable.line(name), time="0")
    if kind:
        told = ((f"{each.rule}: {each.message}", *([f"fix: {each.fix}"] if each.fix else [])) for each in findings)
        ET.SubElement(case, kind, message=message).text = printable.Lines(chain.from_iterable(told))


def sarif(answer: Check) -> str:
    """SARIF 2.1.0, with what GitHub asks for beyond its schema: a place for each result, and what it is known by."""
    told = _told(answer)
    rules = list(dict.fromkeys(each.finding.rule for each in told))
    run = {
        "tool": {"driver": {"name": "cuwheel", "version": __version__, "rules": [_rule(each) for each in rules]}},
        "automationDetails": {"id": "cuwheel/check/"},
        "results": [
            {
                "ruleId": each.finding.rule,
                "ruleIndex": rules.index(each.finding.rule),
                "level": each.finding.severity,
                "message": {"text": str(printable.Lines(_words(each)))},
                "locations": [{"physicalLocation": _physical(each.target.target)}],
                "partialFingerprints": {"primaryLocationLineHash": known},
            }
            for each, known in zip(told, _fingerprints(told), strict=True)
        ],
    }
    return codec.indented({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}).decode() + "\n"


def _rule(name: str) -> dict[str, Any]:
    row = find_rule(name)
    return {
        "id": name,
        "shortDescription": {"text": f"{name.replace('-', ' ').capitalize()}."},
        "fullDescription": {"text": row.why},
        "help": {"text": row.fix or row.why},
        "defaultConfiguration": {"level": row.severity},
    }


def _words(told: _Told) -> Iterator[str]:
    yield told.text
    yield from told.finding.evidence
    if told.finding.fix:
        yield f"fix: {told.finding.fix}"


def _physical(target: str) -> dict[str, Any]:
    """A file has no lines that people read; services want one all the same."""
    place = _place(target)
    uri = place.as_uri() if place.is_absolute() else quote(place.as_posix().encode(errors="surrogatepass"))
    return {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}


def _fingerprints(told: Iterable[_Told]) -> Iterator[str]:
    """What each result is known by, in the next version of a wheel too: names, and which of those alike it is."""
    alike: Counter[tuple[str, ...]] = Counter()
    for each in told:
        found = each.finding
        known = (each.target.name.partition(" ")[0], found.rule, found.about, found.subject, *each.machines)
        alike[known] += 1
        words = "\0".join((*known, str(alike[known])))
        yield hashlib.sha256(words.encode(errors="surrogatepass")).hexdigest()[:32]
