"""What the campaigns interrupt, starve and race: one entry for each verb that writes.

A job is run on a copy of what `prepare` made. After a clean run everything in the folder is as `finished`; after an
interrupted one every file is as before or as after, and `recover` brings it to the finished state.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cuwheel.delivery import index_folder
from cuwheel.network import venvs
from tests.campaign.ground import CACHE
from tests.fixtures import compiled, manifest, small_wheel, wheels
from tests.integration import build_projects, build_world, toolchain_site
from tests.unit.changes.slim.packages import FOO, fixture, make_environment, make_wheel
from tests.unit.delivery import published

_SERVERS = contextlib.ExitStack()
atexit.register(_SERVERS.close)  # later its threads are gone, and whoever waits for them never ends
Command = Callable[[Path], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    name: str
    prepare: Callable[[Path], object]
    command: Command
    begin: Command | None = None  # run first, undisturbed: what it leaves is how things are before
    recover: Command | None = None  # None: the same command again
    recover_if: Callable[[Path], bool] = lambda _folder: True
    varies: tuple[str, ...] = ()  # beginnings of paths whose bytes differ from run to run (times)
    resumed: tuple[str, ...] = ()  # ends of names of files that an interrupted run leaves for the next to go on with
    private: tuple[str, ...] = (".cuwheel",)  # beginnings of names that belong to a run under way
    cache: str = CACHE  # another folder where what a cache holds is part of the result
    whole: Callable[[Path], Sequence[str]] = lambda _folder: ()  # what is wrong with the whole, at whatever moment
    # What is promised of an interrupted run before anything is run again: a journal where something is changed, and
    # that undoing it brings everything back; of one that fails by itself, that it has put everything back.
    journal: Callable[[Path], bool] | None = None
    undo: Command | None = None
    puts_back: bool = True
    durable: tuple[str, ...] = ()  # beginnings of paths that a crash of the machine leaves as before or as after
    synced_journal: str = ""  # the one by which it does
    together: Literal["all", "one"] | None = None  # who succeeds of several at once; the others say that one is at work


def _folder_of_libraries(folder: Path) -> None:
    for name in ("all-124.so", "names-130.so", "rdc-130.so"):
        (folder / "lib").mkdir(exist_ok=True)
        shutil.copy(manifest.HERE / "bin" / name, folder / "lib" / f"lib{name}")


def _configured(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[project]\nname = "foo"\n[tool.cuwheel]\nfor = ["h100"]\ncuda = ["13.0"]\n')


def _journal_left(folder: Path) -> bool:
    from cuwheel.wheel import journal_file

    return journal_file.folder_of(folder / "env").is_dir()


def _kept_install(folder: Path) -> bool:
    from cuwheel.wheel import journal_file

    return any(journal_file.folder_of(folder / "env", "install").glob("*/journal.jsonl"))


def _plain_wheel(folder: Path) -> Path:
    library = (manifest.HERE / "bin" / "plain-130.so").read_bytes()
    made = small_wheel.Wheel(
        name="plain",
        tag="py3-none-linux_x86_64",
        files={"plain/__init__.py": "", "plain/libplain.so": library},
    )
    return made.write(folder)


def _script(folder: Path) -> None:
    (folder / "build.sh").write_text("cp build.sh built.txt\n")


def _warmed_script(folder: Path) -> None:
    """With the shim compiled, which takes seconds; `record-beside` begins without."""
    _script(folder)
    compiled.our_own(folder / CACHE)


def _mirror(folder: Path) -> None:
    """Of NVIDIA's archives, with a toolkit that weighs nothing."""
    toolchain_site.write_site(folder / "site", "13.0.2", toolchain_site.tiny_parts("13.0.88"))


def _served_mirror(folder: Path) -> None:
    """The same behind a server of this process, which lives as long as it does."""
    _mirror(folder)
    url = _SERVERS.enter_context(toolchain_site.serving(folder / "site", toolchain_site.Behaviour()))
    (folder / "url").write_text(url)


def _install(folder: Path, *words: str, place: str | None = None) -> Sequence[str]:
    options = ("--provider", f"redist={place or folder / 'site'}")
    return ("toolchain", "install", "13.0.2", *options, "--host-compiler", "none", *words, "--quiet", "--json")


