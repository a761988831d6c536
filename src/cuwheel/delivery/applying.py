"""An install carried out: the very files that were decided on, installed, imported, and put back where that fails.

Files that were chosen by facts are read before; with `--slim` they lose the device code that the GPUs never load.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.delivery import choosing
from cuwheel.delivery.install_answer import CompiledWheel, Slimmed
from cuwheel.errors import ToolError, UnavailableError
from cuwheel.network import addresses, client, resolver, transfer, venvs
from cuwheel.network.settings import settings_for_uv
from cuwheel.proving import checks
from cuwheel.proving.outcomes import result_of
from cuwheel.proving.runner import checks as runner
from cuwheel.proving.runner import child
from cuwheel.support import files, log, masking
from cuwheel.support.finding import finding
from cuwheel.wheel import record
from cuwheel.wheel.file import WheelFile
from cuwheel_core.errors import CuwheelError
from cuwheel_core.support.wording import size
from cuwheel_core.wheel import metadata
from cuwheel_core.wheel.metadata import distributions, installed_files, site_packages
from cuwheel_core.wheel.tags import normalised, plain_name

if TYPE_CHECKING:
    from cuwheel.delivery.environment_changes import InstallPlan, Place
    from cuwheel.delivery.install_answer import Install
    from cuwheel.machine.fleet import Machine
    from cuwheel.network.resolver import Release
    from cuwheel.network.settings import Settings
    from cuwheel.wheel.journal_file import Pinned
    from cuwheel_core.support.finding import Finding

_INSTALL_S = 3600.0
_GOOD = ("passed", "skipped")
_LICENCE = "licence-on-changes"


def apply_plan(plan: InstallPlan, place: Place) -> Install:
    """What was decided, done; the environment is as it was where that fails."""
    sizes = [each.size for each in plan.releases]
    total = sum(filter(None, sizes)) if all(sizes) else 0  # a part of it would be taken for the whole
    if plan.releases:
        named = ", ".join(f"{each.name} {each.version}" for each in plan.releases)
        log.info("installing %s%s", named, f" ({size(total)})" if total else "")
    return restored_on_failure(place, plan.answer.name, lambda: _apply_and_import(plan, place), plan.pinned)


def restored_on_failure(
    place: Place, name: str, work: Callable[[], Install], pinned: tuple[Pinned, ...] = ()
) -> Install:
    """Whatever happens in between, Ctrl-C too, leaves the environment as it was. `name`: of what is installed."""
    broken = set(venvs.conflicts(place.interpreter))
    place.copy.begin(name, pinned)
    try:
        done = work()
        if not done.problem:
            place.copy.finish()
    except BaseException:
        place.copy.restore()
        raise
    if done.problem:
        return replace(done, rolled_back=True, findings=(*done.findings, *place.copy.restore()))
    if newly_broken := set(venvs.conflicts(place.interpreter)) - broken:
        found = finding(
            "requirements-broken",
            "requirements of installed packages are no longer met",
            evidence=tuple(sorted(newly_broken)),
            fix="cuwheel install --undo, or install what they require",
            severity="warning",
        )
        done = replace(done, findings=(*done.findings, found))
    return replace(done, written=True)


def _apply_and_import(plan: InstallPlan, place: Place) -> Install:
    answer = plan.answer
    try:
        with tempfile.TemporaryDirectory(prefix="cuwheel-") as folder:
            scratch = Path(folder)
            releases, contradicted = _read_first(plan, place.prefix, scratch)
            if contradicted:
                findings = (*answer.findings, *contradicted)
                return replace(answer, findings=findings, problem=contradicted[0].message)
            if plan.compile_for:
                releases, made_code, found = compile_releases(releases, plan.compile_for, scratch)
                answer = replace(answer, compiled=made_code, findings=(*answer.findings, *found))
            if plan.slim_for:
                releases, slimmed, found = slim_releases(releases, plan.slim_for, scratch)
                answer = replace(answer, slimmed=slimmed, findings=(*answer.findings, *found))
            if releases:
                install_releases(place.interpreter, releases, plan.network, scratch)
                place.copy.must_keep_out()
                place.copy.must_leave_others({normalised(each.name) for each in releases}, plan.allowed)
                _must_be_there(place.prefix, releases)
                hide_origins(place.prefix, releases)
        for each in plan.pinned:
            from cuwheel.delivery import pin_files  # noqa: PLC0415 - few write settings

            pin_files.write_settings(each, plan.settings.variables)
    except CuwheelError as error:
        return with_failure(answer, error)
    modules = [module for name in plan.names for module in _modules_of(place.prefix, name)]
    driver = any(each.driver for each in plan.machines)
    return with_imports(answer, place, modules, plan.settings.needed, driver=driver)


def with_failure(
    answer: Install, error: CuwheelError, facts: Mapping[str, str] | None = None, *, building: bool = False
) -> Install:
    """Why it failed, by what the tool printed. `facts`: of what it was built with."""
    if not isinstance(error, ToolError):
        return replace(answer, problem=f"{error.message}: {error.hint}" if error.hint else error.message)
    from cuwheel.diagnosis import inquiry  # noqa: PLC0415 - where something failed alone

    causes = inquiry.causes(error.output or error.message, facts, building=building)
    return replace(answer, problem=error.message, causes=causes)


def _read_first(plan: InstallPlan, prefix: Path, scratch: Path) -> tuple[tuple[Release, ...], tuple[Finding, ...]]:
    """The files that were chosen by facts, here and read; and what they contradict."""
    own = {each.name: each for each in plan.choices if each.taken and each.taken.is_to_be_read}
    here: list[Release] = []
    findings: list[Finding] = []
    for release in plan.releases:
        choice = own.get(normalised(release.name))
        if choice is None:
            here.append(release)
            continue
        path = on_disk(release, scratch)
        here.append(replace(release, url=files.absolute(path).as_uri()))
        findings += filter(None, [choosing.disagreement(choice, path, prefix)])
    return tuple(here), tuple(findings)


# Wheels on their way into an environment: with machine code where its GPUs' driver would have to compile, and without
# the device code that they never load.


def compile_releases(
    releases: Sequence[Release], machines: Sequence[Machine], scratch: Path
) -> tuple[tuple[Release, ...], tuple[CompiledWheel, ...], tuple[Finding, ...]]:
    """The same releases, those that got machine code as files of this machine; as with `slim_releases`."""
    from cuwheel.changes.graft.compiled import compile_ahead  # noqa: PLC0415 - few installs ask for it
    from cuwheel.changes.graft.request import GraftRequest  # noqa: PLC0415

    made: list[Release] = []
    compiled: list[CompiledWheel] = []
    findings: list[Finding] = []
    for release in releases:
        path = on_disk(release, scratch)
        with WheelFile(path) as wheel:
            version = wheel.distribution.version
        names = [each.name for each in machines]
        asked = GraftRequest(path, compile=names, output=scratch / "compiled", version=version)
        done = compile_ahead(asked, machines)
        findings += [each for each in done.findings if each.severity != "note" or each.rule == _LICENCE]
        if not done.written:
            made.append(replace(release, url=path.as_uri()))
            continue
        new = files.absolute(done.outputs[0])
        made.append(replace(release, url=new.as_uri(), file=new.name, sha256=None, size=new.stat().st_size))
        compiled.append(CompiledWheel(file=release.file, pieces=len(done.compiled)))
    return tuple(made), tuple(compiled), tuple(dict.fromkeys(findings))


def slim_releases(
    releases: Sequence[Release], machines: Sequence[Machine], scratch: Path
) -> tuple[tuple[Release, ...], tuple[Slimmed, ...], tuple[Finding, ...]]:
    """The same releases, those that were cut as files of this machine; what was cut; what there is to say of it.

    Version and file name stay: RECORD and a note in the wheel say what was cut.
    """
    from cuwheel.changes.slim import act as slimming  # noqa: PLC0415 - all that changes wheels, which few installs ask for
    from cuwheel.changes.slim.request import SlimRequest  # noqa: PLC0415

    made: list[Release] = []
    slimmed: list[Slimmed] = []
    findings: list[Finding] = []
    for release in releases:
        path = on_disk(release, scratch)
        with WheelFile(path) as wheel:
            version = wheel.distribution.version
        asked = SlimRequest(path, machines=list(machines), output=scratch / "slimmed", version=version)
        with log.progress(f"slimming {path.name}"):
            done = slimming.slim(asked)
        findings += [each for each in done.findings if each.severity == "error" or each.rule == _LICENCE]
        if not done.written or done.output is None or done.wheel is None:
            made.append(replace(release, url=path.as_uri()))
            continue
        before, after, new = done.wheel.bytes_before, done.wheel.bytes_after, Path(done.output)
        log.info("%s: %s, was %s", path.name, size(after), size(before))
        made.append(replace(release, url=files.absolute(new).as_uri(), file=new.name, sha256=None, size=after))
        slimmed.append(Slimmed(file=release.file, bytes_before=before, bytes_after=after))
    return tuple(made), tuple(slimmed), tuple(dict.fromkeys(findings))


# By pip or uv: no index is asked, each file has its address and its hash.


def install_releases(interpreter: Path, releases: Sequence[Release], network: Settings, scratch: Path) -> None:
    """Exactly these files."""
    lines = [_line(each, network, scratch) for each in releases]
    hashed = all(" --hash=" in each for each in lines)
    listed = scratch / "requirements.txt"
    listed.touch(mode=0o600)  # addresses with logins
    listed.write_text("".join(f"{each}\n" for each in lines), encoding="utf-8")
    options = ["--no-deps", *(["--require-hashes"] if hashed else []), "--requirement", str(listed)]
    if uv := venvs.uv():
        environ, inherited = settings_for_uv(network)
        command = [uv, "pip", "install", "--python", str(interpreter), "--only-binary=:all:", *inherited, *options]
    else:
        environ = resolver.pip_environment()
        command = [*venvs.pip_for(interpreter), "install", *options]
    venvs.ask_installer(command, timeout=_INSTALL_S, env=environ)


def _must_be_there(prefix: Path, releases: Iterable[Release]) -> None:
    """pip ends with status 0 too where its configuration (`target`, `prefix`, `root`) sent it to another folder."""
    there = {each.name for folder in site_packages(prefix) for each in distributions(folder)}
    if missing := [each.name for each in releases if normalised(each.name) not in there]:
        raise UnavailableError(
            f"{', '.join(missing)}: installed, but not into {prefix}: a setting of pip sends it elsewhere",
            hint="pip config list shows it: target, prefix, root",
        )


def hide_origins(prefix: Path, releases: Iterable[Release]) -> None:
    """An installer writes where a wheel came from into direct_url.json: a login, and the signature of an address."""
    names = {normalised(each.name) for each in releases}
    installed = (each for folder in site_packages(prefix) for each in distributions(folder))
    for info in (each.info for each in installed if each.name in names):
        before = metadata.read_info_file(info, "direct_url.json")
        if (hidden := masking.text(before, random=False)) == before:
            continue
        files.write(info / "direct_url.json", hidden)
        digests = {f"{info.name}/direct_url.json": record.digest_of_bytes(hidden.encode())}
        files.write(info / "RECORD", record.changed(metadata.read_info_file(info, "RECORD"), digests))


def _line(release: Release, network: Settings, scratch: Path) -> str:
    url, sha256 = release.url, release.sha256
    local = addresses.local_path(url)
    if plain_name(release.file) != release.file or (local and _on_a_share(local)):
        local = on_disk(release, scratch)
    if local:
        url, sha256 = files.absolute(local).as_uri(), sha256 or files.sha256(local)
    else:
        url = addresses.with_login(url, client.login_at_once(url, network))
    return f"{release.name} @ {url}" + (f" --hash=sha256:{sha256}" if sha256 else "")


def on_disk(release: Release, scratch: Path) -> Path:
    """The file, under a name that installers know: they do not know those of variants."""
    local, plain = addresses.local_path(release.url), plain_name(release.file)
    to = scratch / plain
    if local:
        return local if plain == local.name and not _on_a_share(local) else files.copy(local, to)
    transfer.download(release.url, to, sha256=release.sha256, size=release.size)
    return to


def _on_a_share(path: Path) -> bool:
    """Whether a server has it, on Windows: uv takes file://server/share for a folder of this machine."""
    return path.drive.startswith("\\\\")


