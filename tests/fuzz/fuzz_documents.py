"""Profiles, locks, fleets, configurations, matrices, proofs, records, journals, settings of indexes, logs.

The first line of an input names its reader, so that one corpus serves all:
python tests/fuzz/fuzz_documents.py -max_total_time=60
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import atheris
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["cuwheel"]):
    from cuwheel import journal
    from cuwheel.building import config, pyproject
    from cuwheel.diagnose import explain
    from cuwheel.diagnose import text as log
    from cuwheel.machine import fleet_file, profile
    from cuwheel.measuring import analysis, trials_file
    from cuwheel.measuring import journal as trials_journal
    from cuwheel.network import addresses, pip_settings, uv_settings
    from cuwheel.recording import failures, matrix, reader, summary
    from cuwheel.toolchains import lock
    from cuwheel.verifying import proof

from tests.fuzz import harness, mutators
from tests.unit.compat.machines import MACHINES
from tests.unit.measuring.test_trials_file import CASE_3
from tests.unit.recording import records
from tests.unit.recording.test_matrix import CASE_4
from tests.unit.toolchains.test_lock import WHOLE
from tests.unit.verifying import proofs

if TYPE_CHECKING:
    from collections.abc import Callable

FLEET = 'schema = 1\n[[machine]]\nname = "a"\ngpu = "h100"\ncount = 4\ndriver = "580.65.06"\ncuda = "13.0"\n'
CONFIG = (
    '[project]\nname = "x"\nversion = "1"\n[build-system]\nrequires = ["setuptools"]\n[tool.cuwheel]\n'
    'for = ["h100"]\ncuda = ["13.0"]\nnaming = "local"\n[tool.cuwheel.environment]\nA = "b"\n'
    '[[tool.cuwheel.check]]\nname = "imports"\npython = "import x"\n'
)
PIP = "[global]\nindex-url = http://user:word@127.0.0.1:1/simple\nextra-index-url =\n  http://127.0.0.1:2/simple\n"
UV = '[[index]]\nname = "mine"\nurl = "http://127.0.0.1:1/simple"\ndefault = true\n[pip]\nno-index = true\n'
LOG = "nvcc fatal   : Unsupported gpu architecture 'compute_35'\nninja: build stopped: subcommand failed.\n"


class World:
    """The folder that a reader finds its file in; a victim beside it that nobody may touch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "root"
        self.victim = folder / "victim"
        self.victim.write_text("untouched")
        self.root.mkdir()
        self.record = self.root / "record"
        records.record(self.record, records.call(["nvcc", "-c", "a.cu"], status=1, err="error: x\n"))
        self.journal = journal.folder_of(self.root) / "0001"
        self.journal.mkdir(parents=True)

    def file(self, name: str, data: bytes) -> Path:
        path = self.root / name
        path.write_bytes(data)
        return path

    def read_record(self, data: bytes) -> None:
        (self.record / "calls.jsonl").write_bytes(data)
        found = reader.read(self.record)
        summary.of(found)
        for call in found.calls[:50]:
            reader.printed(found, call, 1000)
        failures.first(found)

    def read_head(self, data: bytes) -> None:
        head = (self.record / "record.json").read_bytes()
        try:
            (self.record / "record.json").write_bytes(data)
            reader.read(self.record)
        finally:
            (self.record / "record.json").write_bytes(head)

    def undo(self, data: bytes) -> None:
        self.journal.mkdir(parents=True, exist_ok=True)
        (self.journal / "journal.jsonl").write_bytes(data)
        try:
            journal.undo(self.root)
        finally:
            if self.victim.read_text() != "untouched" or {each.name for each in self.folder.iterdir()} != {
                "root",
                "victim",
            }:
                raise AssertionError("a journal reached outside its folder")


def readers(world: World) -> dict[str, Callable[[bytes], object]]:
    return {
        "profile": lambda data: profile.decode(data, "fuzzed"),
        "lock": lambda data: lock.parse(data, "fuzzed"),
        "fleet": lambda data: fleet_file.read(world.file("fleet.toml", data)),
        "config": lambda data: config.load(None, world.file("pyproject.toml", data), {}),
        "project": lambda data: (world.file("pyproject.toml", data), pyproject.read(world.root, ["pyproject.toml"])),
        "trials": lambda data: trials_file.load(world.file("TRIALS.toml", data)),
        "trials journal": lambda data: analysis.read(world.file(trials_journal.NAME, data).parent),
        "matrix": lambda data: matrix.load(world.file("matrix.toml", data)),
        "proof": lambda data: proof.parse(data, "fuzzed"),
        "calls": world.read_record,
        "head": world.read_head,
        "journal": world.undo,
        "pip": lambda data: pip_settings.read({"PIP_CONFIG_FILE": str(world.file("pip.conf", data))}),
        "uv": lambda data: (world.file("uv.toml", data), uv_settings.read({}, world.root)),
        "address": lambda data: (addresses.plain(text := data.decode(errors="replace")), addresses.file_name(text)),
        "log": lambda data: explain.explain(log.read(io.BytesIO(data))),
    }


def seeds(world: World) -> list[bytes]:
    step = journal.Step(number=1, action="create", path="a/b", before=None, after=None)
    header = journal.Header(tool="slim", targets=("h100",), root=journal.Root.of(world.root))
    written = journal.Writer(world.journal)
    written.start(header)
    written.steps((step, replace(step, number=2, action="remove", path="../victim")))
    written.state("done")
    lock.update(world.root / "seed.lock", lock.locked(WHOLE))
    profile.save(MACHINES[0].profile, world.root / "seed.json")
    found = {
        "profile": (world.root / "seed.json").read_bytes(),
        "lock": (world.root / "seed.lock").read_bytes(),
        "fleet": FLEET.encode(),
        "config": CONFIG.encode(),
        "project": CONFIG.encode(),
        "matrix": CASE_4.encode(),
        "trials": CASE_3.encode(),
        "trials journal": b'{"header":{"tool":"","file":"","fingerprint":"","axes":{"a":["b"]},"conditions":[{}],'
        b'"repeats":1,"seed":1,"mark":"","at":0,"traced":false}}\n',
        "proof": json.dumps(proofs.proof(proofs.wheel(proofs.check()))).encode(),
        "calls": (world.record / "calls.jsonl").read_bytes(),
        "head": (world.record / "record.json").read_bytes(),
        "journal": (world.journal / "journal.jsonl").read_bytes(),
        "pip": PIP.encode(),
        "uv": UV.encode(),
        "address": b"http://user:word@127.0.0.1:1/files/..%2F..%2Fa-1.0-py3-none-any.whl#sha256=00",
        "log": LOG.encode(),
    }
    return [name.encode() + b"\n" + data for name, data in found.items()]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        world = World(Path(place))
        started = seeds(world)
        table = readers(world)

        def read(data: bytes) -> None:
            name, _, body = data.partition(b"\n")
            if (reader_ := table.get(name.decode(errors="replace"))) is not None:
                reader_(body)

        harness.fuzz("documents", started, read, mutators.mutate)
