"""The verbs that run programs: recorded, traced, on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuwheel.building.recording.command import Recorded
    from cuwheel.building.recording.replays import Replay
    from cuwheel.building.recording.shims import RecordOptions
    from cuwheel.clusters.roster import Cluster
    from cuwheel.clusters.service import WorkerOptions
    from cuwheel.network.cluster_access import Certificates
    from cuwheel.support.quoting import Shell
    from cuwheel.tracing.traced import Traced


def record(
    command: Sequence[str],
    *,
    output: Path | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    options: RecordOptions | None = None,
    trace: Path | None = None,
    compile_commands: Path | None = None,
    quiet_stdout: bool = False,
    diff: bool = False,
) -> Recorded:
    """Run a command as it is, and record every call of nvcc and of host compilers and linkers.

    `output`: a new folder (`cuwheel-record`, with a number where that is taken). `quiet_stdout`: what the command
    prints on stdout goes to stderr. `diff`: if a call fails, it is compared with the caller's environment (see
    `replay_diff`).
    """
    from msgspec.structs import replace

    from cuwheel.building.recording import command as stage
    from cuwheel.report import record as report

    stage.require_writable(*(path for path in (trace, compile_commands) if path))
    ended = stage.record_command(
        command, output=output, environ=environ, cwd=cwd, options=options, quiet_stdout=quiet_stdout
    )
    answer = ended.answer
    if ended.failed:  # what explains failures takes a while to load
        from cuwheel.diagnosis import failures

        answer = failures.with_failure(ended)
    answer = replace(answer, written=tuple(stage.write_exports(ended.record, trace, compile_commands)))
    folder = Path(ended.record.folder)
    return report.save(stage.with_comparison(answer, folder) if diff else answer, folder)


def replay(
    call: str | Path,
    *,
    here: bool = False,
    scratch: bool = False,
    directory: Path | None = None,
    attend: bool = False,
    timeout: float | None = None,
) -> Replay:
    """Run a recorded call again (`RECORD` or `RECORD:N`), in its environment or, with `here`, in the caller's.

    `attend`: its output goes to the caller's own streams as it comes; else it is in the answer.
    `scratch`: what it writes goes to a folder that is removed afterwards, not over the build's files.
    """
    from cuwheel.building.recording import replays

    return replays.run_call(call, here=here, directory=directory, scratch=scratch, attend=attend, timeout=timeout)


def replay_print(
    call: str | Path, *, here: bool = False, directory: Path | None = None, shell: Shell | None = None
) -> Replay:
    """Write the lines that run the call, to paste into a shell with the caller's environment (`shell`, or this one)."""
    from cuwheel.building.recording import replays

    return replays.print_call(call, here=here, directory=directory, shell=shell)


def replay_list(record: str | Path) -> Replay:
    """List the calls of a record."""
    from cuwheel.building.recording import reader, replays

    return replays.list_calls(reader.read_target(record)[0])


def replay_diff(
    call: str | Path,
    other: str | Path | None = None,
    *,
    directory: Path | None = None,
    most: int = 60,
    timeout: float | None = None,
) -> Replay:
    """Compare a recorded call with the caller's environment, or another call, and say which difference matters.

    It runs the call, writing nothing where the build did, until the smallest change is found that makes the
    difference: at most `most` times (0: never), each at most `timeout` seconds (ten times the recorded time, at least
    a minute).
    """
    from cuwheel.building.recording import replays

    return replays.compare_environments(call, other, directory=directory, most=most, timeout=timeout)


def trace(
    command: Sequence[str],
    *,
    keep: Path | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    cupti: Path | bool = False,
) -> Traced:
    """Run a command as it is, and see which device code its programs load, launch and fail with.

    `keep`: a new folder for what its processes write. `cupti`: also ask NVIDIA's profiling library, the one that is
    found or this one, which names kernels that the CUDA runtime itself refuses.
    """
    from cuwheel.tracing import attribution, events, session

    with session.trace_folder(keep) as place:
        status = session.run_traced(command, place, environ=environ, cwd=cwd, cupti=cupti)
        found = events.read_events(place)
        return attribution.attributed(found, succeeded=status == 0, command=command, status=status)


def read_trace(place: str | Path) -> Traced:
    """Read a trace: the folder that `keep` named, also where cuwheel itself was killed, or a file of `save_trace`."""
    from cuwheel.tracing import attribution, events, traced

    place = Path(place)
    if not place.is_dir():
        return traced.read_trace(place)
    return attribution.attributed(events.read_events(place), succeeded=False)


def save_trace(answer: Traced, *, output: Path | None = None, timeline: Path | None = None) -> None:
    """Write a trace into files: `output` is JSON, `timeline` is for Perfetto's and Chrome's viewers."""
    from cuwheel.report import trace as report
    from cuwheel.support import files

    if output:
        files.write(output, answer.to_json())
    if timeline:
        files.write(timeline, report.timeline_json(answer))


def cluster(address: str, *, certificate: Path | None = None) -> Cluster:
    """List the workers of a cluster: what each is and does. `certificate`: of `cluster_init`, if not this user's."""
    from cuwheel.clusters import roster

    return roster.overview(address, certificate)


def cluster_init(folder: Path | None = None) -> Certificates:
    """Make certificates for a new cluster: one file for whoever builds, one for the scheduler, one for the workers."""
    from cuwheel.network import cluster_access

    return cluster_access.make_certificates(cluster_access.certificate_folder(folder))


def cluster_stop(address: str, *, certificate: Path | None = None) -> Cluster:
    """End what runs, the workers and the scheduler."""
    from cuwheel.clusters import roster

    return roster.overview(address, certificate, stop=True)


def cluster_send(address: str, wheel: Path, *, certificate: Path | None = None) -> Cluster:
    """Install cuwheel, from its wheel, on the workers of a Dask that has none, and on those that join later."""
    from cuwheel.clusters import roster

    return roster.overview(address, certificate, wheel=wheel)


def cluster_scheduler(address: str, *, certificate: Path | None = None, dashboard: str | None = None) -> Cluster:
    """Run a scheduler, until it is stopped.

    `dashboard`: `HOST:PORT` where Dask serves its pages, without TLS and to everybody who reaches it.
    """
    from cuwheel.clusters import roster, service

    service.run_scheduler(address, certificate, dashboard)
    return roster.Cluster(address=address, workers=(), stopped=True)


def cluster_worker(address: str, options: WorkerOptions | None = None, *, certificate: Path | None = None) -> Cluster:
    """Run a worker, until it or its cluster is stopped: it waits for its scheduler, also after that was gone."""
    from cuwheel.clusters import roster, service

    service.run_worker(address, certificate, options or service.WorkerOptions())
    return roster.Cluster(address=address, workers=(), stopped=True)
