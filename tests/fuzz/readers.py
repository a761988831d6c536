"""What is fuzzed: each reader, how many inputs it should have seen, and the modules whose lines they should reach.

Nothing of cuwheel is imported here: the fuzzer watches what is imported after it has read this.
"""

from __future__ import annotations

from typing import NamedTuple

MILLION, MANY = 1_000_000, 100_000


class Reader(NamedTuple):
    """`module`: of tests.fuzz, whose HARNESSES has it. `covers`: below cuwheel; a package means all of it."""

    name: str
    group: str
    module: str
    goal: int
    covers: tuple[str, ...]


def _binary(name: str, *covers: str) -> Reader:
    return Reader(name, "binary", "tests.fuzz.binary_readers", MILLION, covers)


def _document(name: str, *covers: str) -> Reader:
    return Reader(name, "documents", "tests.fuzz.documents", MANY, covers)


def _wheels(name: str, module: str, *covers: str) -> Reader:
    return Reader(name, "wheels", module, MANY, covers)


READERS = {
    each.name: each
    for each in (
        _binary("inflate", "wheel.inflate"),
        _binary("ptx", "inspection.loose", "inspection.cubin"),
        _binary("cubin", "inspection.cubin", "inspection.elf"),
        _binary("zip", "wheel.zip_reader", "buffer"),
        _binary("payload", "inspection.payload", "zstd"),
        _binary("archive", "inspection.archive", "inspection.library"),
        _binary("fatbin", "inspection.fatbin", "inspection.library"),
        _binary("elf", *(f"inspection.{name}" for name in ("elf", "dynamic", "library", "relocations", "wrappers"))),
        _binary("pe", "inspection.pe", "inspection.library"),
        _document("profile", "machine.profile"),
        _document("lock", "toolchains.lock"),
        _document("fleet", "machine.fleet_file"),
        _document("config", "building.config", "building.rules"),
        _document("project", "building.pyproject"),
        _document("trials", "measuring.trials_file"),
        _document("trials-journal", "measuring.journal", "measuring.analysis"),
        _document("matrix", "recording.matrix"),
        _document("proof", "verifying.proof"),
        _document("calls", "recording.reader", "recording.summary", "recording.failures"),
        _document("head", "recording.reader"),
        _document("journal", "journal"),
        _document("pip", "network.pip_settings"),
        _document("uv", "network.uv_settings"),
        _document("address", "network.addresses"),
        _document("log", "diagnose"),
        _document("facts", "inspection.wheel_facts"),
        _document("page-json", "delivery.candidates", "delivery.simple_api"),
        _document("page-html", "delivery.candidates", "delivery.simple_api"),
        _document("own-index", "delivery.index_folder", "delivery.simple_api"),
        _document("provenance", "delivery.attestations"),
        _document("catalogue", "delivery.catalogue"),
        _document("install-lock", "delivery.install_lock"),
        _document("requirements", "delivery.requirements_file"),
        _document("trace-events", "tracing.events", "tracing.attribution", "tracing.reasons", "tracing.code"),
        _document("trace", "tracing.workload"),
        _document("description", "inspection.description"),
        _document("variants", "wheel.variant"),
        _document("metadata", "wheel.metadata", "wheel.headers", "wheel.requirements"),
        _document("record", "wheel.metadata", "wheel.record"),
        _document("python", "inspection.syntax", "inspection.imports", "inspection.loads"),
        _document("workflow", "workflows.yaml_file", "workflows.blocks"),
        _document("redist", "toolchains.providers.redist"),
        _document("cuda-header", "toolchains.stub"),
        _wheels("toolkit-archive", "tests.fuzz.documents", "toolchains.unpack"),
        _wheels("source-archive", "tests.fuzz.documents", "building.trees"),
        _wheels("wheel", "tests.fuzz.binary_readers", "inspection.survey", "inspection.source", "wheel.zip_reader"),
        _wheels("slim", "tests.fuzz.slim", "binary"),
        _wheels(
            *(
                "rewrite",
                "tests.fuzz.rewrite",
                "cuwheel.changes.slim.wheel",
                "cuwheel.changes.stamp.stamp",
                "cuwheel.changes.repair.deciding",
            ),
            *(
                "cuwheel.changes.repair.contents",
                "cuwheel.wheel.edit",
                "cuwheel.wheel.file",
                "cuwheel.wheel.record",
                "cuwheel.wheel.file",
                "cuwheel.wheel.zip_writer",
            ),
        ),
    )
}
