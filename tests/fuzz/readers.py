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
        _binary("inflate", "cuwheel_core.wheel.zip_reader"),
        _binary("ptx", "cuwheel_core.device_code.loose", "cuwheel_core.device_code.cubin"),
        _binary("cubin", "cuwheel_core.device_code.cubin", "cuwheel_core.device_code.elf"),
        _binary("zip", "cuwheel_core.wheel.zip_reader", "cuwheel_core.support.buffer"),
        _binary("payload", "cuwheel_core.device_code.fatbin", "cuwheel_core.support.buffer"),
        _binary("archive", "cuwheel_core.device_code.elf", "cuwheel_core.device_code.library"),
        _binary("fatbin", "cuwheel_core.device_code.fatbin", "cuwheel_core.device_code.library"),
        _binary(
            "elf",
            "cuwheel_core.device_code.elf",
            "cuwheel_core.device_code.dynamic",
            "cuwheel_core.device_code.library",
            "cuwheel_core.device_code.dynamic",
            "cuwheel_core.device_code.registration",
        ),
        _binary("pe", "cuwheel_core.device_code.pe", "cuwheel_core.device_code.library"),
        _document("profile", "cuwheel.machine.profile"),
        _document("lock", "cuwheel.toolchains.lock"),
        _document("fleet", "cuwheel.machine.fleet"),
        _document("config", "cuwheel.building.config", "cuwheel.building.tables"),
        _document("project", "cuwheel.building.sources"),
        _document("trials", "cuwheel_lab.measuring.trials_file"),
        _document("trials-journal", "cuwheel_lab.measuring.journal", "cuwheel_lab.measuring.analysis"),
        _document("matrix", "cuwheel_lab.measuring.matrix"),
        _document("proof", "cuwheel.proving.proof"),
        _document(
            "calls",
            "cuwheel.building.recording.reader",
            "cuwheel.building.recording.calls",
            "cuwheel.building.recording.calls",
        ),
        _document("head", "cuwheel.building.recording.reader"),
        _document("journal", "cuwheel.wheel.journal_file"),
        _document("pip", "cuwheel.network.settings"),
        _document("uv", "cuwheel.network.settings"),
        _document("address", "cuwheel.network.addresses"),
        _document("log", "cuwheel.diagnosis"),
        _document("facts", "cuwheel.device_code.wheel_facts"),
        _document("page-json", "cuwheel.delivery.candidates", "cuwheel.delivery.simple_api"),
        _document("page-html", "cuwheel.delivery.candidates", "cuwheel.delivery.simple_html"),
        _document("own-index", "cuwheel.delivery.index_folder", "cuwheel.delivery.simple_api"),
        _document("provenance", "cuwheel.delivery.signatures"),
        _document("catalogue", "cuwheel.delivery.catalogue"),
        _document("pylock", "cuwheel.delivery.lock_files"),
        _document("requirements", "cuwheel.delivery.requirements_file"),
        _document(
            "trace-events",
            "cuwheel.tracing.events",
            "cuwheel.tracing.attribution",
            "cuwheel.tracing.reasons",
            "cuwheel.tracing.reasons",
        ),
        _document("trace", "cuwheel.tracing.traced"),
        _document("description", "cuwheel.device_code.description"),
        _document("variants", "cuwheel.wheel.variant"),
        _document("metadata", "cuwheel_core.wheel.metadata", "cuwheel.wheel.edit", "cuwheel.wheel.requirements"),
        _document("record", "cuwheel_core.wheel.metadata", "cuwheel.wheel.record"),
        _document(
            "python",
            "cuwheel.device_code.python_loads",
            "cuwheel.device_code.python_loads",
            "cuwheel.device_code.python_loads",
        ),
        _document("workflow", "cuwheel.delivery.workflows.problems", "cuwheel.delivery.workflows.rendering"),
        _document("redist", "cuwheel.toolchains.providers.redist"),
        _document("cuda-header", "cuwheel.toolchains.driver_stub"),
        _wheels("toolkit-archive", "tests.fuzz.documents", "cuwheel.toolchains.archives"),
        _wheels("source-archive", "tests.fuzz.documents", "cuwheel.building.sources"),
        _wheels(
            "wheel",
            "tests.fuzz.binary_readers",
            "cuwheel.device_code.survey",
            "cuwheel.device_code.source",
            "cuwheel_core.wheel.zip_reader",
        ),
        _wheels("slim", "tests.fuzz.slim", "cuwheel.changes.binaries"),
        _wheels(
            *(
                "rewrite",
                "tests.fuzz.rewrite",
                "cuwheel.changes.slim.act",
                "cuwheel.changes.stamp.stamp",
                "cuwheel.changes.repair.decide",
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
