from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel_lab.measuring import gpu_samples
from cuwheel_lab.measuring.gpu_samples import Gpu, Sample, Sampler

if TYPE_CHECKING:
    from pathlib import Path

LINES = b"""\
{"state": "ok", "driver": "580.1", "gpus": ["A", "B"]}
{"at": 1.0, "gpus": [{"memory": 5, "clock": 300, "temperature": 40}, {"memory": 1}]}
{"at": 2.0, "gpus": [{"memory": 9, "clock": 1900, "temperature": 55, "use": 80, "power": 500.5}, {}]}
{"at": 3.0, "gpus": [{"memory": 6, "clock": 1800, "power_limit": 700.0, "performance_state": 0}, {"use": 3}]}
{"at": 4.0, "gpus": [{"memory": 99}]}
{"at": 5.0, "gp
"""


def test_the_samples_of_a_time_and_the_one_before_it(tmp_path: Path) -> None:
    path = tmp_path / "samples"
    path.write_bytes(LINES)
    sampler = Sampler(path, gpu_samples._first(path))
    assert (sampler.names, sampler.driver) == (("A", "B"), "580.1")
    found = sampler.between(1.5, 3.5)
    assert [each.at for each in found] == [1.0, 2.0, 3.0]
    one, other = gpu_samples.use_of_gpus(sampler.names, found)
    assert (one.memory_before, one.memory_most, one.memory_after) == (5, 9, 6)
    assert (one.clock_least, one.clock_most, one.temperature_most) == (300, 1900, 55)
    assert (one.use_most, one.power_most, one.power_limit, one.performance_state) == (80, 500.5, 700.0, 0)
    assert (other.memory_before, other.use_most, other.clock_most) == (1, 3, None)


def test_no_gpu_is_no_sample(tmp_path: Path) -> None:
    path = tmp_path / "samples"
    path.write_bytes(b'{"state": "NVMLError_LibraryNotFound", "gpus": []}\n')
    sampler = Sampler(path, gpu_samples._first(path))
    assert sampler.names == ()
    assert sampler.between(0.0, 9.0) == ()


def test_a_gpu_that_is_gone_has_no_figures() -> None:
    (used,) = gpu_samples.use_of_gpus(("A",), [Sample(at=1.0, gpus=())])
    assert (used.memory_most, used.clock_least) == (None, None)
    assert Gpu() == Gpu(memory=None)
