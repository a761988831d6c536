"""python3 kit.pyz: installs the wheels of the kit apart, runs their checks, and writes proof.json."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import signal
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

from ..runner import checks as runner
from ..runner import child, loaded
from ..runner.output import printable
from . import compare, install
from .machine import frameworks_of, machine_profile

MANIFEST = "kit.json"
SCHEMA = "cuwheel.proof/1"
_PROOF = "proof.json"
_CHUNK = 1 << 20
_INTERRUPTED = 130
# What zipfile and json make of a file whose bytes were changed: also methods that there are not, and encryption.
_DAMAGED = (OSError, EOFError, KeyError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error)


_MARKS = {"passed": "ok", "skipped": "skipped", "failed": "FAILED", "crashed": "CRASHED", "timeout": "TIMEOUT",
          "memory": "MEMORY"}  # fmt: skip
_LAST_LINES = 12
_AGREEMENTS = {
    "contradicted": "PREDICTION CONTRADICTED",
    "open": "prediction left open",
    "agreed": "prediction confirmed",
}
_ORDER = ("contradicted", "open", "agreed", "none")


def _tracer(archive: zipfile.ZipFile, place: Path, gpus: Sequence[object]) -> Optional[str]:
    """What sees the code that checks load on the GPU, where there is one and this system takes it."""
    name = f"trace-{platform.machine()}.so"
    if not gpus or name not in archive.namelist():
        return None
    library = place / name
    place.mkdir(parents=True, exist_ok=True)
    library.write_bytes(archive.read(name))
    return str(library) if loaded.loads_here(str(library)) else None


class Confines(NamedTuple):
    """How checks are kept to themselves. `secret` and `hide`: see cuwheel's masking, which travels with this."""

    cut: bool
    passed: tuple[str, ...]
    is_secret: Callable[[str], bool]
    hide: Callable[[str], str]


