"""From what traced processes wrote to what it means: which code was loaded and used, and why calls failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from cuwheel.device_code.demangle import demangled
from cuwheel.facts import cuda_errors
from cuwheel.support import masking
from cuwheel.tracing import reasons
from cuwheel.tracing.events import DriverLog, Event, ProcessEvents, text
from cuwheel.tracing.reasons import Files, Image, choice_of_driver, image_of
from cuwheel.tracing.traced import Failure, Gpu, How, KernelTime, KernelUse, LibraryUse, Load, Process, Traced
from cuwheel_core.facts.arch import Capability
from cuwheel_core.verdicts.choice import CudaError

_NS = 1e9
_MS = 1e6
# The driver asks its compiler even for what it compiled before; that takes microseconds, and the smallest kernel more
# than this.
_COMPILED_MS = 1.0
_LAST = 8
_RUNTIME = "cuda"  # of the runtime's functions, where the driver's begin with "cu" alone


@dataclass(slots=True)
class _Loaded:
    """A load, and which of its kernels were looked up and launched."""

    event: Event
    image: Image
    gpu: Gpu | None
    kernels: dict[str, None] = field(default_factory=dict)
    launched: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Failed:
    """`libraries`: of the kernels that were launched last, the files. `times`: calls that were told the same."""

    event: Event
    loaded: _Loaded | None
    gpu: Gpu | None
    libraries: tuple[str | None, ...] = ()
    times: int = 1


@dataclass(slots=True)
class _Story:
    """What one process did, as its events tell it in turn."""

    number: int
    loads: list[_Loaded] = field(default_factory=list)
    failures: list[_Failed] = field(default_factory=list)
    gpus: dict[int, Gpu] = field(default_factory=dict)
    _modules: dict[str, _Loaded] = field(default_factory=dict)  # by the handle of a library or module
    _kernels: dict[str, tuple[_Loaded | None, str]] = field(default_factory=dict)
    launched: set[str] = field(default_factory=set)
    _files: dict[str, str] = field(default_factory=dict)  # by the name of a kernel that was launched
    counts: dict[tuple[str, str | None], int] = field(default_factory=dict)  # launches, by kernel and library
    first_launch: int | None = None
    _log: DriverLog = field(default_factory=DriverLog)

    def take(self, event: Event, files: Files) -> None:
        if event.event == "device":
            major, minor = divmod(event.driver_cuda, 1000)
            cuda = f"{major}.{minor // 10}" if event.driver_cuda > 0 else ""
            self.gpus[event.device] = Gpu(name=event.name, capability=Capability(event.major, event.minor), cuda=cuda)
        elif event.event == "log":
            self._log.add(event)
        elif event.event == "failure":
            self._take_failure(self._log.claimed_by(event), files)
        if event.event not in ("device", "log") and not (event.event == "load" and event.error):
            self._take_unclaimed(files, event.thread)  # but a load that failed is followed by its failure
        if event.event == "load":
            loaded = _Loaded(event, image_of(event, files), self.gpus.get(event.device))
            self.loads.append(loaded)
            if event.handle:
                self._modules[event.handle] = loaded
        elif event.event == "handle":
            self._take_handle(event)
        elif event.event == "launch":
            self._take_launch(event)
        elif event.event == "count":
            launched_from, name = self._kernels.get(event.kernel, (None, event.name))
            key = name or event.kernel, _path_of(launched_from)
            self.counts[key] = self.counts.get(key, 0) + event.launches

    def finish(self, files: Files) -> None:
        self._take_unclaimed(files)

    def _take_unclaimed(self, files: Files, thread: int | None = None) -> None:
        for each in self._log.unclaimed(thread):
            self._take_failure(each, files)

    def _take_handle(self, event: Event) -> None:
        if event.api == "cuLibraryGetModule":
            if event.of in self._modules:
                self._modules[event.handle] = self._modules[event.of]
        elif event.api == "cuKernelGetFunction":
            if event.of in self._kernels:
                self._kernels[event.handle] = self._kernels[event.of]
        else:
            loaded = self._modules.get(event.of)
            self._kernels[event.handle] = loaded, event.name
            if loaded:
                loaded.kernels[event.name] = None

    def _take_launch(self, event: Event) -> None:
        loaded, name = self._kernels.get(event.kernel, (None, event.name))
        self.launched.add(name or event.kernel)
        self.counts.setdefault((name or event.kernel, _path_of(loaded)), 0)
        if self.first_launch is None:
            self.first_launch = event.time
        if loaded:
            loaded.launched[name] = None
            if loaded.image.file:
                self._files[name] = loaded.image.file.path

    def _take_failure(self, event: Event, files: Files) -> None:
        """What the runtime returns is mostly what the driver told it before: one failure, with the kernel's name."""
        first_names = (each if isinstance(each, str) else next(iter(each), "") for each in event.last[:_LAST])
        last = tuple(map(self._files.get, first_names))
        found = _Failed(event, self._load_of(event, files), self.gpus.get(event.device), last)
        same = next((each for each in self.failures if _key(each.event) == _key(event)), None)
        before = self.failures[-1] if event.api.startswith(_RUNTIME) and self.failures else None
        if before and (before.event.thread, before.event.error) == (event.thread, event.error):
            if not before.event.name:
                before.event = replace(before.event, name=event.name)
        elif same:
            same.times += 1
        else:
            self.failures.append(found)

    def _load_of(self, event: Event, files: Files) -> _Loaded | None:
        if event.library in self._modules:
            return self._modules[event.library]
        if event.kernel in self._kernels:
            return self._kernels[event.kernel][0]
        if event.kind or event.path:
            return _Loaded(event, image_of(event, files), self.gpus.get(event.device))
        return None


