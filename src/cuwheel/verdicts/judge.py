"""Targets against machines: one verdict each, from predictions and rules."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.facts import packages
from cuwheel.verdicts import check_rules, wheel_tags
from cuwheel.verdicts.check_rules.case import LibraryCase, PackageCase, unreadable
from cuwheel.verdicts.library_sources import Needed, Surroundings, resolve_needed, surroundings
from cuwheel.verdicts.loading import Loading, loading, with_optional
from cuwheel.verdicts.verdict import LibraryVerdict, Verdict, best_outcome, worst_outcome
from cuwheel.wheel import slim_note
from cuwheel_core.device_code.libraries import Library
from cuwheel_core.facts import cuda_libraries, versions
from cuwheel_core.support.finding import Finding, Fix, examine, gravest_first
from cuwheel_core.support.wording import a_few, file_name
from cuwheel_core.verdicts import drivers, predict
from cuwheel_core.verdicts.condition import Condition, Otherwise, condition
from cuwheel_core.verdicts.modules import is_driver_copy
from cuwheel_core.verdicts.predict import (
    GOOD,
    NOTHING,
    Outcome,
    Prediction,
    Reach,
    served_together,
    with_machine_limits,
)

if TYPE_CHECKING:
    from cuwheel.device_code.contents import PythonLoad, Survey, TorchExports
    from cuwheel.machine.fleet import Machine
    from cuwheel_core.verdicts.choice import CudaError

_IN_PART_RULE = "code-for-gpu-in-part"
_NAMED = 3
_FindingKey: TypeAlias = tuple[str, str, str, str]


class _JudgedLibrary(Struct, frozen=True, kw_only=True):
    """A library on the machine. `stopped`: it cannot even be loaded. `part`: what of the package its conditions are
    for, if not all; `in_part`: what runs, of one that was made to run in part.
    """

    library: Library
    verdict: LibraryVerdict
    findings: tuple[Finding, ...]
    conditions: tuple[Condition, ...]
    stopped: bool
    part: str = ""
    in_part: str = ""


class _Group(Struct, frozen=True, kw_only=True):
    """Libraries that are loaded together: the outcome of them all."""

    cuda: str
    judged: tuple[_JudgedLibrary, ...]
    outcome: Outcome


def judge(survey: Survey, machine: Machine) -> Verdict:
    """One target on one machine. The survey must list the containers of the libraries."""
    return Judge(survey).on(machine)


def judge_all(survey: Survey, machines: Iterable[Machine], torch: TorchExports | None = None) -> tuple[Verdict, ...]:
    """`torch`: the symbols of the one that is installed, for machines that have it; a table has other releases'."""
    subject = Judge(survey, torch)
    return tuple(map(subject.on, machines))


