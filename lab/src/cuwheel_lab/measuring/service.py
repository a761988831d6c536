"""What resumes trials after each start of the machine, until they are done: a unit of systemd, or a line of cron."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec.structs import replace

from cuwheel.errors import ToolError, UsageError
from cuwheel.support import files, process
from cuwheel.support.answer import Answer
from cuwheel_core.errors import UnreadableError
from cuwheel_lab.measuring import journal

ServiceKind: TypeAlias = Literal["systemd", "systemd-user", "cron"]
_LIMIT_S = 60.0
_SYSTEM = Path("/etc/systemd/system")
_RUNNING = Path("/run/systemd/system")  # there where systemd runs the machine
_UNIT = """\
# Written by cuwheel for {file}; remove it with: cuwheel lab trials remove-service
[Unit]
Description=cuwheel lab trials of {name}
ConditionPathExists=!{done}

[Service]
Type=exec
WorkingDirectory={folder}
ExecStart={command}
# A trial that fails is a result, not a fault of the service.
SuccessExitStatus=1

[Install]
WantedBy={target}
"""


class ServiceChange(Answer, frozen=True, kw_only=True):
    """`path`: the unit's file; None for cron. `text`: what is written; `commands`: what is run then.

    `done`: it was written, or removed.
    """

    schema: Literal["cuwheel.service/1"] = "cuwheel.service/1"
    kind: ServiceKind
    name: str
    path: str | None
    text: str
    commands: tuple[tuple[str, ...], ...]
    removing: bool
    done: bool
    dry_run: bool
    note: str = ""

    @property
    def succeeded(self) -> bool:
        return self.done or self.dry_run


def change_service(file: Path, folder: Path, kind: ServiceKind | None, *, remove: bool, dry_run: bool) -> ServiceChange:
    """Write what resumes the trials of a file whose journal is in a folder, or remove it."""
    planned = plan_service(file, folder, kind, remove=remove, dry_run=dry_run)
    if dry_run:
        return planned
    if remove:
        return replace(planned, done=_removed(planned))
    _install(planned)
    return replace(planned, done=True)


def plan_service(
    file: Path, folder: Path, kind: ServiceKind | None = None, *, remove: bool = False, dry_run: bool = False
) -> ServiceChange:
    chosen = kind or default_kind()
    user = chosen == "systemd-user"
    control = ("systemctl", "--user") if user else ("systemctl",)
    name = f"cuwheel-trials-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:10]}"
    words = (
        sys.executable,
        "-m",
        "cuwheel",
        "lab",
        "trials",
        "run",
        str(file),
        "-o",
        str(folder),
        "--resume",
        "--quiet",
    )
    done = folder / journal.DONE
    if chosen == "cron":
        path = None
        text = f"@reboot [ -e {shlex.quote(str(done))} ] || {shlex.join(words)} # {name}".replace("%", r"\%") + "\n"
        commands: tuple[tuple[str, ...], ...] = (("crontab", "-"),)
    else:
        own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"
        path = str((own if user else _SYSTEM) / f"{name}.service")
        text = _UNIT.format(
            file=file,
            name=_escaped(file.name),
            done=_escaped(str(done)),
            folder=_escaped(str(file.parent)),
            command=" ".join(_word(each) for each in words),
            target="default.target" if user else "multi-user.target",
        )
        commands = ((*control, "daemon-reload"), (*control, "enable", f"{name}.service"))
    return ServiceChange(
        kind=chosen,
        name=name,
        path=path,
        text=text,
        commands=commands,
        removing=remove,
        done=False,
        dry_run=dry_run,
        note="a user's services start at boot only with: loginctl enable-linger" if user else "",
    )


def default_kind() -> ServiceKind:
    """systemd's where it runs the machine, for everybody if we are the administrator; else cron."""
    if sys.platform == "win32":
        raise UsageError(
            "a service that resumes trials is for Linux: a unit of systemd, or a line of cron",
            hint="Task Scheduler starts a command with Windows: cuwheel lab trials run FILE --resume",
        )
    if not _RUNNING.is_dir() or shutil.which("systemctl") is None:
        return "cron"
    return "systemd" if os.geteuid() == 0 else "systemd-user"


def _escaped(text: str) -> str:
    """A path or a word as a unit must have it: `%` begins a specifier."""
    return text.replace("%", "%%")


def _word(text: str) -> str:
    if all(each.isalnum() or each in "-_./=:,+@%" for each in text):
        return _escaped(text).replace("$", "$$")
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{_escaped(quoted)}"'


def _install(service: ServiceChange) -> None:
    """In place of an earlier one."""
    if service.path is None:
        _write_crontab([*_without(service.name), service.text])
        return
    path = Path(service.path)
    with files.errors_of(path, "choose --cron, or run it as root"):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, service.text)
    for command in service.commands:
        process.run(command, timeout=_LIMIT_S)


def _removed(service: ServiceChange) -> bool:
    """Whether there was one."""
    if service.path is None:
        before = _crontab()
        kept = _without(service.name)
        if len(kept) < len(before):
            _write_crontab(kept)
        return len(kept) < len(before)
    path = Path(service.path)
    if not path.is_file():
        return False
    control = service.commands[0][:-1]
    process.run([*control, "disable", f"{service.name}.service"], timeout=_LIMIT_S, check=False)
    try:
        path.unlink()
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error
    process.run([*control, "daemon-reload"], timeout=_LIMIT_S, check=False)
    return True


def _crontab() -> list[str]:
    """The user's lines. `crontab -l` fails where there are none."""
    done = process.run(["crontab", "-l"], timeout=_LIMIT_S, check=False)
    if done.status and "no crontab" not in done.stderr.lower():
        raise ToolError(["crontab"], f"failed with status {done.status}", done.stderr, hint="apt install cron")
    return done.stdout.splitlines(keepends=True) if done.status == 0 else []


def _without(name: str) -> list[str]:
    return [line for line in _crontab() if not line.rstrip().endswith(f"# {name}")]


def _write_crontab(lines: list[str]) -> None:
    import tempfile  # noqa: PLC0415 - for this alone

    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "crontab")
        path.write_text("".join(lines), encoding="utf-8")
        process.run(["crontab", str(path)], timeout=_LIMIT_S)
