"""The table of what releases of torch export, and the job that adds releases to it."""

from __future__ import annotations

import pytest
import zstandard
from facts import torch_symbols as job

from cuwheel.facts import torch
from cuwheel.facts.torch import SymbolTable

pytestmark = pytest.mark.unit

SMALL = SymbolTable("2026-11-16", ("2.8.0", "2.9.1"), {"_ZN3c101aEv": 0b11, "_ZN3c101bEv": 0b10})


def test_what_is_written_is_read() -> None:
    assert torch.parse_symbols(job.encoded(SMALL)) == SMALL
    turned = SMALL._replace(holders=dict(reversed(list(SMALL.holders.items()))))
    assert job.encoded(SMALL) == job.encoded(turned)


def test_another_schema_is_not_read() -> None:
    data = zstandard.ZstdCompressor().compress(b"cuwheel.torch-symbols/2 2027-01-01\n2.8.0\n=1\nname")
    with pytest.raises(ValueError, match="torch-symbols/2"):
        torch.parse_symbols(data)


def test_a_release_is_added_in_its_place() -> None:
    found = job.joined(SMALL, "2.8.1", ["_ZN3c101bEv", "_ZN3c101cEv"], "2026-12-01")
    assert found.releases == ("2.8.1", "2.9.1")
    assert found.holders == {"_ZN3c101aEv": 0b10, "_ZN3c101bEv": 0b11, "_ZN3c101cEv": 0b01}
    older = job.joined(SMALL, "2.7.1", ["_ZN3c101aEv"], "2026-12-01")
    assert (older.releases, older.holders["_ZN3c101aEv"]) == (("2.7.1", "2.8.0", "2.9.1"), 0b111)
    newer = job.joined(SMALL, "2.10.0", [], "2026-12-01")
    assert newer.releases == ("2.8.0", "2.9.1", "2.10.0")


def test_names_that_only_torch_can_take_are_left_out() -> None:
    assert job.can_be_taken("_ZN2at6native5emptyEv")
    assert not job.can_be_taken("_ZN2at6native12_GLOBAL__N_15emptyEv")


def test_the_table_that_ships() -> None:
    table = torch.own_symbols()
    assert {"2.0.1", "2.8.0", "2.15.0"} <= set(table.releases)
    renamed = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb"  # torch 2.14 gave it other parameters
    assert torch.releases_exporting([renamed])[-1].startswith("2.13")
    assert torch.releases_exporting([renamed, "_ZN3c10no_such_thing"]) == ()
    assert torch.exported_symbols("2.15.0", [renamed]) == frozenset()
    assert not torch.has_new_strings("2.6.0")
    assert torch.has_new_strings("2.7.1")
