"""What cuwheel reads from others beside binaries: configurations, locks, pages of indexes, records, traces, logs."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import shutil
import tarfile
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building import config, sources
from cuwheel.building.recording import calls, reader
from cuwheel.delivery import (
    candidates,
    catalogue,
    cataloguing,
    index_folder,
    judging,
    lock_files,
    requirements_file,
    signatures,
    simple_api,
    simple_html,
)
from cuwheel.delivery.workflows import problems, rendering
from cuwheel.device_code import description, python_loads, source, wheel_facts
from cuwheel.diagnosis import explain
from cuwheel.diagnosis import text as log
from cuwheel.facts import toolchain_parts
from cuwheel.machine import fleet, profile
from cuwheel.network import addresses, settings
from cuwheel.proving import proof
from cuwheel.support import codec
from cuwheel.toolchains import archives, driver_stub, lock
from cuwheel.toolchains.providers import redist
from cuwheel.toolchains.toolchain import Archive
from cuwheel.tracing import attribution, events, traced
from cuwheel.wheel import edit, journal, journal_file, requirements, variant
from cuwheel.wheel import record as record_file
from cuwheel.wheel.file import WheelFile
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts.arch import Capability
from cuwheel_core.support import buffer
from cuwheel_core.wheel import metadata
from cuwheel_lab.measuring import analysis, matrix, trials_file
from cuwheel_lab.measuring import journal as trials_journal
from tests.fixtures import manifest, small_wheel
from tests.fixtures.lab_files import CASE_3, CASE_4
from tests.fuzz import mutators
from tests.fuzz.harness import Harness
from tests.fuzz.readers import READERS
from tests.unit.building.recording import records
from tests.unit.delivery.test_attestations import attestation
from tests.unit.proving import proofs
from tests.unit.toolchains.test_lock import WHOLE
from tests.unit.tracing import test_attribution, test_workload
from tests.unit.verdicts.machines import MACHINES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cuwheel.toolchains.toolchain import ArchiveKind

FLEET = '[[machine]]\nname = "a"\ngpu = "h100"\ncount = 4\ndriver = "580.65.06"\n'
CONFIG = (
    '[project]\nname = "x"\nversion = "1"\n[build-system]\nrequires = ["setuptools"]\n[tool.cuwheel]\n'
    'for = ["h100"]\ncuda = ["13.0"]\nnaming = "local"\n[tool.cuwheel.environment]\nA = "b"\n'
)
PIP = "[global]\nindex-url = http://user:word@127.0.0.1:1/simple\nextra-index-url =\n  http://127.0.0.1:2/simple\n"
UV = '[[index]]\nname = "mine"\nurl = "http://127.0.0.1:1/simple"\ndefault = true\n[pip]\nno-index = true\n'
LOG = "nvcc fatal   : Unsupported gpu architecture 'compute_35'\nninja: build stopped: subcommand failed.\n"


TRIALS_JOURNAL = (
    b'{"header":{"tool":"","file":"","fingerprint":"","axes":{"a":["b"]},"conditions":[{}],'
    b'"repeats":1,"seed":1,"mark":"","at":0,"traced":false}}\n'
)
_WHEEL = "pkg-1.0-py3-none-linux_x86_64.whl"
SUMS = b"0" * 64 + b"  simple/pkg/index.html\n# serial 7\n"
CATALOGUE = json.dumps(
    {
        "schema": "cuwheel.catalogue-list/1",
        "date": "2026-11-16",
        "wheels": [{"file": _WHEEL, "name": "pkg", "version": "1.0", "sha256": "0" * 64}],
    }
).encode()
INSTALL_LOCK = {
    "wanted": ["pkg"],
    "parts": [
        {
            "machines": ["a"],
            "capability": "9.0",
            "os": "linux",
            "cpu": "x86_64",
            "python": "3.12",
            "glibc": "2.28",
            "driver": "580.65.06",
            "packages": {"pkg": "native"},
            "fallback": None,
            "pins": {"A": "b"},
            "files": [
                {
                    "name": "pkg",
                    "version": "1.0",
                    "file": _WHEEL,
                    "url": f"https://127.0.0.1/{_WHEEL}",
                    "sha256": "0" * 64,
                }
            ],
        }
    ],
}
REQUIREMENTS = (
    b"--index-url http://127.0.0.1:1/simple\n--extra-index-url http://127.0.0.1:2\n--pre\n-f links\n"
    b"numpy>=1 ; python_version > '3.8' --hash=sha256:00 # why\n"
    b"pkg[a,b] @ http://127.0.0.1:1/pkg-1.0-py3-none-any.whl\ntorch \\\n ==2.5\n"
)
_TRACED = (
    *(
        test_attribution.PROCESS,
        test_attribution.H200,
        {**test_attribution.PTX, "handle": "a", "ptx_isa": " 9.3", "jit": 8},
    ),
    {"event": "handle", "time": 21, "api": "cuModuleGetFunction", "handle": "c", "of": "a", "name": "_Z1fv"},
    {"event": "launch", "time": 22, "kernel": "c", "grid": [1, 1, 1], "block": [1, 1, 1]},
    {"event": "failure", "time": 30, "api": "cuModuleGetFunction", "error": 222, "library": "a", "name": "_Z1fv"},
    {"event": "failure", "time": 31, "api": "cuLaunchKernel", "error": 701, "kernel": "c", "block": [2048, 1, 1]},
    {"event": "load", "time": 40, "kind": "cubin", "head": "7f454c46" + "00" * 60, "error": 209, "handle": "d"},
    {"event": "log", "time": 41, "log": "ptxas fatal"},
    {"event": "end", "time": 50, "launches": 3},
)
EVENTS = "".join(json.dumps(each) + "\n" for each in _TRACED).encode()
VARIANTS = json.dumps(
    {
        "default-priorities": {"namespace": ["nvidia"]},
        "providers": {"nvidia": {"requires": ["nvidia-variant-provider"], "plugin-api": "x"}},
        "variants": {"cu130": {"nvidia": {"cuda_version_lower_bound": ["13.0"]}}, "null": {}},
    }
).encode()
METADATA = (
    b"Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n"
    b"Requires-Dist: numpy>=1; extra == 'a'\n  and python_version > '3'\n"
    b"Requires-Python: >=3.8\nTag: py3-none-any\nRoot-Is-Purelib: false\n\nText.\n"
)
PYTHON = (
    b"import os, ctypes\nfrom . import other, _b\ntry:\n"
    b"    ctypes.CDLL(os.path.join(os.path.dirname(__file__), 'liba.so'))\n"
    b"except OSError:\n    pass\ndef load():\n    with contextlib.suppress(ImportError):\n        import pkg._b\n"
    b"    return ctypes.cdll.LoadLibrary('liba.so')\nif True:\n    load()\n"
)
WORKFLOW = rendering.seal_blocks(
    "on: push\njobs:\n  build:\n    steps:\n"
    + rendering.begin_mark("build", 4)
    + "\n    - run: a\n"
    + rendering.end_mark("build", 4)
    + "\n"
)
REDIST = {
    key: {
        "name": key,
        "version": "13.0.1",
        "linux-x86_64": {"relative_path": "a/b.tar.xz", "sha256": "0" * 64, "size": "5"},
    }
    for row in toolchain_parts.all_components()
    for key in row.redist
}


ANY_MACHINE = (
    fleet.Machine(name="a", capability=Capability.parse("9.0"), python="3.12", os="linux", cpu="x86_64", glibc="2.28"),
)


class World:
    """The folder that a reader finds its file in; a victim beside it that nobody may touch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "root"
        self.victim = folder / "victim"
        self.victim.write_text("untouched")
        self.root.mkdir()
        self.record = self.root / "record"
        records.record(self.record, records.call(["nvcc", "-c", "a.cu"], status=1, err="error: x\n"))
        self.journal = journal_file.folder_of(self.root) / "0001"
        self.journal.mkdir(parents=True)
        self.events = self.root / "events"
        self.events.mkdir()
        self.index = index_folder.IndexFolder(self.root / "index")

    def wheel(self) -> Path:
        files: dict[str, str | bytes] = {"pkg/__init__.py": "x = 1\n", "nvidia/cu13/bin/nvcc": b"x"}
        return small_wheel.Wheel(name="pkg", tag="py3-none-linux_x86_64", files=files).write(self.root)

    def wheel_of_libraries(self) -> Path:
        bodies: dict[str, str | bytes] = {
            f"lib/{each.path.name}": each.path.read_bytes()
            for each in manifest.load()
            if each.path.name in ("ptx-130.so", "rdc-130.so", "windows-130.dll", "bare-130.cubin")
        }
        return small_wheel.Wheel(name="lib", tag="py3-none-linux_x86_64", files=bodies).write(self.root)

    def file(self, name: str, data: bytes) -> Path:
        path = self.root / name
        path.write_bytes(data)
        return path

    def read_record(self, data: bytes) -> None:
        (self.record / "calls.jsonl").write_bytes(data)
        found = reader.read_record(self.record)
        calls.summarize(found)
        for call in found.calls[:50]:
            reader.read_printed(found, call, 1000)
        calls.first_failure(found)

    def read_head(self, data: bytes) -> None:
        head = (self.record / "record.json").read_bytes()
        try:
            (self.record / "record.json").write_bytes(data)
            reader.read_record(self.record)
        finally:
            (self.record / "record.json").write_bytes(head)

    def undo(self, data: bytes) -> None:
        self.journal.mkdir(parents=True, exist_ok=True)
        (self.journal / "journal.jsonl").write_bytes(data)
        try:
            journal.undo(self.root)
        finally:
            self.untouched()

    def read_events(self, data: bytes) -> None:
        (self.events / "trace-7-1.jsonl").write_bytes(data)
        attribution.attributed(events.read_events(self.events), succeeded=False)

    def read_own_index(self, data: bytes) -> None:
        """The same bytes as its list, its page, its sums and its journal."""
        for name in (
            f"{index_folder.list_page()}.json",
            f"{index_folder.project_page('pkg')}.json",
            index_folder.JOURNAL,
        ):
            path = self.index.path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        self.index.journal()
        sums = index_folder.parse_sums(data)
        index_folder.serial(data)
        index_folder.changed_sums(data, dict.fromkeys(list(sums)[:2]), sound=False)
        for act in (self.index.listed, lambda: self.index.project("pkg")):
            with contextlib.suppress(CuwheelError):
                act()

    def unpack(self, data: bytes) -> None:
        """The first byte says what it claims to be."""
        kinds: tuple[ArchiveKind, ...] = ("wheel", "tar", "deb")
        kind = kinds[data[0] % len(kinds)] if data else "tar"
        place = self.root / "toolkit"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        archive = Archive(kind=kind, name="x", version="1", file="x", sha256="0" * 64)
        try:
            archives.unpack(archive, self.file("archive", data[1:]), place)
        except OSError as error:  # the store says so; of damage it must not be
            if error.errno == errno.EINVAL:
                raise
        finally:
            self.untouched()

    def unpack_source(self, data: bytes) -> None:
        cache = self.root / "sources"
        shutil.rmtree(cache, ignore_errors=True)
        try:
            sources.unpack_source(self.file("archive", data[1:]), cache)
        finally:
            self.untouched()

    def untouched(self) -> None:
        if self.victim.read_text() != "untouched" or {each.name for each in self.folder.iterdir()} != {
            "root",
            "victim",
        }:
            raise AssertionError("it reached outside its folder")


