"""From a log to causes, best first: find signatures, weigh them with facts, set consequences aside, say what helps."""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import cache
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.diagnosis import known as known_
from cuwheel.diagnosis import register, remedies
from cuwheel.diagnosis.case import Diagnosis, Heard, WayOut
from cuwheel.diagnosis.causes import ANY_CAUSE, knowledge
from cuwheel.diagnosis.confidence import CERTAIN, SHOWN, said, together
from cuwheel.diagnosis.events import event, is_compiler_call
from cuwheel.diagnosis.known import ALWAYS, CONDITIONS
from cuwheel.diagnosis.rows import CauseFile, placeholders
from cuwheel.diagnosis.text import Hit, Search
from cuwheel.support.cause import Cause, Evidence
from cuwheel_core.facts import versions
from cuwheel_core.fix import in_words
from cuwheel_core.support.wording import file_name
from cuwheel_core.verdicts.condition import outcome_in_words
from cuwheel_core.verdicts.predict import GOOD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cuwheel.diagnosis.causes import Knowledge
    from cuwheel.diagnosis.known import Known, Version
    from cuwheel.diagnosis.rows import FixRow, Relation, Way, Ways
    from cuwheel.diagnosis.text import Log
    from cuwheel.machine.profile import MachineProfile
    from cuwheel.verdicts.verdict import Verdict
    from cuwheel_core.support.finding import Finding, Fix, ShellName


_CONSEQUENCE = 0.4  # what is left of the confidence in a cause that another one explains
NOT_CUDA = "not-cuda"
_EXPLAINS = 0.35  # how sure of a cause one must be for it to explain another
_HARDLY = 0.5  # how sure of a cause one must be for it to explain a surer one
_ANYHOW = 0.6  # what is left of the weight of words that somebody said, and no program
_SEEN = 0.1  # more where `doctor` finds the same on the machine
_KNOWN_MESSAGE = 0.8  # a signature that weighs so much is a program's own message, whoever repeats it
_ACCOUNT = 1000  # lines: nobody writes so many, with all that they paste
_EVIDENCE = 4
_HEARD = 3  # complaints that are told where no cause is known
_FIXES = 4


class _Found(Struct, frozen=True, kw_only=True):
    id: str
    file: CauseFile
    hits: tuple[Hit, ...]
    confidence: float
    follows: str = ""
    guessed: bool = False
    beside: bool = False


def explain(
    log: Log,
    profile: MachineProfile | None = None,
    facts: Mapping[str, str] | None = None,
    verdicts: Sequence[Verdict] = (),
    using: Knowledge | None = None,
    *,
    building: bool = False,
) -> Diagnosis:
    """`facts`: facts from elsewhere, by name. `verdicts`: what `check` says of a wheel that is at hand.

    `building`: it failed inside of `cuwheel build`, whose options then help.
    """
    using = using or knowledge()
    search = Search(log)
    inner = {reading.name for reading in using.readings.reading if reading.inner} | remedies.INNER
    known = known_.gather(search, using.readings, profile, {**_predicted(verdicts), **(facts or {})}, building=building)
    stated = _found(search, using, known) or _found(search, using, known, alone=True)
    if not stated and log.trouble and log.quoted:
        stated = _found(search, using, known, anyhow=True)
    found = [_weighed(each, known.with_versions(_held(each))) for each in stated]
    found = [each for each in found if not _ruled_out(each, known.with_versions(_held(each)))]
    ranked = [each for each in sorted(_settled(found), key=_rank) if each.confidence >= SHOWN]
    ranked += _others(log, ranked, known) if ranked else (each for each in _guesses(log) if _may_be(each, known))
    causes = tuple(_cause(each, search, known) for each in ranked)
    causes = tuple(replace(each, confidence=said(each.confidence)) for each in causes[:1]) + causes[1:]
    return Diagnosis(
        causes=causes,
        ways_out=rank([using.causes[each.id] for each in causes[:1]], using.ways, known, verdicts),
        versions=tuple(_shown(known.versions, inner)),
        situations=tuple(sorted(known.situations)),
        tried=commands_in(log),
        command=failing(log, causes[0].evidence[0].line) if causes else None,
        understood=() if causes else tuple(islice(_understood(log), _HEARD))[::-1],
    )