class Judge:
    """Judges one target on any number of machines: what does not depend on them is worked out once."""

    def __init__(self, survey: Survey, torch: TorchExports | None = None) -> None:
        self._survey, self._torch = survey, torch
        self._reaches = predict.reaches_by_path(survey.libraries, survey.distribution)
        self._sweep = functools.cache(lambda path: self._reaches[path].sweep())
        self._of_kind = functools.cache(self._judge)
        self._exports = functools.cache(self._exports_of_torch)
        self._releases = functools.cache(self._releases_of_torch)

    def on(self, machine: Machine) -> Verdict:
        """The verdict for a machine.

        Those that differ in their names alone are judged once: a fleet has thousands of a kind.
        """
        return replace(self._of_kind(replace(machine, name="", count=1)), machine=machine.name)

    def _exports_of_torch(self, version: str) -> TorchExports | None:
        from cuwheel.verdicts.torch_releases import torch_exports  # noqa: PLC0415 - few machines are known to have one

        return torch_exports(version, self._survey, self._survey.torch_symbols)

    def _releases_of_torch(self) -> tuple[str, ...] | None:
        from cuwheel.verdicts.torch_releases import fitting_torch_releases  # noqa: PLC0415 - of extensions of torch

        return fitting_torch_releases(self._survey) if self._survey.torch_symbols else None

    def _judge(self, machine: Machine) -> Verdict:
        survey, reaches = self._survey, self._reaches
        torch = self._torch
        if machine.torch and (torch is None or torch.version != machine.torch):
            torch = self._exports(machine.torch)
        # Which libraries are loaded there. Those that no GPU runs together are not loaded together.
        load = loading(survey, machine)
        certain = [path for path in load.certain if reaches[path].has_code]
        if not load.described and not served_together([self._sweep(path) for path in certain]):
            load = with_optional(load, certain)
        with_code = frozenset(path for path, each in reaches.items() if each.has_code)
        # Every library by itself, then those together that are loaded together: with one CUDA of the framework, or all.
        judged = self._judge_libraries(machine, torch, load)
        outcomes = {each.verdict.outcome for each in _with_outcome(judged[path] for path in load.always)}
        if (load.optional or load.linked) and outcomes == {"fails"}:
            load = replace(load, optional=frozenset(), linked=frozenset(), variants=())  # whatever is opened fails
            judged = self._judge_libraries(machine, torch, load)
        load = _without_worse_variants(load, judged)
        # Where what would be loaded in its place has nothing for the GPU either, loading that is no help.
        if load.stand_in and all(judged[path].verdict.outcome == "fails" for path in load.stand_in):
            helping = tuple(each for each in load.fixes if not {"variable", "file"}.intersection(each.changes))
            load = replace(load, fixes=helping, stand_in=())
        of_package = examine(
            check_rules.PACKAGE_RULES, PackageCase(survey=survey, machine=machine, loading=load, with_code=with_code)
        )
        always = [judged[path] for path in load.always]
        groups = [_group(each.cuda, [*always, *(judged[path] for path in each.paths)]) for each in load.candidates]
        groups = groups or [_group("", always)]
        # Where it is not known which of the groups is loaded, the best of them is the verdict, and that a condition.
        outcome = best_outcome(group.outcome for group in groups)
        chosen = [group for group in groups if group.outcome == outcome]
        if outcome != "fails" and unreadable(survey):
            outcome = "unknown"  # what nobody could read may be what the package is for
        stopped = any(each.severity == "error" for each in of_package)
        loaded = [each.verdict for each in chosen[0].judged]
        with_outcome = [each.verdict for each in _with_outcome(chosen[0].judged)]
        of_main = [each for each in with_outcome if each.main]  # nobody said which libraries those are: all of them
        meant = {each.library.path: each.in_part for each in chosen[0].judged if each.in_part}
        findings = _findings_of(groups, chosen, load)
        if any(each.rule == "wheel-tag-mismatch" for each in of_package):  # which says it of all libraries at once
            findings = (each for each in findings if each.rule not in check_rules.ANOTHER_MACHINE)
        if stopped or outcome == "fails":
            findings = (each for each in findings if each.rule not in check_rules.STARTS_SLOWLY)
        untrue: tuple[Finding, ...] = ()
        if survey.variant and not stopped:
            from cuwheel.verdicts import variant_values  # noqa: PLC0415 - few wheels are variants

            untrue = tuple(variant_values.untrue_on(survey, machine, outcome))
        conditions: list[Condition] = []
        if not stopped and chosen[0].outcome != "fails":
            by_tag = wheel_tags.tag_condition(survey.distribution.tags, machine) if survey.distribution else None
            conditions = [*([by_tag] if by_tag else []), *_conditions(load, groups, chosen)]
        everything = dict.fromkeys([*of_package, *survey.findings, *_cut_on_purpose(survey, findings), *untrue])
        at_import = stopped or any(each.stopped and not each.verdict.optional for each in chosen[0].judged)
        verdict = Verdict(
            target=survey.target,
            machine=machine.name,
            outcome="fails" if stopped else outcome,
            main="fails" if stopped else worst_outcome(each.outcome for each in of_main or with_outcome),
            summary=""
            if stopped or outcome != "partial"
            else _partial_summary(with_outcome, load, survey.python_loads, meant),
            predicted_error=None if at_import else _first_error(loaded),
            requires=_joined(conditions),
            libraries=tuple(
                each.verdict
                for each in judged.values()
                if each.library.device_code and not is_driver_copy(each.library)
            ),
            findings=gravest_first(everything),
        )
        return replace(verdict, fixes=tuple(helping_fixes(verdict.obstacles)))

    def _judge_libraries(
        self, machine: Machine, torch: TorchExports | None, load: Loading
    ) -> dict[str, _JudgedLibrary]:
        """Judges each library, by path. What they have in common is worked out once: there may be thousands."""
        around = surroundings(self._survey, machine, follows=load.follows)
        certain = frozenset(load.always)
        return {
            path: _judge_library(each, self._survey, torch, around, load, certain, self._releases)
            for path, each in self._reaches.items()
        }