def _project(folder: Path) -> None:
    """Whose backend packs a library that was compiled before: what is struck is cuwheel, not nvcc."""
    _mirror(folder)
    source = build_projects.prebuilt(folder / "source")
    shutil.copy(manifest.HERE / "bin" / "none-130.so", source / "kernel130.so")
    compiled.our_own(folder / CACHE)


def _slim_environment(folder: Path) -> Sequence[str]:
    return ("slim", "--env", str(folder / "env"), "--for", "h100", "--cuda", "12.8", "--quiet", "--json")


def _undo_slim(folder: Path) -> Sequence[str]:
    return ("slim", "--env", str(folder / "env"), "--undo", "--quiet", "--json")


def _environment_with_ptx(folder: Path) -> None:
    """With ptxas in the cache, so that what is struck is cuwheel."""
    make_environment(folder / "env", {("foo", "1.0"): {"foo/__init__.py": b"", "foo/libfoo.so": fixture("ptx-130.so")}})
    _link_ptxas(folder)


def _link_ptxas(folder: Path) -> None:
    toolkit = build_world.toolkit("13.4")
    place = folder / CACHE / "toolchains"
    place.mkdir(parents=True)
    (place / toolkit.name).symlink_to(toolkit)


def _compile_environment(folder: Path) -> Sequence[str]:
    return ("graft", "--env", str(folder / "env"), "--compile", "sm_90,sm_100", "--quiet", "--json")


def _undo_install(folder: Path) -> Sequence[str]:
    return ("install", "--undo", "--env", str(folder / "env"), "--quiet", "--json")


def _index(folder: Path) -> None:
    """With a project and a channel that go, one that gets another wheel, and one that stays."""
    os.environ["SOURCE_DATE_EPOCH"] = "1767225600"  # pages have the time of the run in them
    old = [
        published.wheel(folder / "old"),
        published.cuda_wheel(folder / "old", name="gone", library="plain-124.so"),
        published.wheel(folder / "old", name="other"),
    ]
    published.cuda_wheel(folder / "new", "2.0"), published.wheel(folder / "new", name="fresh")
    published.catalogue_of(folder / "catalogue", old[1:2])
    words = ("publish", *map(str, old), "--to", str(folder / "index"), "--quiet", "--json")
    subprocess.run([sys.executable, "-m", "cuwheel", *words], check=True, timeout=120, stdout=subprocess.DEVNULL)


def _environment(folder: Path) -> None:
    """With nothing in it yet, and two releases of a package to choose from."""
    venvs.make(folder / "env", venvs.find_python())
    for version in ("1.0", "2.0"):
        published.wheel(folder / "dist", version)


def _install_package(folder: Path, *wanted: str, machine: Sequence[str] = ("--on", "h100")) -> Sequence[str]:
    place = ("--no-index", "--find-links", str(folder / "dist"), "--env", str(folder / "env"))
    return ("install", *wanted, *place, *machine, "--quiet", "--json")


def _several_packages(folder: Path) -> None:
    _environment(folder)
    published.cuda_wheel(folder / "dist", name="bar")
    (folder / "requirements.txt").write_text("bar\nfoo==1.0\n")


def _package_with_setting(folder: Path) -> None:
    """It has a library for each CUDA version, and torch is for another one than any of them."""
    _environment(folder)
    library = (manifest.HERE / "bin" / "names-124.so").read_bytes()
    files: dict[str, str | bytes] = {"bitsandbytes/__init__.py": ""}
    files |= {f"bitsandbytes/libbitsandbytes_cuda{cuda}.so": library for cuda in ("122", "121")}
    made = small_wheel.Wheel(name="bitsandbytes", version="0.45.0", tag="py3-none-linux_x86_64", files=files)
    made.write(folder / "dist")


def _install_with_setting(folder: Path) -> Sequence[str]:
    known = ("--on", "h100", "--torch-cuda", "12.4", "--driver", "535.54.03")
    pins = ("--pin", "activate", "--pin", f"env-file={folder / 'settings.env'}")
    return _install_package(folder, "bitsandbytes", *pins, machine=known)


