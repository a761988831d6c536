"""A user's program: every verb called with real arguments, and fields of every answer used. Checked, never run."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import assert_type

import cuwheel
from cuwheel.device_code.libraries import Library
from cuwheel.diagnosis.diagnosis import Cause
from cuwheel.facts.arch import Arch, Capability
from cuwheel.report.bench import Bench
from cuwheel.report.build import Build, Job, Wheel
from cuwheel.report.cache import Cache
from cuwheel.report.check import Check
from cuwheel.report.compare import Compare
from cuwheel.report.doctor import Doctor
from cuwheel.report.explain import Explain
from cuwheel.report.find import Find
from cuwheel.report.gpus import Gpus
from cuwheel.report.graft import Graft
from cuwheel.report.inspect import Inspect
from cuwheel.report.install import Install
from cuwheel.report.kernels import Kernels
from cuwheel.report.plan import Plan
from cuwheel.report.publish import Publish
from cuwheel.report.record import Recorded
from cuwheel.report.repair import Repair, RepairedWheel
from cuwheel.report.replay import Replay
from cuwheel.report.slim import Slim
from cuwheel.report.toolchain import Toolchain
from cuwheel.report.toolkits import Toolkits
from cuwheel.report.trace import Traced
from cuwheel.report.trials import Trials
from cuwheel.report.verify import Verify
from cuwheel.verdicts.planning.plan import Job as PlanJob
from cuwheel.verdicts.predict import Outcome
from cuwheel.verdicts.verdict import Verdict

assert_type(cuwheel.__version__, str)

found = assert_type(cuwheel.inspect("torch.whl", env=Path(".venv"), platform="manylinux_2_28_x86_64"), Inspect)
assert_type(found.libraries, tuple[Library, ...])
assert_type(found.libraries[0].size, int)
assert_type(cuwheel.inspect(Path("libfoo.so"), entries=True, whole=True).findings[0].message, str)

names = assert_type(cuwheel.kernels("torch.whl", "gemm"), Kernels)
assert_type(names.pattern, str | None)

change = assert_type(cuwheel.compare("a.whl", Path("b.whl"), kernels=False), Compare)
assert_type(change.before, str)

health = assert_type(cuwheel.doctor(needs=["build"]), Doctor)
assert_type(health.succeeded, bool)

assert_type(cuwheel.gpus("h100", "l40"), Gpus)
assert_type(cuwheel.gpus().gpus[0].capability, Capability)
assert_type(cuwheel.toolkits("13.0", compiles="sm_90a"), Toolkits)
assert_type(cuwheel.toolkits().toolkits[0].version, str)

will = assert_type(cuwheel.check("a.whl", Path("b.whl"), on=["h100", Path("fleet.toml")]), Check)
assert_type(will.verdicts, tuple[Verdict, ...])
assert_type(will.verdicts[0].outcome, Outcome)

planned = assert_type(cuwheel.plan("h100", "l40", cuda=["13.0"], future=True), Plan)
assert_type(planned.jobs, tuple[PlanJob, ...])
assert_type(planned.jobs[0].archs, tuple[Arch, ...])

why = assert_type(cuwheel.explain("build.log", gpu="h100"), Explain)
assert_type(why.causes, tuple[Cause, ...])
assert_type(why.causes[0].confidence, float)

heard = assert_type(cuwheel.record(["make", "-j2"], output=Path("record")), Recorded)
assert_type(heard.exit_status, int)
loaded = assert_type(cuwheel.trace(["python", "train.py"], keep=Path("folder")), Traced)
assert_type(loaded.exit_status, int)
once_more = assert_type(cuwheel.replay("record:3", scratch=True, timeout=60.0), Replay)
assert_type(once_more.exit_status, int | None)

assert_type(cuwheel.repair(cuwheel.RepairRequest(["a.whl", Path("b.whl")], policy="manylinux_2_28")), Repair)
portable = assert_type(cuwheel.repair("a.whl", exclude=["libfoo.so"], requires=True, cuda="13.0"), Repair)
assert_type(portable.wheels, tuple[RepairedWheel, ...])
assert_type(portable.wheels[0].output, str | None)

assert_type(cuwheel.graft("a.whl", ["b.whl"], output=Path("out"), force=True), Graft)
assert_type(cuwheel.graft(cuwheel.GraftRequest("a.whl", split=True, output=Path("parts"))).outputs, tuple[str, ...])
smaller = assert_type(cuwheel.slim("a.whl", machines=["h100"], output=Path("slim"), level=9), Slim)
assert_type(smaller.total.bytes_after, int)
assert_type(cuwheel.slim(cuwheel.SlimRequest(["a.so", Path("b.so")], machines=["h100"], output=Path("slim"))), Slim)
assert_type(cuwheel.slim(env=Path(".venv"), machines=["this"], commit=True).succeeded, bool)

assert_type(cuwheel.toolchain(cuwheel.ToolchainRequest("13.0", providers=["index"])), Toolchain)
tools = assert_type(cuwheel.toolchain("13.0", components=["cublas"], providers=["index"], offline=True), Toolchain)
assert_type(tools.toolkits[0].root, str)

assert_type(cuwheel.cache(cuwheel.CacheRequest(env=Path(".venv"))), Cache)
assert_type(cuwheel.cache(prune=True, older_than=86400.0, most=5_000_000_000, dry_run=True).freed, int)

assert_type(cuwheel.build(cuwheel.BuildRequest(".", machines=("h100",), settings={"merge": True})), Build)
made = assert_type(cuwheel.build(".", machines=["h100"], cuda=["13.0"], output=Path("dist"), jobs=2), Build)
assert_type(made.jobs, tuple[Job, ...])
assert_type(made.jobs[0].wheel, Wheel | None)

assert_type(cuwheel.verify(cuwheel.VerifyRequest(["a.whl", "b.whl"])), Verify)
proof = assert_type(cuwheel.verify("a.whl", python=["3.12"], static=True, timeout=60.0), Verify)
assert_type(proof.wheels[0].sha256, str)

assert_type(cuwheel.publish(cuwheel.PublishRequest(["a.whl"], to=Path("index"), keep=3)), Publish)
served = assert_type(cuwheel.publish("a.whl", to=Path("index"), catalogue="shipped", dry_run=True), Publish)
assert_type(served.wheels[0].added, bool)

there = assert_type(cuwheel.find("torch>=2.5", on=["gtx 1080 ti"], budget=10**9), Find)
assert_type(there.candidates[0].outcome, Outcome)
assert_type(cuwheel.find(cuwheel.FindRequest("torch", indexes=["https://wheels.example.com/simple"])).downloaded, int)

put = assert_type(cuwheel.install("foo", env=Path(".venv"), allow=["torch"], dry_run=True), Install)
assert_type(put.changes[0].to, str | None)
assert_type(cuwheel.install(cuwheel.InstallRequest("foo")).rolled_back, bool)
settled = cuwheel.install("foo", pin=["activate", "env-file=.env"], slim=True, signers=Path("signers"), no_cpu=True)
assert_type(settled.pins, dict[str, str])
cuwheel.install(requirements=Path("requirements.txt"), gpus=[0], wheel_only=True, any_version=True)
cuwheel.install("foo", lock=Path("fleet.toml"), output=Path("install.lock"), download=Path("files"))
assert_type(cuwheel.install(locked=Path("install.lock"), no_index=True, find_links=["files"]).rolled_back, bool)

assert_type(cuwheel.ci("github", source=Path(), write=False).changed, bool)
assert_type(cuwheel.catalogue(["torch"], to=Path("catalogue"), budget=10**9).succeeded, bool)

tried = assert_type(cuwheel.trials(Path("TRIALS.toml"), resume=True, only={"start": "cold"}), Trials)
assert_type(tried.groups[0].interval, tuple[float, float])

assert_type(cuwheel.cluster("tls://build01:8786").workers[0].cores, int)

speed = assert_type(cuwheel.bench("work.py:call", against=["DTYPE=float16"], at_once=[1, 2, 4]), Bench)
assert_type(speed.levels[0].p99, float)
assert_type(cuwheel.bench(cuwheel.BenchRequest(["./solver"], by="processes")).line, str)