def _shown(versions: Sequence[Version], inner: set[str]) -> Iterator[Version]:
    seen = set[tuple[str, str]]()
    for each in versions:
        name = "gpu" if each.name == known_.GPU_NAMED else each.name
        if name not in inner and (name, each.value) not in seen:
            seen.add((name, each.value))
            yield replace(each, name=name)


def _understood(log: Log) -> Iterator[Heard]:
    """Where no cause is known: who says last that something failed, and what; the last is the build's own end."""
    seen = set[str]()
    for index in range(len(log.lines) - 1, max(-1, len(log.lines) - 1 - _LINES), -1):
        line = log.shown(index)
        who = event(log.lines[index])
        if who.speaker and line not in seen and _FAILURE.search(line.lower()) and who.kind in ("diagnostic", "status"):
            seen.add(line)
            yield Heard(speaker=who.speaker, line=log.numbers[index], text=line)


def _predicted(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """The error that `check` foresees is a fact like others."""
    errors = [each.predicted_error for each in verdicts if each.predicted_error]
    return {"predicted_error": str(errors[0].code)} if errors else {}


def _rank(found: _Found) -> tuple[float, int]:
    """The surest first; of equals the one that shows itself first."""
    return -found.confidence, min(hit.line for hit in found.hits)


def _held(found: _Found) -> dict[str, str]:
    return {name: value for hit in reversed(found.hits) for name, value in hit.held.items()}


def _found(
    search: Search, using: Knowledge, known: Known, *, alone: bool = False, anyhow: bool = False
) -> list[_Found]:
    """`alone`: in what somebody writes a program's message counts that stands on a line of its own. `anyhow`: there all
    words count that a cause has, and prove little.
    """
    found: list[_Found] = []
    quoted, fails = search.log.quoted, tells_of_failure(search.log)
    for id_, file in using.causes.items():
        hits: list[Hit] = []
        weights: list[float] = []
        for signature in file.signature:
            if signature.told and (search.log.total > _ACCOUNT or search.log.wish):
                continue
            if signature.trouble and not search.log.trouble:
                continue
            if signature.seen and not any(each.rule in file.rules for each in known.findings):
                continue
            own = [hit for text in signature.texts for hit in search.said(text)]
            is_message = signature.weight >= _KNOWN_MESSAGE
            if quoted and not anyhow and not signature.told and not (search.log.reported and is_message):
                known_alone = alone and is_message and not search.log.wish
                own = [
                    hit
                    for hit in own
                    if not search.log.is_told(hit.line)
                    or (known_alone and register.stands_alone(search.log.lines[hit.line]))
                ]
            if search.log.wish:
                own = [hit for hit in own if register.is_printed(search.log.lines[hit.line])]
            elif signature.facts and (fails or signature.trouble) and not hits:
                # What was said goes before what follows.
                own += [hit for name in signature.facts for hit in known.told(name)]
            if signature.says:
                own = [hit for hit in own if _is_so(signature.says, hit.held)]
            if signature.by:
                own = [hit for hit in own if event(search.log.lines[hit.line]).speaker in signature.by]
            if not own or not all(map(search.has, signature.needs)) or any(map(search.has, signature.unless)):
                continue
            if not all(CONDITIONS[name](known) for name in signature.holds):
                continue
            hits += own
            weights.append(signature.weight)
        if hits:
            confidence = together(weights) * (_ANYHOW if anyhow else 1)
            found.append(_Found(id=id_, file=file, hits=tuple(hits), confidence=confidence, guessed=anyhow))
    return found


def _is_so(says: Relation, held: Mapping[str, str]) -> bool:
    """Where a line names the version that is there and the one that was asked for, they decide."""
    if not (held.get("found") and held.get("wanted")):
        return True
    found, wanted = versions.key(held["found"]), versions.key(held["wanted"])
    return found < wanted if says == "too-old" else found > wanted if says == "too-new" else found != wanted


def _weighed(found: _Found, known: Known) -> _Found:
    changes = [fact.change for fact in found.file.fact if CONDITIONS[fact.when](known)]
    changes += [_SEEN] * any(each.rule in found.file.rules for each in known.findings)
    return replace(found, confidence=min(CERTAIN, max(0.0, found.confidence + sum(changes))))


def _ruled_out(found: _Found, known: Known) -> bool:
    return any(CONDITIONS[name](known) for name in found.file.ruled_out_by)


def _may_be(found: _Found, known: Known) -> bool:
    """Whether something that the log does not show itself is possible where it happened."""
    here, places = known.situations, found.file.places
    visible = not here.intersection(found.file.when_unless)
    return visible and not _ruled_out(found, known) and (not places or bool(here.intersection(places)))


def _settled(found: Sequence[_Found]) -> Iterator[_Found]:
    """A first error that caused fifty others is one cause. Of two that explain each other the surer does."""
    explainers = {each.id: each.file.explained_by for each in found}
    sure = {each.id: each.confidence for each in found if each.confidence >= _EXPLAINS}
    for each in found:
        others = sure.keys() - {each.id}
        explained = others if _yields(each) else others & {*each.file.explained_by}
        # What is hardly known explains nothing that is known well.
        explained = {id_ for id_ in explained if _yields(each) or sure[id_] >= min(each.confidence, _HARDLY)}
        explained -= {id_ for id_ in explained if each.id in explainers[id_] and each.confidence > sure[id_]}
        if explained:
            first = max(sorted(explained), key=lambda id_: sure[id_])
            yield replace(each, confidence=each.confidence * _CONSEQUENCE, follows=first)
        else:
            yield each


def _yields(found: _Found) -> bool:
    """To whatever else is found."""
    return ANY_CAUSE in found.file.explained_by


def _cause(found: _Found, search: Search, known: Known) -> Cause:
    known = known.with_versions(_held(found))
    seen = [fix for each in known.findings if each.rule in found.file.rules for fix in each.fixes]
    told = [*seen, *fixes(found.file.fix, known.filled(), known, search)]
    return Cause(
        id=found.id,
        confidence=round(found.confidence, 2),
        title=f"not sure: it may be that {found.file.title}" if found.guessed else found.file.title,
        evidence=tuple(_evidence(found.hits, search.log)),
        fixes=tuple(dict.fromkeys(told))[:_FIXES],
        follows=found.follows,
        when=found.file.when if found.beside or found.guessed else "",
    )


def _evidence(hits: tuple[Hit, ...], log: Log) -> Iterator[Evidence]:
    lines = {log.numbers[hit.line]: log.shown(hit.line) for hit in sorted(hits, key=lambda hit: -hit.line)}
    for number in sorted(lines)[:_EVIDENCE]:
        yield Evidence(line=number, text=lines[number])


# Which of a cause's fixes are told: those for this situation, that run there, the most specific first.

_OF_PTX = ("compiled-by-driver", "ptx-newer-than-driver")  # rules of `check`
_PS = re.compile(r"(?:\([\w.-]+\) )?PS [A-Za-z]:\\[^>]*>")  # PowerShell's prompt


def _shell_of(known: Known, search: Search) -> ShellName:
    """The shell that is typed into where the log was made."""
    if "windows" not in known.situations:
        return "posix"
    return "powershell" if any("PS " in line and _PS.match(line) for line in search.log.lines) else "cmd"


def fixes(rows: tuple[FixRow, ...], filled: dict[str, str], known: Known, search: Search) -> Iterator[Fix]:
    """Those for this situation, the specific ones first; a general one that a specific one says better is last."""
    shell = _shell_of(known, search)
    for row in sorted((row for row in rows if _fits(row, filled, known, search)), key=_order):
        yield row.filled(filled, shell)


def _order(row: FixRow) -> tuple[bool, bool]:
    """Inside a build its own options come first."""
    return "build" not in row.when, not (row.fills - ALWAYS or row.shown or row.holds)


def _fits(fix: FixRow, filled: dict[str, str], known: Known, search: Search) -> bool:
    return (
        known.situations.issuperset(fix.when)
        and not known.situations.intersection(fix.unless)
        and fix.fills <= filled.keys()
        and not (fix.unless_known and filled.keys() >= set(fix.unless_known))
        and all(CONDITIONS[name](known) for name in fix.holds)
        and (not fix.shown or any(map(search.has, fix.shown)))
    )


# Ways out, ranked for the situation: by what the likeliest cause leaves open, and by where it happened.

_WHEEL = "prebuilt-wheel"


def rank(causes: Sequence[CauseFile], ways: Ways, known: Known, verdicts: Sequence[Verdict] = ()) -> tuple[WayOut, ...]:
    """In the order of the first cause's own list; those that do not exist here are left out.

    A wheel at hand that `check` approves is the shortest way of all; one that it refuses is none.
    """
    rows = {way.id: way for way in ways.way}
    wanted = list(dict.fromkeys(id_ for cause in causes for id_ in cause.ways_out))
    checked = tuple(_checked(rows[_WHEEL], each) for each in verdicts if causes)
    if any(each.outcome in GOOD for each in verdicts):
        return (
            *checked,
            *(_way_out(rows[id_], known) for id_ in wanted if id_ != _WHEEL and _exists(rows[id_], known)),
        )
    found = tuple(_way_out(rows[id_], known) for id_ in wanted if _exists(rows[id_], known))
    return (*found, *checked)


def _checked(way: Way, verdict: Verdict) -> WayOut:
    """Adds what `check` says of PTX that can be compiled ahead: by which command, in how many seconds."""
    wheel = file_name(verdict.target)
    ahead = [each for each in verdict.findings if each.rule in _OF_PTX and each.fix]
    words = "".join(f"; {each.message}; {in_words(_needed(each))}" for each in ahead[:1])
    if verdict.outcome in GOOD:
        outcome = outcome_in_words(verdict.outcome, verdict.requires)
        return WayOut(id=way.id, title=way.title, text=f"{wheel} runs on {verdict.machine} ({outcome}){words}")
    error = f" with error {verdict.predicted_error.code}" if verdict.predicted_error else ""
    return WayOut(
        id=way.id,
        title=f"not {way.title}",
        text=f"{wheel} on {verdict.machine}: {verdict.outcome}{error} (cuwheel check){words}",
    )


def _needed(finding: Finding) -> tuple[Fix, ...]:
    """Its fixes, without the one that says that none is needed."""
    return tuple(each for each in finding.fixes if each.changes != ("nothing",))


def _exists(way: Way, known: Known) -> bool:
    return known.situations.issuperset(way.when) and not known.situations.intersection(way.unless)


def _way_out(way: Way, known: Known) -> WayOut:
    filled = known.filled()
    text = next((each for each in _words_of_way(way) if placeholders(each) <= filled.keys()), way.title)
    return WayOut(id=way.id, title=way.title, text=text.format_map(filled))


def _words_of_way(way: Way) -> Iterator[str]:
    yield from filter(None, (way.text, way.general))


# Where no signature fits: the causes that speak in the words of the log. A place to look, and no answer.
#
# Of 573 texts of failures, each without the signatures that know it, 321 had such a guess: 233 with their cause first,
# 293 among the three; of 165 without a CUDA problem none. They are told as guesses.

_COUNT = 3
_DOUBTFUL = 0.75  # a first cause that is less sure is told with others beside it
_ALIKE, _AS_MUCH = 3.0, 0.5  # how much these must have in common with the log, and with it compared with the first
_GUESSED, _NEARLY_AS_MUCH = 3.0, 0.3  # the same of a cause that nothing else speaks of, and of those told with it
_GUESS = (0.28, 0.22, 0.2)  # what such causes are told with, as weights
_LINES = 400  # that tell of a failure: the first ones matter
_LETTERS = 1000  # of a line
_LENGTH = 0.7  # how much a cause with many words is held back: with 1 it is the cosine of two texts
_WORD = re.compile(r"[a-z][a-z_+]{1,40}")
_HOLES = re.compile(r"\{[^{}]*\}|[<>|*]")
_FAILURE = re.compile(
    r"error|fail|fatal|cannot|can't|could not|couldn't|not found|no such|unable|missing|undefined|unsupported|invalid"
    r"|exception|abort|killed|denied|mismatch|incompatible|not compatible|requires|unknown"
)
_COMPLAINT = re.compile(  # people's
    r"not (?:work|run|start)|n't (?:work|run|start)|nothing (?:runs|works)|works (?:on|with|in)\b|\bbug\b|\bhelp\b"
    r"|how (?:to|can|do|should)|problem|trouble|issue|stuck|hang|freez|false|wrong|crash|\bstop|not support|no longer"
    r"|失败|报错|不支持|无法|错误|问题"
)


_TELLS = re.compile(f"{_FAILURE.pattern}|{_COMPLAINT.pattern}")


def tells_of_failure(log: Log) -> bool:
    """In a program's words or a person's."""
    return bool(_FAILURE.search(log.folded) or (log.total <= _SHORT and _COMPLAINT.search(log.folded)))


_SHORT = 120  # lines that somebody may have written
_OF_CUDA_ALONE = re.compile(
    r"cu(?:da|dnn|blas|fft|rand|solver|sparse|toolkit|tlass|py)|nv(?:cc|idia|rtc|ml|link|jitlink|toolsext)|nccl|tensorrt|ptxas|cubin"
    r"|\bsm_?\d|compute_|\bgpu|torch|tensorflow|\bjax|onnxruntime|triton"
)
_OF_CUDA = re.compile(rf"{_OF_CUDA_ALONE.pattern}|\.cuh?\b|glibc|host compiler|\bcl\.exe|msvc")
_FOLDERS = re.compile(r"(?:[\w.+~:-]*[/\\]){3,}")  # whose names say nothing of what failed
_HARMLESS = re.compile(  # what is no failure, follows from one, is that of the program, or of another module than ours
    r"\bwarn|^\W{0,3}w[ /]|^-- |\binfo\b|\bdebug\b|not a (?:failure|problem)|no error|ignor|skip|falling back"
    r"|\bif (?:you|nvcc|it|the)\b|command .{0,300}(?:failed|returned|exit)|device-side|cuda:\d"
    r"|\b(?:attribute|type|key|value|index|name|zerodivision|syntax|unpickling)error\b|\bframe #\d"
    r"|exception raised from|filenotfounderror(?!.*\.(?:so|dll|h|hpp|cuh?|ptx|cubin)\b)"
    r"|^ *file |\bshapes?\b|size mismatch"
    r"|no module named .?(?!\w*(?:cuda|torch|nvidia|tensorflow|triton|jax|cu[a-z]))"
)


def nearest_causes(log: Log) -> tuple[str, ...]:
    """Ids, the nearest first; none for a log that does not speak of such things at all."""
    return tuple(_alike(log))[:_COUNT]


def _alike(log: Log) -> dict[str, float]:
    """How much the lines that tell of a failure have in common with what is written of each cause, the most first."""
    if not _OF_CUDA.search(log.folded):
        return {}
    lines = [line[:_LETTERS].lower() for line in log.lines]
    if not log.trouble:
        lines = list(islice(filter(_FAILURE.search, lines), _LINES)) or lines
    words = {term for line in lines[:_LINES] for term in _terms(line)}
    spoken, rare = _vocabulary()
    scores = {id_: _score(terms, words, rare) for id_, terms in spoken.items()}
    return {id_: scores[id_] for id_ in sorted(scores, key=lambda id_: -scores[id_]) if scores[id_]}


@cache
def _vocabulary() -> tuple[dict[str, Counter[str]], dict[str, float]]:
    """The terms of each cause, and how rare each is."""
    causes = knowledge().causes
    spoken = {id_: Counter(term for text in _texts(file) for term in set(_terms(text))) for id_, file in causes.items()}
    spread = Counter(term for terms in spoken.values() for term in terms)
    return spoken, {term: math.log(len(causes) / count) for term, count in spread.items()}


def _others(log: Log, found: Sequence[_Found], known: Known) -> Iterator[_Found]:
    """What it may be instead of a first cause that is not certain. They share the doubt that is left.

    Those that show themselves by the same messages, the likeliest and then those whose words the log has; where the
    evidence leaves much doubt, those too that it speaks of in as many words.
    """
    first, there = found[0], {each.id for each in found}
    if first.id == NOT_CUDA or said(first.confidence) >= CERTAIN or len(found) >= _COUNT:
        return
    scores = _alike(log)
    likeliest, *others = first.file.instead or (first.id,)
    ids = [likeliest, *sorted(others, key=lambda id_: -scores.get(id_, 0.0))]
    if first.confidence < _DOUBTFUL and not _yields(first):
        least = max(_ALIKE, scores.get(first.id, 0.0) * _AS_MUCH)
        ids += [id_ for id_, score in scores.items() if score >= least and id_ != NOT_CUDA]
    doubt = (1 - said(first.confidence)) / (_COUNT - 1)
    for id_ in (id_ for id_ in dict.fromkeys(ids) if id_ not in there):
        other = _Found(id=id_, file=knowledge().causes[id_], hits=first.hits, confidence=min(SHOWN, doubt), beside=True)
        if len(there) < _COUNT and _may_be(other, known):
            there.add(id_)
            yield other


def _guesses(log: Log) -> Iterator[_Found]:
    """Where something of CUDA's failed in words that no signature knows: what is written in words most like them."""
    scores, causes = _alike(log) if any(_cuda_fails(log)) else {}, knowledge().causes
    near = [id_ for id_ in islice(scores, _COUNT) if id_ != NOT_CUDA and ANY_CAUSE not in causes[id_].explained_by]
    if not near or scores[near[0]] < _GUESSED or next(iter(scores)) == NOT_CUDA:
        return
    near = [id_ for id_ in near if scores[id_] >= scores[near[0]] * _NEARLY_AS_MUCH]
    for id_, weight in zip(near, _GUESS, strict=False):
        hit = Hit(line=_nearest_line(log, id_), pattern="", held={})
        yield _Found(id=id_, file=causes[id_], hits=(hit,), confidence=weight, guessed=True)


def _cuda_fails(log: Log) -> Iterator[bool]:
    """For each line that is no command, whether a program, or a person who has trouble, says so of CUDA's."""
    asked = log.trouble or log.reported
    if log.wish or (log.prose and not asked):
        return
    for index, line in islice(_failing(log), _LINES):
        if index and log.numbers[index] < log.numbers[index - 1]:
            return  # those put together from pieces follow
        words = _FOLDERS.sub("", line[:_LETTERS].lower())
        if _OF_CUDA_ALONE.search(words) and not _HARMLESS.search(words):
            yield event(line).kind not in ("command", "listing")


def _failing(log: Log) -> Iterator[tuple[int, str]]:
    """The lines that tell of a failure; where a person tells of trouble, in their words too."""
    if log.trouble:
        yield from ((index, line) for index, line in enumerate(log.lines) if _TELLS.search(line.lower()))
        return
    place = 0
    while match := _FAILURE.search(log.folded, place):
        index = log.index_at(match.start())
        place = log.span(index)[1]
        yield index, log.lines[index]


def _nearest_line(log: Log, id_: str) -> int:
    """The one that tells of a failure and has most in common with a cause."""
    spoken, rare = _vocabulary()
    lowered = [(index, line[:_LETTERS].lower()) for index, line in enumerate(log.lines)]
    lines = list(islice((each for each in lowered if _FAILURE.search(each[1])), _LINES)) or lowered[:_LINES]
    return max(lines, key=lambda each: sum(rare[term] for term in {*_terms(each[1])} & spoken[id_].keys()))[0]


def _score(terms: Counter[str], there: set[str], rare: Mapping[str, float]) -> float:
    length = math.sqrt(sum((math.log1p(count) * rare[term]) ** 2 for term, count in terms.items()))
    shared = sum(math.log1p(terms[term]) * rare[term] ** 2 for term in there & terms.keys())
    return shared / length**_LENGTH if length else 0.0


def _texts(file: CauseFile) -> Iterator[str]:
    yield from (file.title, file.why, file.when)
    for signature in file.signature:
        for text in (*signature.any, *signature.needs):
            yield _HOLES.sub(" ", text)
    for example in file.example:
        yield from (line for line in example.log.splitlines() if _FAILURE.search(line.lower()))


def _terms(text: str) -> Iterator[str]:
    """Words, and pairs of them."""
    words = _WORD.findall(text.lower())
    yield from words
    yield from map(" ".join, pairwise(words))


# The commands that a log shows: what was tried, for the investigation's report.

_MOST = 12
_LONGEST_COMMAND = 4000  # letters of a call
# A prompt and what follows it; or a line that starts with a program that builds, installs or asks.
_PROMPT = re.compile(
    r"(?:\$|\+|>|PS [^>]{0,120}>|\(\w{1,40}\) [^>$]{0,120}[$>]|[\w.-]{1,40}@[\w.-]{1,60}:[^$#]{0,120}[$#]) ?(\S.{2,})"
)
_PROGRAM = re.compile(
    r"(?:sudo |time |[A-Z_]{2,30}=\S{0,80} ){0,6}"
    r"(?:pip3?|uv|conda|mamba|python3?|cmake|ninja|make|cargo|nvcc|docker|poetry|apt|apt-get|nvidia-smi|auditwheel|twine)"
    r" [\w./-].{1,}"
)

_START = re.compile(r" ?(?:[$+>(]|PS |[A-Z_]{2,30}=|[\w.-]{1,40}@|[acdmnpstu][\w-]{1,11} )")  # most lines are none


_FAR = 200  # lines between a call and what it printed


def failing(log: Log, line: int) -> Evidence | None:
    """The compiler call that was shown last before a line."""
    near = (index for index in range(len(log.numbers)) if line - _FAR <= log.numbers[index] <= line)
    found = [index for index in near if is_compiler_call(log.lines[index])]
    last = max(found, key=lambda index: log.numbers[index], default=None)
    return None if last is None else Evidence(line=log.numbers[last], text=log.lines[last].strip()[:_LONGEST_COMMAND])


def commands_in(log: Log) -> tuple[Evidence, ...]:
    """The first of them, each once."""
    found: dict[str, Evidence] = {}
    for number, line in _candidates(log):
        found.setdefault(line, Evidence(line=number, text=line))
        if len(found) == _MOST:
            break
    return tuple(found.values())


def _candidates(log: Log) -> Iterator[tuple[int, str]]:
    for index, number in enumerate(log.numbers):
        if not _START.match(log.lines[index]):
            continue
        text = log.shown(index)
        match = _PROMPT.fullmatch(text)
        command = match[1] if match else text
        if _PROGRAM.fullmatch(command) and not command.endswith(("...", "…")):
            yield number, command