def _path_of(loaded: _Loaded | None) -> str | None:
    return loaded.image.file.path if loaded and loaded.image.file else None


def attributed(
    found: Sequence[ProcessEvents], *, succeeded: bool, command: Sequence[str] = (), status: int | None = None
) -> Traced:
    """`succeeded`: the command ended well, so that whatever failed in it was dealt with.

    `status`: None of a trace that is read again.
    """
    files = Files()
    stories = []
    for number, process in enumerate(found):
        story = _Story(number)
        for event in process.events:
            story.take(event, files)
        story.finish(files)
        stories.append(story)
    loads = tuple(_load(story.number, each) for story in stories for each in story.loads)
    born = min(map(_born, found), default=0)
    events = [(number, each) for number, process in enumerate(found) for each in process.events if each.event == "time"]
    readable = demangled(dict.fromkeys(event.name for _, event in events))
    times = [
        KernelTime(
            process=number,
            kernel=event.name,
            demangled=readable.get(event.name),
            launches=event.launches,
            seconds=event.took / _NS,
        )
        for number, event in events
    ]
    return Traced(
        command=tuple(masking.words(command)),
        status=status,
        exit_status=0 if status is None else status if status >= 0 else 128 - status,
        processes=tuple(_process(each, story, born) for each, story in zip(found, stories, strict=True)),
        libraries=tuple(_uses(files, loads)),
        loads=loads,
        failures=tuple(_failures(stories, found, succeeded=succeeded)),
        unread=sum(each.unread for each in found),
        times=tuple(sorted(times, key=lambda each: -each.seconds)),
        kernels=tuple(_kernels(stories, files)),
    )


def _kernels(stories: Sequence[_Story], files: Files) -> Iterator[KernelUse]:
    """The most launched first. A process that was killed did not tell how often."""
    counted = [(story.number, *key, count) for story in stories for key, count in story.counts.items()]
    readable = demangled(dict.fromkeys(name for _, name, _, _ in counted))
    for number, name, path, count in sorted(counted, key=lambda each: -each[3]):
        yield KernelUse(
            process=number,
            kernel=name,
            demangled=readable.get(name),
            library=path,
            package=files.at(path).package if path else None,
            launches=count or None,
        )


def _born(found: ProcessEvents) -> int:
    """When the process began, by the clock that all of them share."""
    return found.events[0].at - found.events[0].time


def _process(found: ProcessEvents, story: _Story, first_born: int) -> Process:
    first, last = found.events[0], found.events[-1]
    script = text(first.script) or (f"-m {text(first.module)}" if first.module else None)
    return Process(
        pid=first.pid,
        parent=first.parent,
        program=text(first.program),
        script=script,
        gpus=tuple(story.gpus.values()),
        seconds=max(each.time for each in found.events) / _NS,
        first_launch=story.first_launch / _NS if story.first_launch is not None else None,
        began=(_born(found) - first_born) / _NS,
        ended=last.event == "end",
        kernels=len(story.launched),
        launches=last.launches if last.event == "end" else None,
        lost=last.lost,
    )


def _load(process: int, loaded: _Loaded) -> Load:
    event, found = loaded.event, loaded.image
    choice = choice_of_driver(found, loaded.gpu) if loaded.gpu else None
    how: How = choice.how if choice else "unknown"
    jit_ms = (event.jit or 0) / _MS if how == "jit" else None
    return Load(
        process=process,
        at=event.time / _NS,
        seconds=event.took / _NS,
        library=found.file.path if found.file else None,
        package=found.file.package if found.file else None,
        container=found.index,
        offset=event.offset,
        caller=text(event.caller) or None,
        kind=event.kind or "fatbin",
        size=event.size,
        arch=str(found.codes[choice.entry].arch) if choice and choice.entry is not None else None,
        archs=found.archs,
        how=how,
        jit_ms=round(jit_ms, 3) if jit_ms is not None else None,
        cached=jit_ms < _COMPILED_MS if jit_ms is not None else None,
        kernels=tuple(loaded.kernels),
        launched=tuple(loaded.launched),
        error=error_of(event.error) if event.error else None,
        hash=event.hash,
        thread=event.thread,
    )