def _fleet(folder: Path) -> None:
    for version in ("1.0", "2.0"):
        published.cuda_wheel(folder / "dist", version)
    machines = "".join(
        f'[[machine]]\nname = "{name}"\ngpu = "{name}"\ndriver = "580.65.06"\npython = "3.12"\nos = "linux"\n'
        'cpu = "x86_64"\nglibc = "2.36"\n'
        for name in ("h100", "a100")
    )
    (folder / "fleet.toml").write_text(machines)


def _lock_for_fleet(folder: Path) -> Sequence[str]:
    place = ("--no-index", "--find-links", str(folder / "dist"))
    to = ("--lock-for", str(folder / "fleet.toml"), "-o", str(folder / "locks"), "--download", str(folder / "files"))
    return ("install", "foo", *place, *to, "--quiet", "--json")


def _listed(folder: Path) -> None:
    """An index of two releases, and a catalogue that has one of them."""
    words = ("publish", published.cuda_wheel(folder / "old"), published.cuda_wheel(folder / "old", "2.0"))
    where = ("--to", folder / "index", "--quiet", "--json")
    subprocess.run(
        [sys.executable, "-m", "cuwheel", *words, *where], check=True, timeout=120, stdout=subprocess.DEVNULL
    )


def _collect(folder: Path, *names: str) -> Sequence[str]:
    place = ("--to", str(folder / "facts"), "--index", str(folder / "index" / "simple"))
    return ("catalogue", "add", *names, *place, "--quiet", "--json")


_STORE = (".cuwheel", ".making-", ".locks")


def times_of_uv(*packages: str) -> tuple[str, ...]:
    """Of the wheel, which uv notes; RECORD has the hash of that."""
    folder = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    return tuple(
        f"{top}{folder}/{package}.dist-info/{name}"
        for top in ("", "env/")
        for package in packages
        for name in ("RECORD", "uv_cache.json")
    )


_TIMES_OF_UV = times_of_uv("foo-1.0", "foo-2.0", "bar-1.0", "bitsandbytes-0.45.0")


def _several_architectures(folder: Path) -> Path:
    library = (manifest.HERE / "bin" / "many-130.so").read_bytes()
    return wheels.wheel(folder / "in", {"pkg/__init__.py": b"", "pkg/x.so": library})


def _parts(folder: Path) -> None:
    """A wheel for each architecture of one."""
    words = ("graft", "--split", str(_several_architectures(folder)), "-o", str(folder / "parts"), "--quiet", "--json")
    subprocess.run([sys.executable, "-m", "cuwheel", *words], check=True, timeout=120, stdout=subprocess.DEVNULL)