def helping_fixes(obstacles: Iterable[Finding]) -> Iterator[tuple[Fix, ...]]:
    """What helps against all of these, the ways for each once. Of several drivers the latest serves for all; where an
    obstacle says that a newer one alone does not help, none is advised.
    """
    ways = list(dict.fromkeys(each.fixes for each in obstacles if each.fixes))
    useless = {change for fixes in ways for fix in fixes for change in fix.rules_out}
    left = [tuple(fix for fix in fixes if not (fix.changes and useless.issuperset(fix.changes))) for fixes in ways]
    newer = [fixes for fixes in left if any(fix.changes == ("driver",) for fix in fixes)]
    latest = max(newer, key=lambda fixes: [versions.key(fix.to or "0") for fix in fixes], default=())
    yield from (fixes for fixes in left if fixes and (fixes not in newer or fixes is latest))


def _cut_on_purpose(survey: Survey, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Turns errors about code that was cut to a workload on purpose into warnings, whose fix is the way back."""
    mark = next((each for each in survey.findings if each.rule == slim_note.CUT_RULE), None)
    for each in findings:
        yield (
            replace(each, severity="warning", fixes=(Fix(text=mark.fix),))
            if mark and each.rule == _IN_PART_RULE
            else each
        )


def _judge_library(
    found: Reach,
    survey: Survey,
    torch: TorchExports | None,
    around: Surroundings,
    load: Loading,
    certain: frozenset[str],
    releases: Callable[[], tuple[str, ...] | None],
) -> _JudgedLibrary:
    """`certain`: the paths that are loaded whatever is not known. `releases`: of torch, that the package goes with."""
    library, path, machine = found.library, found.library.path, around.machine
    if found.has_code:
        prediction = found.on(machine)
    elif library.cudart or drivers.runtime_cuda(library):
        # What only calls the CUDA runtime, or a library of CUDA's, can still meet a driver that does not run it.
        prediction = with_machine_limits(NOTHING, library, machine)
    else:
        prediction = NOTHING
    needed = resolve_needed(library, around)
    case = LibraryCase(
        library=library,
        machine=machine,
        prediction=prediction,
        needed=needed,
        modules=found.modules,
        torch=torch,
        survey=survey,
    )
    host = examine(check_rules.HOST_RULES, case)
    stopped = any(each.severity == "error" for each in host)
    other_machine = any(each.rule in check_rules.ANOTHER_MACHINE for each in host)
    findings = host if other_machine else (*host, *examine(check_rules.CODE_RULES, case))
    elsewhere = () if stopped else _kernels_elsewhere(found, prediction, needed)
    optional = path in load.optional or (path in load.linked and not stopped)
    undecided = any(path in each.paths for each in load.candidates) or (optional and not load.described)
    in_part = ""
    if elsewhere:
        in_part = f"runs if {a_few(elsewhere)} has code for this GPU: its own kernels are for others"
    elif prediction.outcome == "partial" and prediction.for_chosen_gpus:
        in_part = f"runs; kernels compiled for other GPUs alone do not: {a_few(prediction.missing)}"
    of_framework, brought = _framework_conditions(library, needed, around, releases, chosen=load.follows is not None)
    missing = [each.soname for each in needed if each.place == "unknown" and each.soname not in brought]
    conditions = [*of_framework, *prediction.conditions]
    conditions += [condition("library-found", names=(each,)) for each in missing]
    conditions += [condition("library-has-code", names=(each,)) for each in elsewhere]
    conditions += [
        condition("toolkit-library-found", names=(each.soname,)) for each in needed if each.place == "toolkit"
    ]
    # Where a wheel's tags do not say it already: a bare library asks for a C library too.
    if library.glibcxx and machine.glibcxx is None and machine.glibc is not None and machine.libraries is not None:
        conditions.append(condition("glibcxx", version=library.glibcxx))
    return _JudgedLibrary(
        library=library,
        verdict=LibraryVerdict(
            path=path,
            outcome="fails" if stopped else ("partial" if elsewhere else prediction.outcome),
            containers=prediction.containers,
            predicted_error=None if stopped else prediction.predicted_error,
            loaded=None if undecided else path in certain,
            optional=optional,
            main=path in load.main,
            rests_on=prediction.taken,
            requires=prediction.conditions,
        ),
        findings=tuple(_with_library(each, path, load, optional=optional or bool(elsewhere)) for each in findings),
        conditions=tuple(conditions),
        part=load.does.get(path, "") if optional else "",
        in_part=in_part,
        stopped=stopped,
    )


def _framework_conditions(
    library: Library,
    needed: Sequence[Needed],
    around: Surroundings,
    releases: Callable[[], tuple[str, ...] | None],
    *,
    chosen: bool,
) -> tuple[list[Condition], frozenset[str]]:
    """What an extension asks of a framework that nobody knows: which CUDA it is built for, and which releases will do.

    With the libraries that come with such a framework. `chosen`: by its CUDA the library itself was chosen.
    """
    machine = around.machine
    found: list[Condition] = []
    brought: set[str] = set()
    if machine.libraries is not None:
        return [], frozenset()
    of_cuda = drivers.needed_libraries(library)
    known = {"torch": machine.torch_cuda, "jax": machine.jax_cuda}
    for framework in dict.fromkeys(name for each in library.needed if (name := packages.framework_of(each))):
        own = [each for each in needed if packages.framework_of(each.soname) == framework]
        mine = [each.soname for each in needed if _comes_with(framework, each, around)]
        majors = sorted({of_cuda[soname] for soname in mine if soname in of_cuda})
        if majors and not chosen and framework in known and known[framework] is None:
            own_cuda = tuple(soname for soname in mine if soname in of_cuda)
            cuda = tuple(map(str, majors))
            found.append(condition("torch-cuda", framework=framework, cuda=cuda, names=own_cuda))
            brought.update(own_cuda)
        absent = [each.soname for each in own if each.place == "unknown"]
        fitting = releases() if framework == "torch" and machine.torch is None else None
        unpinned = any(each.place == "required" for each in own) and around.required.get(framework) is None
        if absent or (fitting and unpinned):
            found.append(_release_condition(framework, fitting).with_parts(names=tuple(absent)))
            brought.update(absent)
    return found, frozenset(brought)


def _comes_with(framework: str, needed: Needed, around: Surroundings) -> bool:
    """Whether a library of CUDA's comes with a framework, and no package that is required brings it."""
    cuda = cuda_libraries.known_library(needed.soname)
    if cuda is None or needed.place not in ("unknown", "required", "framework"):
        return False
    by_itself = around.required.keys() & {each.name for each in cuda.packages}
    return not by_itself and packages.framework_brings(framework, cuda.component)


def _release_condition(framework: str, fitting: tuple[str, ...] | None) -> Condition:
    if not fitting:
        detail = "none of the releases that are known has all that it takes" if fitting is not None else ""
        return condition("torch-release", framework=framework, detail=detail)
    from cuwheel.verdicts.torch_releases import release_ranges  # noqa: PLC0415 - of extensions of torch

    return condition("torch-release", framework=framework, ranges=release_ranges(fitting))


def _kernels_elsewhere(found: Reach, prediction: Prediction, needed: Sequence[Needed]) -> tuple[str, ...]:
    """Libraries of another package that have the kernels for GPUs which it has nothing for itself, as far as it shows:
    its own are all for chosen GPUs, and it is linked with what is neither CUDA's nor a framework's.
    """
    if prediction.outcome != "fails" or prediction.stops or not all(each.for_chosen_gpus for each in found.modules):
        return ()
    return tuple(each.soname for each in needed if each.place == "unknown" and not each.brought_by)


def _group(cuda: str, judged: Sequence[_JudgedLibrary]) -> _Group:
    return _Group(
        cuda=cuda, judged=tuple(judged), outcome=_combined_outcome(each.verdict for each in _with_outcome(judged))
    )


def _with_outcome(judged: Iterable[_JudgedLibrary]) -> Iterator[_JudgedLibrary]:
    """Libraries with nothing that a driver loads have no outcome of their own, unless they cannot be loaded."""
    return (each for each in judged if each.verdict.containers.total or each.verdict.outcome == "fails")


def _without_worse_variants(load: Loading, judged: Mapping[str, _JudgedLibrary]) -> Loading:
    """Of libraries that are for one GPU each, the one that serves best is the one that is opened; of files with device
    code alone, which the package hands to the driver itself, those that fit.
    """
    loose = [path for path in load.always if judged[path].library.format in ("cubin", "fatbin")]
    failing = {path for path in loose if judged[path].verdict.outcome == "fails"}
    dropped = failing if len(failing) < len(loose) else set()
    for paths in load.variants:
        chosen = best_outcome(judged[path].verdict.outcome for path in paths)
        dropped |= {path for path in paths if judged[path].verdict.outcome != chosen}
    return replace(load, always=tuple(path for path in load.always if path not in dropped))


def _findings_of(groups: Sequence[_Group], chosen: Sequence[_Group], load: Loading) -> Iterator[Finding]:
    """What the libraries give rise to. Of those that are loaded only if things are otherwise, errors as warnings."""
    where: dict[_FindingKey, list[_Group]] = {}
    found: dict[_FindingKey, dict[str, Finding]] = {}
    for group in groups:
        for each in group.judged:
            for finding in each.findings:
                found.setdefault(_finding_key(finding), {})[each.library.path] = finding
                in_groups = where.setdefault(_finding_key(finding), [])
                if group not in in_groups[-1:]:
                    in_groups.append(group)
    for key, by_path in found.items():
        with_code = {
            each.library.path for group in where[key] for each in group.judged if each.verdict.containers.total
        }
        finding = _merge_findings(by_path, with_code)
        loaded = any(group in chosen for group in where[key])
        if not loaded and finding.severity != "error":
            continue
        severity = finding.severity if loaded else "warning"
        about = finding.about
        if len(where[key]) < len(groups):
            about = ": ".join(filter(None, (f"with {load.follows} for CUDA {_versions(where[key])}", about)))
        yield replace(finding, severity=severity, about=about)


def _conditions(load: Loading, groups: Sequence[_Group], chosen: Sequence[_Group]) -> Iterator[Condition]:
    # Where one library is left it is for one CUDA, too, and no other is loaded.
    if load.follows and load.candidates and (len(groups) == 1 or len(chosen) < len(groups)):
        cuda = tuple(group.cuda for group in chosen)
        others = tuple(_otherwise(groups, chosen))
        yield condition("torch-cuda", framework=load.follows, cuda=cuda, otherwise=others)
    groups_with: dict[Condition, list[_Group]] = {}
    for group in chosen:
        of_all = {told for each in group.judged if not each.part for told in each.conditions}
        every = (
            told if not each.part or told in of_all else told.with_parts(part=each.part)
            for each in group.judged
            for told in each.conditions
        )
        for told in dict.fromkeys(every):
            groups_with.setdefault(told, []).append(group)
    for told, where in groups_with.items():
        if len(where) < len(chosen):
            yield told.with_parts(framework=load.follows or "", with_cuda=tuple(group.cuda for group in where))
        else:
            yield told


def _joined(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Each condition once; libraries of which the same must hold are named together."""
    names: dict[Condition, list[str]] = {}
    for each in dict.fromkeys(conditions):
        names.setdefault(each.with_parts(names=()) if each.parts.names else each, []).extend(each.parts.names)
    return tuple(each.with_parts(names=tuple(dict.fromkeys(told))) if told else each for each, told in names.items())


def _versions(groups: Sequence[_Group]) -> str:
    return ", ".join(group.cuda for group in groups)


def _otherwise(groups: Sequence[_Group], chosen: Sequence[_Group]) -> Iterator[Otherwise]:
    for outcome in dict.fromkeys(group.outcome for group in groups):
        cuda = tuple(group.cuda for group in groups if group.outcome == outcome)
        if not any(group.cuda in cuda for group in chosen):
            yield Otherwise(outcome=outcome, cuda=cuda)


# How libraries add up: the outcome of those that are loaded together.


def _combined_outcome(libraries: Iterable[LibraryVerdict]) -> Outcome:
    """All of them must serve; one that is opened only when asked for, or only linked, leaves the rest working.

    How those run that the rest works without does not matter beside the others.
    """
    found = list(libraries)
    deciding = [each for each in found if not each.optional]
    outcome = worst_outcome(each.outcome for each in deciding) if deciding else "native"
    if outcome in ("fails", "unknown"):
        return outcome
    if any(each.optional and each.outcome not in GOOD for each in found):
        return "partial"
    counted = deciding or [each for each in found if each.main] or found
    return worst_outcome(each.outcome for each in counted)


def _first_error(libraries: Iterable[LibraryVerdict]) -> CudaError | None:
    """The first error that the program meets: of a library that it cannot do without, if there is one."""
    failed = [each for each in libraries if each.outcome in ("fails", "partial") and each.predicted_error]
    failed.sort(key=lambda each: (each.optional, each.outcome != "fails"))
    return failed[0].predicted_error if failed else None


def _partial_summary(
    libraries: Sequence[LibraryVerdict], load: Loading, loads: Sequence[PythonLoad], meant: Mapping[str, str]
) -> str:
    """Says of a package that runs in part, in its own terms, what does not work, and whether that is what it is for.

    `meant`: what runs, by path, of libraries that were made to run in part.
    """
    of_main = [each for each in libraries if each.main] or list(libraries)
    failing = [each for each in of_main if each.outcome not in (*GOOD, "partial")]
    in_part = [each for each in of_main if each.outcome == "partial"]
    by = {each.path: each.file for each in loads}

    def parts(found: Iterable[LibraryVerdict]) -> list[str]:
        """Libraries by name, those of one part of the package together."""
        named: dict[str, list[str]] = {}
        for each in found:
            why = load.does.get(each.path) or (f"loaded by {by[each.path]}" if each.path in by else "")
            named.setdefault(why or each.path, []).append(file_name(each.path))
        paths = {each.path for each in libraries}
        return [" and ".join(names) + (f" ({why})" if why not in paths else "") for why, names in named.items()]

    others = parts(each for each in libraries if each not in of_main and each.outcome not in GOOD)
    optional = "an optional part does not" if len(others) == 1 else f"{len(others)} optional parts do not"
    also = f"; {optional}: {a_few(others, _NAMED)}" if others else ""
    lacking = f"{a_few(parts(in_part), _NAMED)} have no code for this GPU"
    if failing:
        number, verb = ("an optional part", "does") if len(others) == 1 else (f"{len(others)} optional parts", "do")
        also = f"; so {verb} {number}: {a_few(others, _NAMED)}" if others else ""
        some = f"; some kernels of {lacking}" if in_part else ""
        return f"starts, but its main part fails: {a_few(parts(failing), _NAMED)}{also}{some}"
    if in_part and all(each.path in meant for each in in_part):
        return "; ".join(dict.fromkeys(meant[each.path] for each in in_part)) + also
    if in_part:
        return f"runs, but not all of its kernels: some of {lacking}{also}"
    return f"runs{also}"


# Findings of single libraries, merged for their package: each once, with the libraries it applies to.


def _with_library(finding: Finding, path: str, load: Loading, *, optional: bool) -> Finding:
    """Its evidence names the library. Of one that the rest works without an error is a warning, and why that is so."""
    severity = "warning" if optional and finding.severity == "error" else finding.severity
    evidence = tuple(f"{path}: {each}" for each in finding.evidence) or (path,)
    if severity != finding.severity and (reason := load.reasons.get(path)):
        evidence = (*evidence, f"{path}: {reason}")
    return replace(finding, severity=severity, evidence=evidence)


def _finding_key(finding: Finding) -> _FindingKey:
    """What several libraries have in common is reported once."""
    return finding.rule, finding.severity, finding.message, finding.fix


def _merge_findings(found: Mapping[str, Finding], everything: Collection[str]) -> Finding:
    """Makes one finding, with the evidence of all, of findings that are alike, by path.

    Where it is not true of `everything`, the libraries of the package that hold code, it says of which.
    """
    evidence = tuple(dict.fromkeys(item for each in found.values() for item in each.evidence))
    first = next(iter(found.values()))
    concerned = [path for path in found if path in everything]
    if concerned and len(concerned) < len(everything):
        return replace(_about_libraries(first, concerned, everything), evidence=evidence)
    return replace(first, evidence=evidence)


def _about_libraries(finding: Finding, paths: Collection[str], everything: Collection[str]) -> Finding:
    """The finding with the names of the libraries that it is about."""
    shared = Counter(file_name(each) for each in everything)
    names = [each if shared[file_name(each)] > 1 else file_name(each) for each in paths]
    listed = a_few(names, _NAMED)
    if not finding.subject:
        return replace(finding, about=listed)
    return replace(finding, subject=f"{'each of ' if len(names) > 1 else ''}{listed}")