def main(masking: Any, scratch: Any, arguments: Optional[Sequence[str]] = None) -> int:  # noqa: ANN401 - modules
    """`masking` and `scratch`: cuwheel's modules of these names, as the kit carries them."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupted)
    path = Path(sys.argv[0])
    confines = Confines(
        cut=not options.network and child.can_cut_network(),
        passed=tuple(part for each in options.pass_env for part in each.split(",")),
        is_secret=masking.is_secret,
        hide=lambda text: masking.known(text, os.environ),
    )
    try:
        archive = zipfile.ZipFile(path)
        manifest = json.loads(archive.read(MANIFEST))
    except _DAMAGED as error:
        _complain(f"{path} cannot be read: {error}", "copy it again; it may be cut short")
        return 2
    with archive:
        if options.list:
            _say(f"made by {manifest['tool']}")
            for each in manifest["wheels"]:
                _say()
                _say(f"{each['file']}  {each['size']:,} bytes")
                _say(f"  sha256 {each['sha256']}")
                _say(f"  {len(each['requirements'])} requirements packed, {len(each['checks'])} checks:")
                for check in each["checks"]:
                    _say(f"    {check['name']}{'  (GPU)' if check.get('gpu') else ''}")
            return 0
        try:
            to = Path(options.to)
            to = to / _PROOF if to.is_dir() else to
            if not _writable(to):
                return 2
            with _folder(options.keep, scratch) as (place, mark):
                system = bool(options.system_site_packages or manifest["system"])
                work = _Work(Path(place), mark, options.only, system=system)
                return _run(archive, manifest, to, work, confines)
        except KeyboardInterrupt:
            _tell("interrupted: no proof was written")
            return _INTERRUPTED
        except OSError as error:
            _complain(str(error), "choose where the environments are made with TMPDIR or --keep")
            return 2


def _interrupted(*_: object) -> None:
    """Treats a signal as an interrupt from the keyboard: checks are ended and the folder goes."""
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kit.pyz",
        description="Install the wheels of this kit in environments of their own, run their checks and write the "
        "proof. This runs code of the packages.",
    )
    parser.add_argument("--to", metavar="FILE", default=_PROOF, help=f"where to write the proof ({_PROOF})")
    parser.add_argument("--only", metavar="TEXT", default="", help="only wheels whose file name contains TEXT")
    parser.add_argument("--list", action="store_true", help="show what is in the kit and do nothing else")
    parser.add_argument("--keep", metavar="FOLDER", help="make the environments in this folder and keep them")
    parser.add_argument(
        "--pass-env", metavar="NAME", action="append", default=[], help="let the checks see this variable"
    )
    parser.add_argument("--network", action="store_true", help="let the checks use the network")
    parser.add_argument(
        "--system-site-packages",
        action="store_true",
        default=None,
        help="let the wheels see the packages of this Python",
    )
    return parser


class _Work(NamedTuple):
    """`mark`: by which the processes of a run that was killed are known. `only`: wheels whose name contains it."""

    place: Path
    mark: str
    only: str
    system: bool


def _run(archive: zipfile.ZipFile, manifest: Mapping[str, Any], to: Path, work: _Work, confines: Confines) -> int:
    began = time.time()
    chosen = [each for each in enumerate(manifest["wheels"]) if work.only in each[1]["file"]]
    if damaged := [item["file"] for _, wheel in chosen for item in _items(wheel) if not _is_whole(archive, item)]:
        _complain(f"the kit was damaged on its way: {', '.join(damaged[:5])} is not what was packed", "copy it again")
        return 2
    environ = child.with_mark(os.environ, work.mark)
    here = machine_profile(environ)
    _say_machine(here)
    tracer = _tracer(archive, work.place, here["gpus"])
    wheels = []
    for number, wheel in chosen:
        job = _Job(archive, wheel, work.place / f"{number}", confines, system=work.system, tracer=tracer)
        wheels.append(job.run(here, manifest["signs"], environ))
    proof = {
        "schema": SCHEMA,
        "tool": manifest["tool"],
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        "seconds": round(time.time() - began, 3),
        "machine": here,
        "network": "cut" if confines.cut else "open",
        "wheels": wheels,
        "succeeded": bool(wheels) and all(_succeeded(each) for each in wheels),
    }
    written = _written(proof, to)
    _say_summary(proof, written)
    return 0 if proof["succeeded"] and written else 1


def _items(wheel: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What is installed of a wheel: what it requires, then itself."""
    return [*wheel["requirements"], wheel]


def _is_whole(archive: zipfile.ZipFile, item: Mapping[str, Any]) -> bool:
    hasher = hashlib.sha256()
    try:
        with archive.open(item["member"]) as packed:
            for chunk in iter(lambda: packed.read(_CHUNK), b""):
                hasher.update(chunk)
    except _DAMAGED:  # the zip has a sum of its own
        return False
    return bool(hasher.hexdigest() == item["sha256"])


def _succeeded(wheel: Mapping[str, Any]) -> bool:
    """A wheel that fails here as predicted is not a success, nor is one that nothing was tried of."""
    passed = bool(wheel["checks"]) and all(each["outcome"] in ("passed", "skipped") for each in wheel["checks"])
    fails = bool(wheel["prediction"]) and wheel["prediction"]["outcome"] == "fails"
    return not wheel["problem"] and passed and not fails and wheel["agreement"] != "contradicted"