# Whether what was installed can be imported: in processes of their own, as `verify` does it.


def with_imports(
    answer: Install, place: Place, modules: Sequence[str], settings: Mapping[str, str], *, driver: bool
) -> Install:
    """`settings`: variables that the packages need.

    `driver`: without one, an import that fails for want of it proves nothing.
    """
    results = []
    with tempfile.TemporaryDirectory(prefix="cuwheel-") as folder:
        environ = runner.confined_variables(os.environ, place.prefix, Path(folder), is_secret=masking.is_secret)
        environ |= settings
        environ["PYTHONDONTWRITEBYTECODE"] = "1"  # what is put back, is put back as it was
        cut = child.can_cut_network()
        for number, module in enumerate(dict.fromkeys(modules)):
            check = checks.import_check(module)
            with log.progress(check.name):
                report = runner.run_check(
                    check.as_dict(),
                    str(place.interpreter),
                    environ,
                    Path(folder, f"run-{number}"),
                    cut=cut,
                    hide=lambda text: masking.known(text, os.environ),
                )
            result = result_of(report, check)
            if not driver and not result.good:
                from cuwheel.proving import libraries  # noqa: PLC0415 - where something failed alone

                result = libraries.hint_at_driver(result)
            results.append(result)
    answer = replace(answer, checks=tuple(results))
    bad = [each for each in results if each.outcome not in _GOOD]
    if not bad:
        return answer
    from cuwheel.diagnosis import inquiry  # noqa: PLC0415 - where something failed alone

    causes = inquiry.causes("\n".join(f"{each.output}\n{each.problem}" for each in bad))
    return replace(answer, causes=causes, problem=f"{bad[0].name}: {bad[0].problem or bad[0].outcome}")


def _modules_of(prefix: Path, name: str) -> tuple[str, ...]:
    for folder in site_packages(prefix):
        for each in distributions(folder):
            if each.name == normalised(name):
                own = (path for path in installed_files(each.info) if not path.startswith(("../", "/")))
                top_level = metadata.read_info_file(each.info, "top_level.txt")
                return checks.modules_of_files(own, each.name, top_level)
    return ()
