"""Every function of the laboratory, called as a user does; `./run lint` checks it with mypy."""

from pathlib import Path

from typing_extensions import assert_type

import cuwheel
import cuwheel_lab

tried = assert_type(cuwheel_lab.trials(Path("TRIALS.toml"), resume=True, only={"start": "cold"}), cuwheel_lab.Trials)
assert_type(tried.groups[0].interval, tuple[float, float])
speed = assert_type(cuwheel_lab.bench("work.py:call", against=["DTYPE=float16"], at_once=[1, 2, 4]), cuwheel_lab.Bench)
assert_type(speed.levels[0].p99, float)
assert_type(cuwheel_lab.bench(cuwheel_lab.BenchRequest(["./solver"], by="processes")).line, str)
assert_type(cuwheel_lab.matrix("matrix.toml", options=cuwheel.RecordOptions(phases=False)), cuwheel_lab.Matrix)
assert_type(cuwheel_lab.trials_report(Path("journal")), cuwheel_lab.Trials)
span = cuwheel_lab.Span(good="1.0", bad="2.0", package="foo")
odds = cuwheel_lab.Odds(error=0.01)
assert_type(cuwheel_lab.trials_bisect(Path("TRIALS.toml"), span, odds=odds), cuwheel_lab.Bisection)
assert_type(cuwheel_lab.trials_service(Path("TRIALS.toml"), kind="systemd"), cuwheel_lab.ServiceChange)
