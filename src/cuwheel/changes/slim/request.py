"""What is asked of `cuwheel slim`, and its words looked up once: files, machines, the CUDA version, traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from cuwheel.errors import UsageError
from cuwheel.machine.fleet import Machine, Machines, machine_words
from cuwheel.support.request_fields import as_paths, normalise
from cuwheel_core.errors import UnreadableError

if TYPE_CHECKING:
    from cuwheel.tracing.traced import Workload  # noqa: TC004 - never decoded

Kind: TypeAlias = Literal["wheel", "libraries", "folder", "environment"]
_ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlimRequest:
    """A wheel, libraries, a folder or the environment `env` without what `machines` never load.

    `targets`: one or several; with `env`, names of distributions in it. `machines`: as for `check`; also `this`, and
    `all` to keep every architecture. `cuda`: of packages with a library per CUDA version, keep the one loaded with
    this. `used`: traces; of each library only what they show to be loaded is kept, in an environment or a folder.
    `compile`: where they would compile PTX, machine code is made of it first. `drop_signature`: also change signed
    Windows binaries. `platform`: of `name==version`, the wheel for this one. `commit`: keep no originals.
    """

    targets: str | Path | Sequence[str | Path] = field(default=(), kw_only=False)
    machines: Machines = ()
    env: Path | None = None
    output: Path | None = None
    compile: bool = False
    future: bool = False
    cuda: str | None = None
    recompress: bool = False
    drop_relocatable: bool = False
    strip_debug: bool = False
    force: bool = False
    drop_signature: bool = False
    version: str | None = None
    platform: str | None = None
    used: Sequence[Path] = ()
    dry_run: bool = False
    commit: bool = False

    def __post_init__(self) -> None:
        normalise(self)
        object.__setattr__(self, "machines", machine_words(self.machines))

    @property
    def named(self) -> tuple[str | Path, ...]:
        """The targets, however many."""
        return as_paths(self.targets)


class SlimTask(Struct, frozen=True, kw_only=True):
    """A request, its words looked up.

    `named`: the files or the folder, on this machine; of an environment, the distributions (all without one).
    `machines`: those it must still run on as before; None keeps all architectures. `cuda`: as the tables spell
    it. `workload`: what the traces saw, and keep only that.
    """

    request: SlimRequest = SlimRequest()
    kind: Kind = "libraries"
    named: tuple[str | Path, ...] = ()
    machines: tuple[Machine, ...] | None = None
    cuda: str | None = None
    workload: Workload | None = None

    @property
    def target(self) -> str:
        """What is slimmed, in the words of the answer."""
        return str(self.request.env) if self.request.env else ", ".join(map(str, self.named))

    @property
    def machine_names(self) -> tuple[str, ...]:
        """The machines as people named them, with the capability that counts."""
        if self.machines is None:
            return (_ALL,)
        return tuple(
            dict.fromkeys(
                each.name
                if each.capability is None or each.name == each.capability
                else f"{each.name} ({each.capability})"
                for each in self.machines
            )
        )

    @property
    def commands(self) -> tuple[str, ...] | None:
        """What was traced."""
        return self.workload.commands if self.workload else None


def resolve(request: SlimRequest) -> SlimTask:
    """Looks everything up, and downloads `name==version`. Raises UsageError for what does not go together."""
    from cuwheel.device_code.target import downloaded_if_pinned  # noqa: PLC0415 - who makes a request needs none
    from cuwheel_core.facts import toolkits  # noqa: PLC0415

    workload = None
    if request.used:
        from cuwheel.tracing import traced  # noqa: PLC0415 - few cut by use

        workload = traced.read_workload(request.used)
    wanted = request.machines or (workload.gpus if workload else ())  # a trace knows its GPUs
    cuda = request.cuda
    if cuda and cuda not in {each.version.partition(".")[0] for each in toolkits.all_toolkits()}:
        cuda = toolkits.find_toolkit(cuda).version  # a major alone stays one
    machines = _machines(wanted, request)  # before anything is downloaded
    named = request.named
    if request.env is None:
        named = tuple(downloaded_if_pinned(each, request.platform) for each in named)
    return SlimTask(
        request=request,
        kind=_kind(request, [Path(each) for each in named]),
        named=named,
        machines=machines,
        cuda=cuda or None,
        workload=workload,
    )


def _machines(words: Machines, request: SlimRequest) -> tuple[Machine, ...] | None:
    """Looks up the machines; None for `all`, which makes sense only with what changes files that keep everything."""
    from cuwheel.machine import fleet  # noqa: PLC0415

    flat = machine_words(words)
    if not flat:
        raise UsageError(
            "no GPUs to keep were given", hint="--for h100,l40, --for this, or --for all with --recompress"
        )
    if request.compile and (_ALL in flat or request.used):
        raise UsageError(
            "--compile needs the GPUs, and no trace: one shows what was loaded before",
            hint="--for h100 --compile; then trace that, and slim it with --used",
        )
    if _ALL in flat:
        if len(flat) > 1 or not (request.recompress or request.drop_relocatable or request.strip_debug or request.cuda):
            raise UsageError("--for all keeps every architecture", hint="use it alone, with --recompress or --cuda")
        return None
    found = fleet.machines_named(flat, env=request.env)
    if unknown := [each.name for each in found if each.capability is None]:
        raise UsageError(f"the GPUs of {', '.join(unknown)} are not known", hint="give the GPUs instead: --for h100")
    return found


def _kind(request: SlimRequest, paths: Sequence[Path]) -> Kind:
    """Raises UsageError for options that are not for such a target."""
    if request.env:
        _only_for("wheels, libraries and folders", output=request.output, version=request.version)
        return "environment"
    if not paths:
        raise UsageError("nothing to slim was given", hint="give a wheel, libraries, a folder, or --env FOLDER")
    for path in paths:
        if not path.exists():
            hint = f"for an installed distribution: cuwheel slim {path} --env FOLDER" if len(path.parts) == 1 else ""
            raise UnreadableError(path, "no such file or folder", hint=hint)
    wheels = [path for path in paths if path.suffix == ".whl"]
    folders = [path for path in paths if path.is_dir()]
    if (wheels or folders) and len(paths) > 1:
        raise UsageError("one wheel or one folder at a time", hint="run cuwheel slim once for each")
    if not folders:
        _only_for("environments and folders, which can carry the mark", used=request.used or None)
    if wheels:
        _only_for("environments and folders", commit=request.commit)
        return "wheel"
    _only_for("wheels", version=request.version)
    if folders:
        return "folder"
    _only_for("environments and folders", commit=request.commit)
    if request.output is None and not request.dry_run:
        raise UsageError("single libraries are not changed in place", hint="choose where the new ones go: -o FOLDER")
    return "libraries"


def _only_for(what: str, **given: object) -> None:
    for name, value in given.items():
        if value not in (None, False):
            raise UsageError(f"--{name} is for {what}")