def error_of(code: int) -> CudaError:
    row = cuda_errors.find_error(code)
    return CudaError(code=code, name=row.name if row else f"error {code}")


def _uses(files: Files, loads: Iterable[Load]) -> Iterator[LibraryUse]:
    by_file: dict[str, list[Load]] = {}
    for each in loads:
        if each.library:
            by_file.setdefault(each.library, []).append(each)
    for path, found in by_file.items():
        file = files.at(path)
        containers = file.library.containers if file.library else ()
        loaded = {each.container for each in found if each.container is not None}
        bare = not containers and all(each.offset is None for each in found)  # a cubin, loaded as a file
        whole = file.library if bare else None
        yield LibraryUse(
            library=path,
            package=file.package,
            build_id=file.library.build_id if file.library else None,
            containers=1 if whole else len(containers),
            loaded=1 if whole else len(loaded),
            launched=len({each.container for each in found if each.launched and (whole or each.container is not None)}),
            bytes=whole.size if whole else sum(each.size for each in containers),
            loaded_bytes=whole.size if whole else sum(containers[each].size for each in loaded),
            how=tuple(dict.fromkeys(each.how for each in found)),
            jit_ms=round(sum(each.jit_ms or 0.0 for each in found), 3),
            size=file.library.size if file.library else None,
        )


def _failures(stories: Sequence[_Story], found: Sequence[ProcessEvents], *, succeeded: bool) -> Iterator[Failure]:
    failed = [each.event for story in stories for each in story.failures]
    names = [event.name for event in failed if event.name]
    for launched in (launched for event in failed for launched in event.last[:_LAST]):
        names += [launched] if isinstance(launched, str) else launched
    readable = demangled(dict.fromkeys(names))
    for story in stories:
        events = found[story.number].events
        swallowed = succeeded and events[-1].event == "end"
        for each in story.failures:
            yield _failure(story.number, events[0], each, readable, swallowed=swallowed)


def _key(event: Event) -> tuple[object, ...]:
    """What makes two failures the same: an error that comes late is told of every call after it."""
    row = cuda_errors.find_error(event.error)
    return (event.error,) if row and row.late else (event.api, event.error, event.name, event.library, event.caller)


def _last_name(launched: str | tuple[str, ...], readable: Mapping[str, str]) -> str:
    if isinstance(launched, str):
        return readable.get(launched, launched)
    return "a CUDA graph of " + (", ".join(readable.get(name, name) for name in launched) or "no known kernels")


def _failure(number: int, process: Event, failed: _Failed, readable: Mapping[str, str], *, swallowed: bool) -> Failure:
    event, loaded, gpu = failed.event, failed.loaded, failed.gpu
    row = cuda_errors.find_error(event.error)
    # The call that is told of a late error has nothing to do with it.
    late = bool(row and row.late) and not reasons.is_blamed(event, process)
    why = reasons.reason_for(event, process, loaded.image if loaded else None, gpu)
    found = loaded.image if loaded and not late else None
    file = found.file if found else None
    name = "" if late else event.name
    return Failure(
        process=number,
        at=event.time / _NS,
        api=event.api,
        error=error_of(event.error),
        meaning=row.meaning if row else "",
        kernel=name or None,
        demangled=readable.get(name) if name else None,
        library=file.path if file else None,
        package=file.package if file else None,
        container=found.index if found else None,
        archs=found.archs if found else (),
        gpu=gpu.capability if gpu else None,
        reason=why.reason,
        fix=why.fix,
        kernels=why.kernels,
        caller=text(event.caller) or None,
        grid=event.grid,
        block=event.block,
        shared_bytes=event.shared,
        bytes=event.bytes,
        python=tuple(_stack(event.python)),
        last=tuple(_last_name(each, readable) for each in event.last[:_LAST]) if late else (),
        last_libraries=failed.libraries if late else (),
        log=text(event.log),
        driver_log=tuple(map(text, event.driver_log)),
        swallowed=swallowed,
        times=failed.times,
    )


def _stack(written: str) -> Iterator[str]:
    """`file.py:12 in function`, the innermost first."""
    for line in text(written).splitlines():
        head, _, name = line.strip().rpartition(" in ")
        path, _, number = head.removeprefix('File "').rpartition('", line ')
        if path and number.isdigit():
            yield f"{path}:{number} in {name}"