def _read_metadata(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    found = metadata.from_texts(text, text)
    metadata.too_many(found.requires)
    for each in found.requires[:50]:
        if (parsed := requirements.parse(each)) is not None:
            requirements.holds(parsed)
    edit.changed_metadata(data, name=("pkg", "other"), version="2", requires=("numpy",))
    edit.tagged_wheel(data, ("py3-none-any",), impure=True)


def _read_record(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    digest = record_file.digest_of_bytes(b"x")
    rows = [row.path for row in metadata.record_rows(text)]
    list(metadata.recorded_files(text))
    again = record_file.changed(text, dict.fromkeys(rows[:2], digest), removed=rows[2:3], added={"new": digest})
    list(metadata.record_rows(again))


def _read_python(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    texts = source.Texts(names=("pkg/__init__.py", "pkg/other.py"), read=lambda _name: text)
    found = python_loads.libraries_that_import_loads(texts, "pkg", ("pkg/liba.so", "pkg/_b.abi3.so"))
    python_loads.places_that_load(texts, ("pkg/liba.so", "pkg/_b.abi3.so"), found.files)


def _read_workflow(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    rendering.find_blocks(text)
    rendering.merge_blocks(text, WORKFLOW)
    problems.load_yaml(text, "fuzzed")


def _read_page(kind: str) -> Callable[[bytes], object]:
    def read(data: bytes) -> None:
        with contextlib.suppress(CuwheelError):
            for each in candidates.listed_files(data, kind, "http://127.0.0.1:1/simple/pkg/"):
                if found := candidates._candidate(each, "pkg", "http://127.0.0.1:1/simple"):
                    judging.judge_by_name(found, ANY_MACHINE)
        if kind == "text/html":
            text = data.decode("utf-8", "replace")
            links = simple_html.Links(text, "page")
            links.projects()
            links.files()
        else:
            simple_api.parse_page(data, simple_api.Project, "fuzzed")

    return read


def _read_catalogue(data: bytes) -> None:
    with contextlib.suppress(CuwheelError):
        catalogue.unpacked(data, "fuzzed")
    sorted(catalogue.parse(data, "fuzzed").wheels, key=cataloguing._version)


def _read_facts(data: bytes) -> None:
    wheel_facts.survey(wheel_facts.parse(data, "fuzzed"))


def _stub_of_header(data: bytes) -> object:
    return driver_stub.library(driver_stub.functions(data.decode("utf-8", "replace")), "x86_64")


def _read_lock_of_toolkits(world: World) -> Callable[[bytes], object]:
    folder = world.root / "redist"
    folder.mkdir()

    def read(data: bytes) -> None:
        (folder / "redistrib_13.0.2.json").write_bytes(data)
        manifest = redist._manifest(str(folder), "redistrib_13.0.2.json", offline=True)
        for row in toolchain_parts.all_components():
            with contextlib.suppress(CuwheelError):
                list(redist._archives(row, manifest, "linux-x86_64", str(folder)))

    return read


def readers(world: World) -> dict[str, Callable[[bytes], object]]:
    return {
        "profile": lambda data: profile.decode(data, "fuzzed"),
        "lock": lambda data: lock.parse(data, "fuzzed"),
        "fleet": lambda data: fleet.read_fleet_file(world.file("fleet.toml", data)),
        "config": lambda data: config.find_configuration(None, world.file("pyproject.toml", data), {}).table,
        "project": lambda data: (
            world.file("pyproject.toml", data),
            sources.read_project(world.root, ["pyproject.toml"]),
        ),
        "trials": lambda data: trials_file.load_trials(world.file("TRIALS.toml", data)),
        "trials-journal": lambda data: analysis.analyse(world.file(trials_journal.NAME, data).parent),
        "matrix": lambda data: matrix.load_matrix(world.file("matrix.toml", data)),
        "proof": lambda data: proof.parse_proof(data, "fuzzed"),
        "calls": world.read_record,
        "head": world.read_head,
        "journal": world.undo,
        "pip": lambda data: settings.read_pip_settings({"PIP_CONFIG_FILE": str(world.file("pip.conf", data))}),
        "uv": lambda data: (world.file("uv.toml", data), settings.read_uv_settings({}, world.root)),
        "address": lambda data: (addresses.plain(text := data.decode(errors="replace")), addresses.file_name(text)),
        "log": lambda data: explain.explain(log.read_log(io.BytesIO(data))),
        "facts": _read_facts,
        "page-json": _read_page("application/vnd.pypi.simple.v1+json"),
        "page-html": _read_page("text/html"),
        "own-index": world.read_own_index,
        "provenance": lambda data: signatures.problem_of_provenance(data, _WHEEL, "0" * 64),
        "catalogue": _read_catalogue,
        "pylock": lambda data: lock_files.read_lock(world.file("pylock.a.toml", data)),
        "requirements": lambda data: requirements_file.read_requirements(
            world.file("requirements.txt", data), "3.12.1"
        ),
        "trace-events": world.read_events,
        "trace": lambda data: traced.read_workload([world.file("trace.json", data)]),
        "description": lambda data: list(description.words(description.parse(data, "fuzzed"))),
        "variants": lambda data: variant.encoded(variant.parse(data, "fuzzed")),
        "metadata": _read_metadata,
        "record": _read_record,
        "python": _read_python,
        "workflow": _read_workflow,
        "redist": _read_lock_of_toolkits(world),
        "cuda-header": _stub_of_header,
        "toolkit-archive": world.unpack,
        "source-archive": world.unpack_source,
    }


def _facts(wheel: Path) -> bytes:
    with WheelFile(wheel) as opened:
        return wheel_facts.encoded(wheel_facts.of_wheel(opened, sha256="0" * 64))


def _pylock(world: World) -> bytes:
    (written,) = lock_files.write_locks(world.root, codec.convert(INSTALL_LOCK, lock_files.InstallLock))
    return written.read_bytes()


def seeds(world: World) -> dict[str, list[bytes]]:
    step = journal_file.Step(number=1, action="create", path="a/b", before=None, after=None)
    header = journal_file.Header(tool="slim", targets=("h100",), root=journal_file.Root.of(world.root))
    written = journal_file.Writer(world.journal)
    written.start(header)
    written.steps((step, replace(step, number=2, action="remove", path="a")))
    written.state("done")
    lock.update(world.root / "seed.lock", lock.locked(WHOLE))
    profile.save(MACHINES[0].profile, world.root / "seed.json")
    wheel, libraries = world.wheel(), world.wheel_of_libraries()
    facts = [_facts(wheel), _facts(libraries)]
    provenance = {
        "version": 1,
        "attestation_bundles": [{"publisher": {"kind": "GitHub"}, "attestations": [attestation(wheel)]}],
    }
    file = simple_api.PublishedFile(
        filename=_WHEEL, url=f"../../files/{_WHEEL}", hashes=simple_api.Hashes(sha256="0" * 64), size=5, yanked="bad"
    )
    page = simple_api.Project(name="pkg", versions=("1.0",), files=(file,))
    listed = simple_api.ProjectList(schema=simple_api.SCHEMA, projects=(simple_api.ListedProject("pkg", ("cu130",)),))
    return {
        "profile": [(world.root / "seed.json").read_bytes()],
        "lock": [(world.root / "seed.lock").read_bytes()],
        "fleet": [FLEET.encode()],
        "config": [CONFIG.encode()],
        "project": [CONFIG.encode()],
        "matrix": [CASE_4.encode()],
        "trials": [CASE_3.encode()],
        "trials-journal": [TRIALS_JOURNAL],
        "proof": [json.dumps(proofs.proof(proofs.wheel(proofs.check()))).encode()],
        "calls": [(world.record / "calls.jsonl").read_bytes()],
        "head": [(world.record / "record.json").read_bytes()],
        "journal": [whole := (world.journal / "journal.jsonl").read_bytes(), whole.replace(b'"a"', b'"../victim"')],
        "pip": [PIP.encode()],
        "uv": [UV.encode()],
        "address": [b"http://user:word@127.0.0.1:1/files/..%2F..%2Fa-1.0-py3-none-any.whl#sha256=00"],
        "log": [LOG.encode()],
        "facts": facts,
        "page-json": [simple_api.encode_page(page)],
        "page-html": [simple_html.html_page(page), simple_html.html_page(listed)],
        "own-index": [
            simple_api.encode_page(page),
            simple_api.encode_page(listed),
            SUMS,
            b'{"projects":["pkg"],"files":["a"]}',
        ],
        "provenance": [json.dumps(provenance).encode()],
        "catalogue": [CATALOGUE, *map(buffer.zstd_compressed, facts)],
        "pylock": [_pylock(world)],
        "requirements": [REQUIREMENTS, b"-r requirements.txt\n-e .\n-c there.txt\nx @ file:///a.whl\n"],
        "trace-events": [EVENTS],
        "trace": [test_workload.written(world.root).read_bytes()],
        "description": [description.encoded(description.Description(cuda="13.0", archs=("sm_90",)))],
        "variants": [VARIANTS],
        "metadata": [METADATA],
        "record": [b'pkg/__init__.py,sha256=00,3\n"pkg/a,b.py",,\npkg-1.0.dist-info/RECORD,,\n'],
        "python": [PYTHON],
        "workflow": [WORKFLOW.encode()],
        "redist": [json.dumps(REDIST).encode()],
        "cuda-header": [b"CUresult CUDAAPI cuInit(unsigned int);\n#define cuCtxCreate cuCtxCreate_v2\n"],
        "toolkit-archive": list(_archives(wheel)),
        "source-archive": list(_archives(wheel)),
    }


def _archives(wheel: Path) -> Iterator[bytes]:
    yield b"\0" + wheel.read_bytes()
    for mode, kind in (("w", tarfile.REGTYPE), ("w:gz", tarfile.SYMTYPE), ("w:xz", tarfile.LNKTYPE)):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode=mode) as made:  # type: ignore[call-overload]
            info = tarfile.TarInfo("top/bin/nvcc")
            info.size = 4
            made.addfile(info, io.BytesIO(b"nvcc"))
            link = tarfile.TarInfo("top/lib/again")
            link.type, link.linkname = kind, "top/bin/nvcc"
            made.addfile(link)
        yield b"\1" + stream.getvalue()
        data = stream.getvalue()
        suffix = {"w": b"", "w:gz": b".gz", "w:xz": b".xz"}[mode]
        head = (b"data.tar" + suffix).ljust(48) + str(len(data)).encode().ljust(10) + b"`\n"
        yield b"\2!<arch>\n" + head + data


def _harness(name: str) -> Callable[[Path], Harness]:
    def make(folder: Path) -> Harness:
        world = World(folder)
        return Harness(seeds(world)[name], readers(world)[name], mutators.mutate)

    return make


HARNESSES = {each.name: _harness(each.name) for each in READERS.values() if each.module == __name__}
