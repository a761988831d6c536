"""A user's program: every verb called with real arguments, and fields of every answer used. Checked, never run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typing_extensions import assert_type

import cuwheel
from cuwheel.building.answer import Job, Wheel
from cuwheel.changes.repair.answer import RepairedWheel
from cuwheel.verdicts.planning.plan import Job as PlanJob
from cuwheel_core.verdicts.predict import Outcome

assert_type(cuwheel.__version__, str)

found = assert_type(cuwheel.inspect("torch.whl", env=Path(".venv"), platform="manylinux_2_28_x86_64"), cuwheel.Inspect)
assert_type(found.libraries, tuple[cuwheel.Library, ...])
assert_type(found.libraries[0].size, int)
assert_type(found.to_json(), str)
assert_type(found.to_dict(), dict[str, Any])


def keep(answer: cuwheel.Answer, place: Path) -> bool:
    place.write_text(answer.to_json())
    return answer.succeeded


assert_type(keep(found, Path("answer.json")), bool)
assert_type(cuwheel.inspect(Path("libfoo.so"), entries=True, whole=True).findings[0].message, str)

names = assert_type(cuwheel.kernels("torch.whl", "gemm"), cuwheel.Kernels)
assert_type(names.pattern, str | None)

change = assert_type(cuwheel.compare("a.whl", Path("b.whl"), kernels=False), cuwheel.Compare)
assert_type(change.before, str)

health = assert_type(cuwheel.doctor(needs=["build"]), cuwheel.Doctor)
assert_type(health.succeeded, bool)

assert_type(cuwheel.gpus("h100", "l40"), cuwheel.Gpus)
assert_type(cuwheel.gpus().gpus[0].capability, cuwheel.Capability)
assert_type(cuwheel.toolkits("13.0", compiles="sm_90a"), cuwheel.Toolkits)
assert_type(cuwheel.toolkits().toolkits[0].version, str)

will = assert_type(cuwheel.check("a.whl", Path("b.whl"), on=["h100", Path("fleet.toml")]), cuwheel.Check)
assert_type(will.verdicts, tuple[cuwheel.Verdict, ...])
assert_type(will.verdicts[0].outcome, Outcome)

planned = assert_type(cuwheel.plan("h100", "l40", cuda=["13.0"], future=True), cuwheel.Plan)
assert_type(planned.jobs, tuple[PlanJob, ...])
assert_type(planned.jobs[0].archs, tuple[cuwheel.Arch, ...])

why = assert_type(cuwheel.explain("build.log", on="h100"), cuwheel.Explain)
cuwheel.explain("build.log", on=["this", "h100"])
assert_type(why.causes, tuple[cuwheel.Cause, ...])
assert_type(why.causes[0].confidence, float)

heard = assert_type(cuwheel.record(["make", "-j2"], output=Path("record")), cuwheel.Recorded)
assert_type(heard.exit_status, int)
loaded = assert_type(cuwheel.trace(["python", "train.py"], keep=Path("folder")), cuwheel.Traced)
assert_type(loaded.exit_status, int)
once_more = assert_type(cuwheel.replay("record:3", scratch=True, timeout=60.0), cuwheel.Replay)
assert_type(once_more.exit_status, int | None)

assert_type(cuwheel.repair(cuwheel.RepairRequest(["a.whl", Path("b.whl")], policy="manylinux_2_28")), cuwheel.Repair)
portable = assert_type(cuwheel.repair("a.whl", exclude=["libfoo.so"], requires=True, cuda="13.0"), cuwheel.Repair)
assert_type(portable.wheels, tuple[RepairedWheel, ...])
assert_type(portable.wheels[0].output, str | None)

assert_type(cuwheel.graft("a.whl", ["b.whl"], output=Path("out"), force=True), cuwheel.Graft)
assert_type(cuwheel.graft(cuwheel.GraftRequest("a.whl", split=True, output=Path("parts"))).outputs, tuple[str, ...])
smaller = assert_type(cuwheel.slim("a.whl", machines=["h100"], output=Path("slim")), cuwheel.Slim)
assert_type(smaller.total.bytes_after, int)
assert_type(
    cuwheel.slim(cuwheel.SlimRequest(["a.so", Path("b.so")], machines=["h100"], output=Path("slim"))), cuwheel.Slim
)
assert_type(cuwheel.slim(env=Path(".venv"), machines=["this"], commit=True).succeeded, bool)

assert_type(cuwheel.toolchain(cuwheel.ToolchainRequest("13.0", providers=["index"])), cuwheel.Toolchain)
tools = assert_type(
    cuwheel.toolchain("13.0", components=["cublas"], providers=["index"], offline=True), cuwheel.Toolchain
)
assert_type(tools.toolkits[0].root, str)

assert_type(cuwheel.cache(cuwheel.CacheRequest(env=Path(".venv"))), cuwheel.Cache)
assert_type(cuwheel.cache(prune=True, older_than=86400.0, most=5_000_000_000, dry_run=True).freed, int)

assert_type(
    cuwheel.build(cuwheel.BuildRequest(".", machines=("h100",), settings=cuwheel.BuildSettings(merge=True))),
    cuwheel.Build,
)
made = assert_type(cuwheel.build(".", machines=["h100"], cuda=["13.0"], output=Path("dist"), jobs=2), cuwheel.Build)
assert_type(made.jobs, tuple[Job, ...])
assert_type(made.jobs[0].wheel, Wheel | None)

assert_type(cuwheel.verify(cuwheel.VerifyRequest(["a.whl", "b.whl"])), cuwheel.Verify)
proof = assert_type(cuwheel.verify("a.whl", python=["3.12"], static=True, timeout=60.0), cuwheel.Verify)
assert_type(proof.wheels[0].sha256, str)

assert_type(cuwheel.publish(cuwheel.PublishRequest(["a.whl"], to=Path("index"), keep=3)), cuwheel.Publish)
served = assert_type(cuwheel.publish("a.whl", to=Path("index"), catalogue="shipped", dry_run=True), cuwheel.Publish)
assert_type(served.wheels[0].added, bool)

there = assert_type(cuwheel.find("torch>=2.5", on=["gtx 1080 ti"], budget=10**9), cuwheel.Find)
assert_type(there.candidates[0].outcome, Outcome)
assert_type(cuwheel.find(cuwheel.FindRequest("torch", indexes=["https://wheels.example.com/simple"])).downloaded, int)

put = assert_type(cuwheel.install("foo", env=Path(".venv"), allow=["torch"], dry_run=True), cuwheel.Install)
assert_type(put.changes[0].to, str | None)
assert_type(cuwheel.install(cuwheel.InstallRequest("foo")).rolled_back, bool)
settled = cuwheel.install(
    "foo", pin=["activate", "env-file=.env"], slim=True, signers=Path("signers"), fallback=["older"]
)
assert_type(settled.pins, dict[str, str])
cuwheel.install(requirements=Path("requirements.txt"), fallback=["any-version", "cpu"])
cuwheel.install(
    "foo", lock=Path("fleet.toml"), output=Path("locks"), lock_as=["pylock", "requirements"], download=Path("files")
)
assert_type(cuwheel.install(locked=Path("locks"), no_index=True, find_links=["files"]).rolled_back, bool)

assert_type(cuwheel.ci("github", source=Path(), write=False).changed, bool)
assert_type(cuwheel.catalogue(["torch"], to=Path("catalogue"), budget=10**9).succeeded, bool)

assert_type(cuwheel.cluster("tls://build01:8786").workers[0].cores, int)

# The rest of what the verbs can do.
assert_type(cuwheel.slim_undo(Path(".venv")), cuwheel.Slim)
assert_type(cuwheel.slim_commit(Path(".venv")), cuwheel.Slim)
assert_type(cuwheel.verify_fleet("a.whl", cluster="local", on=["h100"]), cuwheel.Proofs)
assert_type(cuwheel.verify_pack("a.whl", to=Path("kit.pyz"), python="3.12"), cuwheel.Verify)
assert_type(cuwheel.verify_pack(cuwheel.PackRequest(["a.whl"], to=Path("kit.pyz"))), cuwheel.Verify)
assert_type(cuwheel.verify_read(Path("proof.json"), "a.whl"), cuwheel.Proof)
h100 = cuwheel.Machine(name="ours", capability=cuwheel.Capability.parse("9.0"))
assert_type(cuwheel.read_list("90;100", on=[h100], spelling="cmake", cuda=["13.0"]), cuwheel.Plan)
assert_type(cuwheel.plan_sizes(planned, "a.whl"), cuwheel.Plan)
assert_type(cuwheel.causes(), cuwheel.Explain)
assert_type(cuwheel.build_editable(cuwheel.BuildRequest("."), Path(".venv")), cuwheel.Install)
assert_type(cuwheel.install_undo(Path(".venv")), cuwheel.Install)
assert_type(cuwheel.publish_check("https://wheels.example.com", signers=Path("signers")), cuwheel.Publish)
assert_type(cuwheel.publish_upload("a.whl", url="https://upload.example.com/", dry_run=True), cuwheel.Publish)
assert_type(cuwheel.catalogue_list(on=[h100], refine=cuwheel.Refinement(driver="580.65.06")), cuwheel.Catalogue)
assert_type(cuwheel.ci_check(cuwheel.CiRequest("github")), cuwheel.Ci)
assert_type(cuwheel.ci_matrix(Path("plan.json"), windows=True), cuwheel.Ci)
assert_type(cuwheel.ci_watch("torch", built="2.5"), cuwheel.Ci)
assert_type(cuwheel.replay_print("record:3"), cuwheel.Replay)
assert_type(cuwheel.replay_list("record"), cuwheel.Replay)
assert_type(cuwheel.replay_diff("record:3", "other:3", most=20), cuwheel.Replay)
assert_type(cuwheel.read_trace(Path("folder")), cuwheel.Traced)
cuwheel.save_trace(loaded, output=Path("trace.json"))
assert_type(cuwheel.cluster_init(), cuwheel.Certificates)
assert_type(cuwheel.cluster_scheduler("tls://build01:8786"), cuwheel.Cluster)
assert_type(cuwheel.cluster_worker("tls://build01:8786", cuwheel.WorkerOptions(cores=2)), cuwheel.Cluster)
assert_type(cuwheel.cluster_send("tls://build01:8786", Path("cuwheel.whl")), cuwheel.Cluster)
assert_type(cuwheel.cluster_stop("tls://build01:8786"), cuwheel.Cluster)
assert_type(cuwheel.toolchain_env("13.0"), cuwheel.Toolchain)
assert_type(cuwheel.toolchain_fetch(cuwheel.ToolchainRequest("13.0"), to=Path("archives")), cuwheel.Toolchain)
assert_type(cuwheel.toolchain_list(), cuwheel.Toolchain)
assert_type(cuwheel.toolchain_remove("13.0", downloads=True), cuwheel.Toolchain)
assert_type(cuwheel.toolchain_verify("13.0"), cuwheel.Toolchain)

sort_of: cuwheel.BuildSettings = {"naming": "local", "plan": {"native": True}, "guard": "inject"}
cuwheel.build(".", machines=["h100", Path("fleet.toml")], settings=sort_of)
try:
    cuwheel.doctor(on="gpu07.json")
except cuwheel.UnknownNameError as error:
    assert_type(error.suggestions, tuple[str, ...])
except cuwheel.CuwheelError as error:
    assert_type(error.exit_code, int)
    assert_type(error.hint, str)


def worst(findings: tuple[cuwheel.Finding, ...]) -> str:
    """Values that people pass on have names too."""
    return findings[0].rule