JOBS = (
    Job(
        name="graft",
        prepare=_parts,
        command=lambda folder: (
            *("graft", *map(str, sorted((folder / "parts").glob("*.whl")))),
            *("-o", str(folder / "out"), "--quiet", "--json"),
        ),
        together="all",
    ),
    Job(
        name="graft-split",
        prepare=_several_architectures,
        command=lambda folder: (
            *("graft", "--split", str(next((folder / "in").glob("*.whl")))),
            *("-o", str(folder / "out"), "--quiet", "--json"),
        ),
        together="all",
    ),
    Job(
        name="trials",
        prepare=lambda folder: (folder / "TRIALS.toml").write_text("command = 'true'\nrepeats = 2\nseed = 1\n"),
        command=lambda folder: (
            *("lab", "trials", "run", str(folder / "TRIALS.toml"), "-o", str(folder / "out")),
            *("--resume", "--quiet", "--json"),
        ),
        varies=("out/journal.jsonl", "out/done"),  # times
        resumed=("journal.jsonl",),
    ),
    Job(
        name="slim-wheel",
        prepare=lambda folder: make_wheel(folder / "in", FOO),
        command=lambda folder: (
            *("slim", str(next((folder / "in").glob("*.whl"))), "--for", "h100"),
            *("-o", str(folder / "out"), "--quiet", "--json"),
        ),
        together="all",
    ),
    Job(
        name="slim-environment",
        prepare=lambda folder: make_environment(folder / "env"),
        command=_slim_environment,
        journal=_journal_left,
        undo=_undo_slim,
        durable=("env/lib",),
        together="one",
    ),
    Job(
        name="graft-compile",
        prepare=_environment_with_ptx,
        command=_compile_environment,
        journal=_journal_left,
        undo=_undo_slim,
        durable=("env/lib",),
        together="one",
    ),
    Job(
        name="slim-compile",
        prepare=_environment_with_ptx,
        command=lambda folder: (
            "slim",
            "--env",
            str(folder / "env"),
            "--for",
            "b200",
            "--compile",
            "--quiet",
            "--json",
        ),
        journal=_journal_left,
        undo=_undo_slim,
        durable=("env/lib",),
        together="one",
    ),
    Job(
        name="slim-folder",
        prepare=_folder_of_libraries,
        command=lambda folder: ("slim", str(folder / "lib"), "--for", "h100", "--quiet", "--json"),
        together="one",
    ),
    Job(
        name="slim-undo",
        prepare=lambda folder: make_environment(folder / "env"),
        begin=_slim_environment,
        command=_undo_slim,
        journal=_journal_left,
        recover_if=_journal_left,
    ),
    Job(
        name="slim-commit",
        prepare=lambda folder: make_environment(folder / "env"),
        begin=_slim_environment,
        command=lambda folder: ("slim", "--env", str(folder / "env"), "--commit", "--quiet", "--json"),
        recover_if=_journal_left,
    ),
    Job(
        name="repair",
        prepare=_plain_wheel,
        command=lambda folder: (
            *("repair", str(next(folder.glob("*.whl")))),
            *("-o", str(folder / "wheelhouse"), "--quiet", "--json"),
        ),
        together="all",
    ),
    Job(
        name="kit",
        prepare=_plain_wheel,
        command=lambda folder: (
            *("verify", str(next(folder.glob("*.whl")))),
            *("--pack", str(folder / "kit.pyz"), "--quiet", "--json"),
        ),
        together="all",
    ),
    Job(
        name="profile",
        prepare=lambda _folder: None,
        command=lambda folder: ("doctor", "--save", str(folder / "machine.json"), "--quiet", "--json"),
        varies=("machine.json",),
        together="all",
    ),
    Job(
        name="page",
        prepare=_plain_wheel,
        command=lambda folder: (
            *("inspect", str(next(folder.glob("*.whl")))),
            *("--html", str(folder / "report.html"), "--quiet", "--json"),
        ),
        together="all",
    ),
    Job(
        name="ci",
        prepare=_configured,
        command=lambda folder: ("ci", "cibuildwheel", str(folder), "--write", "--quiet", "--json"),
        together="all",
    ),
    Job(
        name="publish",
        prepare=_index,
        command=lambda folder: (
            *("publish", str(folder / "new"), "--to", str(folder / "index"), "--quiet", "--json"),
            *("--catalogue", str(folder / "catalogue")),
        ),
        whole=lambda folder: published.problems(folder / "index"),
        durable=("index/",),
        synced_journal=f"index/{index_folder.JOURNAL}",
        together="all",
    ),
    Job(
        name="publish-remove",
        prepare=_index,
        command=lambda folder: (
            *("publish", "--to", str(folder / "index"), "--remove", "gone==1.0", "--keep", "1", "--quiet", "--json"),
        ),
        whole=lambda folder: published.problems(folder / "index"),
        durable=("index/",),
        synced_journal=f"index/{index_folder.JOURNAL}",
        recover=lambda folder: ("publish", "--to", str(folder / "index"), "--keep", "9", "--quiet", "--json"),
    ),
    Job(
        name="record",
        puts_back=False,  # what was recorded until then is kept
        prepare=_warmed_script,
        command=lambda folder: ("record", "-o", str(folder / "rec"), "--quiet", "--", "sh", "build.sh"),
        # A record that was begun is not taken for another one's place: its next try is beside it.
        recover=lambda folder: ("record", "-o", str(folder / "another"), "--quiet", "--", "sh", "build.sh"),
        varies=("rec", "another"),
    ),
    Job(
        name="record-beside",
        prepare=_script,
        command=lambda _folder: ("record", "--quiet", "--", "sh", "build.sh"),
        varies=("cuwheel-record",),
        together="all",
    ),
    Job(
        name="trace",
        prepare=_warmed_script,
        command=lambda folder: ("trace", "-o", str(folder / "trace.json"), "--quiet", "--", "sh", "build.sh"),
        varies=("trace.json",),
        together="all",
    ),
    Job(
        name="install",
        prepare=_environment,
        begin=lambda folder: _install_package(folder, "foo==1.0"),
        command=lambda folder: _install_package(folder, "foo"),
        varies=_TIMES_OF_UV,
        journal=_kept_install,
        undo=_undo_install,
    ),
    Job(
        name="install-requirements",
        prepare=_several_packages,
        command=lambda folder: _install_package(folder, "-r", str(folder / "requirements.txt")),
        varies=_TIMES_OF_UV,
        journal=_kept_install,
        undo=_undo_install,
    ),
    Job(
        name="install-pin",
        prepare=_package_with_setting,
        command=_install_with_setting,
        varies=_TIMES_OF_UV,
        journal=_kept_install,
        undo=_undo_install,
    ),
    Job(
        name="install-lock",
        puts_back=False,  # files that were brought stay, for the next try
        prepare=_fleet,
        command=_lock_for_fleet,
    ),
    Job(
        name="install-undo",
        prepare=_environment,
        begin=lambda folder: _install_package(folder, "foo"),
        command=_undo_install,
        journal=_kept_install,
        recover_if=_kept_install,
        varies=_TIMES_OF_UV,
    ),
    Job(
        name="catalogue",
        puts_back=False,  # what is whole stays, for the next try
        prepare=_listed,
        begin=lambda folder: _collect(folder, "foo==1.0"),
        command=lambda folder: _collect(folder, "foo"),
        private=(".cuwheel", "lock"),
        together="all",
    ),
    Job(
        name="toolchain",
        puts_back=False,  # what is whole stays, for the next try
        prepare=_mirror,
        command=_install,
        private=_STORE,
        cache="cache",
        together="all",
    ),
    Job(
        name="toolchain-download",
        puts_back=False,  # what is whole stays, for the next try
        prepare=_served_mirror,
        command=lambda folder: _install(folder, place=(folder / "url").read_text()),
        resumed=(".part",),
        private=_STORE,
        cache="cache",
        together="all",
    ),
    Job(
        name="toolchain-lock",
        puts_back=False,  # what is whole stays, for the next try
        prepare=_mirror,
        command=lambda folder: _install(folder, "--lock", str(folder / "cuwheel.lock")),
        private=_STORE,
        cache="cache",
        together="all",
    ),
    Job(
        name="toolchain-fetch",
        puts_back=False,  # what is whole stays, for the next try
        prepare=_mirror,
        command=lambda folder: (
            *("toolchain", "fetch", "13.0.2", "--provider", f"redist={folder / 'site'}"),
            *("--to", str(folder / "kit"), "--quiet", "--json"),
        ),
        private=_STORE,
        cache="cache",
        together="all",
    ),
    Job(
        name="toolchain-remove",
        prepare=_mirror,
        begin=_install,
        command=lambda _folder: ("toolchain", "remove", "all", "--quiet", "--json"),
        private=_STORE,
        cache="cache",
    ),
    Job(
        name="build",
        puts_back=False,  # what is whole stays, for the next try
        prepare=_project,
        command=lambda folder: (
            *("build", str(folder / "source"), "--provider", f"redist={folder / 'site'}"),
            *("--lock", str(folder / "cuwheel.lock"), "-o", str(folder / "dist"), "--offline", "--quiet", "--json"),
        ),
        varies=("dist/build.",),
        together="all",
    ),
)


def by_name(names: Sequence[str]) -> tuple[Job, ...]:
    unknown = set(names) - {job.name for job in JOBS}
    if unknown:
        sys.exit(f"there is no job {', '.join(sorted(unknown))}; there are {', '.join(job.name for job in JOBS)}")
    return tuple(job for job in JOBS if not names or job.name in names)