@contextlib.contextmanager
def _folder(keep: Optional[str], scratch: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - a module
    """A folder that goes, or one that somebody wants to keep, and the mark of this run.

    What a kit that was killed left goes first: its folder, and its processes by their mark.
    """
    with scratch.folder(Path(tempfile.gettempdir()), "cuwheel-kit-", child.end_marked) as gone:
        if keep:
            Path(keep).mkdir(parents=True, exist_ok=True)
        yield os.path.abspath(keep) if keep else os.path.realpath(gone), gone.name


class _Job:
    """One wheel in one environment."""

    def __init__(
        self,
        archive: zipfile.ZipFile,
        wheel: Mapping[str, Any],
        folder: Path,
        confines: Confines,
        *,
        system: bool,
        tracer: Optional[str],
    ) -> None:
        self._archive, self._wheel, self._folder, self._system = archive, wheel, folder, system
        self._confines, self._tracer = confines, tracer

    def run(
        self, here: Mapping[str, Any], signs: Mapping[str, Sequence[str]], environ: Mapping[str, str]
    ) -> dict[str, Any]:
        wheel = self._wheel
        _say()
        _say(wheel["file"])
        report: dict[str, Any] = {
            key: wheel[key] for key in ("file", "sha256", "size", "name", "version", "requirements")
        }
        report.update(problem="", frameworks={}, prediction=None, agreement="none", why="", checks=[], seconds=0.0)
        report["probed"] = {"loaded": 0, "refused": 0, "compared": 0, "against": []}
        began = time.monotonic()
        try:
            made = self._installed(environ)
        except install.InstallError as error:
            report.update(problem=str(error), why="it was not installed")
        except OSError as error:
            report.update(problem=f"it could not be installed: {error}", why="it was not installed")
        else:
            report["frameworks"] = frameworks_of(made.python, made.environ, cut=self._confines.cut)
            report["prediction"] = compare.prediction_here(wheel, here, report["frameworks"])
            _say_prediction(report["prediction"])
            report["checks"] = [*self._probed(made, here, report), *self._checked(made, here)]
            report["agreement"], report["why"] = compare.agreement(
                report["prediction"], report["checks"], report["probed"], signs, here["variables"]
            )
        report["seconds"] = round(time.monotonic() - began, 3)
        if report["problem"]:
            _say(f"  {report['problem']}")
        return report

    def _installed(self, environ: Mapping[str, str]) -> install.Environment:
        """Tags first. That all is what was packed is known by now."""
        files = _items(self._wheel)
        for each in files:
            problem = install.why_not_installable(each["file"])
            if problem:
                raise install.InstallError(f"{each['file']} cannot be installed here: {problem}")
        made = install.make_environment(
            self._folder / "environment",
            environ,
            system=self._system,
            passed=self._confines.passed,
            is_secret=self._confines.is_secret,
        )
        for each in files:
            with self._archive.open(each["member"]) as packed:
                try:
                    install.install_wheel(packed, made.place)
                except install.InstallError as error:
                    raise install.InstallError(f"{each['file']}: {error}") from error
        if self._system:
            install.link_libraries(made.place.site)
        return made

    def _probed(
        self, made: install.Environment, here: Mapping[str, Any], report: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """The device code alone, before anything of the package runs. Nothing where there is none, or no GPU."""
        check = compare.probe_check(self._wheel, made.place) if here["gpus"] else None
        if check is None:
            return []
        result = self._one(check, made, here, self._folder / "scratch" / "probe")
        first = here["gpus"][0]["capability"]
        result, report["probed"] = compare.judge_probes(result, self._wheel, first, here["driver_cuda"])
        _say_check(result)
        return [result]

    def _checked(self, made: install.Environment, here: Mapping[str, Any]) -> list[dict[str, Any]]:
        results = []
        for number, check in enumerate(self._wheel["checks"]):
            result = self._one(check, made, here, self._folder / "scratch" / f"{number}", self._tracer)
            _say_check(result)
            for line in loaded.loaded_in_words(result["loaded"]):
                _say(f"          loaded {line}")
            if words := loaded.compiling_in_words(result["loaded"]):
                _say(f"          the driver compiled {words}")
            results.append(result)
        return results

    def _one(
        self,
        check: Mapping[str, Any],
        made: install.Environment,
        here: Mapping[str, Any],
        scratch: Path,
        tracer: Optional[str] = None,
    ) -> dict[str, Any]:
        capabilities = [each["capability"] for each in here["gpus"]]
        result = runner.run_check(
            check,
            made.python,
            made.environ,
            scratch,
            capabilities=capabilities,
            cut=self._confines.cut,
            hide=self._confines.hide,
            tracer=tracer,
        )
        result = {key: self._placeless(value) for key, value in result.items()}
        result["gpu"] = bool(check.get("gpu") or check.get("capabilities"))
        return result

    def _placeless(self, value: Any) -> Any:  # noqa: ANN401 - of JSON
        """A value without the folder of this run, which says nothing and is another one each time."""
        return value.replace(str(self._folder), "KIT") if isinstance(value, str) else value


def _writable(path: Path) -> bool:
    """Asked before the work: hours of checks without a proof are lost."""
    beside = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.touch()
        beside.unlink()
    except OSError as error:
        _refused(path, error)
        return False
    return True


def _refused(path: Path, error: OSError) -> None:
    _complain(f"the proof cannot be written to {path}: {error}", "choose another file with --to")


def _complain(problem: str, hint: str) -> None:
    _tell(f"error: {problem}", f"hint: {hint}")


def _tell(*lines: str) -> None:
    sys.stderr.write(printable.output(printable.Lines(lines)) + "\n")


def _written(proof: Mapping[str, Any], path: Path) -> str:
    """Beside, then renamed. Where it cannot be written the terminal has it all the same."""
    beside = path.with_name(path.name + ".part")
    try:
        beside.write_text(json.dumps(proof, indent=1, ensure_ascii=True) + "\n", encoding="ascii")
        os.replace(beside, path)  # noqa: PTH105 - the same
    except OSError as error:
        _refused(path, error)
        return ""
    return str(path)


# What it says on the terminal while it runs, and at its end.


def _say(text: str = "") -> None:
    """A closed pipe (`| head`) is not a reason to stop: the proof is a file."""
    try:
        sys.stdout.write(printable.output(printable.line(text)) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say_machine(here: Mapping[str, Any]) -> None:
    system = here["distribution"] or here["os"]
    libc = f", glibc {here['glibc']}" if here["glibc"] else ""
    _say(f"{system}, {here['cpu']}{libc}, Python {here['python']}")
    driver = f"driver {here['driver']}" if here["driver"] else "driver version unknown"
    cuda = f", CUDA {here['driver_cuda']}" if here["driver_cuda"] else ""
    for each in here["gpus"]:
        name = " ".join(each["name"].split())
        _say(f"{name}, compute capability {each['capability']}, {driver}{cuda}")
    if not here["gpus"]:
        status = f" (cuInit gives {here['driver_status']})" if here["driver_status"] else ""
        _say(f"no GPU that CUDA sees{status}")


def _say_prediction(found: Optional[Mapping[str, Any]]) -> None:
    if found:
        error = f", {found['error']['name']} ({found['error']['code']})" if found.get("error") else ""
        _say(f"  predicted for {found['capability']}: {found['outcome']}{error}")


def _say_check(result: Mapping[str, Any]) -> None:
    seconds = f"{result['seconds']:.1f} s" if result["outcome"] != "skipped" else ""
    detail = f": {result['problem']}" if result["problem"] else ""
    _say(f"  {_MARKS.get(result['outcome'], result['outcome']):8}{result['name']}  {seconds}{detail}".rstrip())
    if result["outcome"] not in ("passed", "skipped"):
        for line in result["output"].rstrip().splitlines()[-_LAST_LINES:]:
            _say(f"          | {line}")


def _say_summary(proof: Mapping[str, Any], written: str) -> None:
    """What hardware contradicted comes first."""
    _say()
    for each in sorted(proof["wheels"], key=lambda wheel: _ORDER.index(wheel["agreement"])):
        words = _AGREEMENTS.get(each["agreement"])
        if words:
            _say(f"{words}: {each['file']}: {each['why']}")
    results = [result for each in proof["wheels"] for result in each["checks"]]
    counts = {mark: sum(1 for each in results if each["outcome"] == mark) for mark in _MARKS}
    _say(", ".join(f"{count} {mark}" for mark, count in counts.items() if count) or "no checks were run")
    broken = [each["file"] for each in proof["wheels"] if each["problem"]]
    if broken:
        _say(f"not installed: {', '.join(broken)}")
    if not proof["wheels"]:
        _say("no wheel of the kit was selected")
    if written:
        _say(f"proof: {written}   (cuwheel verify --read {written})")
