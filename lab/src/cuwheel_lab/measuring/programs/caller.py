"""What runs in the environment that is measured: calls of a function of a Python file, or of a command.

`python caller.py once FILE NAME JSON` calls the function once, with these arguments, and prints what it returns.
`python caller.py function FILE NAME` and `python caller.py command WORD…` call many times at once, when they are told
to: the measured side of `cuwheel lab bench`. It says a JSON object when it is ready, then reads requests from its
input, a JSON object a line, and answers each with one:
 {"at": monotonic time to begin, "threads": n, "calls": most or null, "seconds": most}
 → {"began": …, "ended": …, "calls": n, "errors": n, "error": the first one's words, "latencies": [seconds, …]}
That environment has no cuwheel: nothing but the standard library of Python 3.9, and little of it for a single call.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_MOST_THREADS = 1024
_MOST_LATENCIES = 50_000  # of one request; calls beyond are counted, and not kept
_LONGEST_ERROR = 500


def load_function(file: str, name: str) -> Callable[..., Any]:
    """The function, with the file's own folder on the path as a script has it."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    spec = importlib.util.spec_from_file_location("cuwheel_measured", file)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["cuwheel_measured"] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise SystemExit(f"{file} has no function {name}")
    return function  # type: ignore[no-any-return]


def call_of_command(words: list[str]) -> Callable[[], Any]:
    import subprocess  # noqa: PLC0415 - not for a single call

    def call() -> None:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
        )
        if done.returncode:
            last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise RuntimeError(f"ended with status {done.returncode}: {last}")

    return call


class Block:
    """Calls by several threads, until there were enough or time is up."""

    def __init__(self, call: Callable[[], Any], request: dict[str, Any]) -> None:
        self._call = call
        self._most = request.get("calls")
        self._end = request["at"] + request["seconds"]
        self._lock = threading.Lock()
        self._begun = 0
        self.calls, self.errors, self.error = 0, 0, ""
        self.latencies: list[float] = []

    def _may_begin(self) -> bool:
        with self._lock:
            if self._most is not None and self._begun >= self._most:
                return False
            self._begun += 1
            return True

    def work(self) -> None:
        taken: list[float] = []
        errors, first = 0, ""
        done = False
        while not done and self._may_begin():
            began = time.perf_counter()
            try:
                self._call()
            except Exception as error:  # noqa: BLE001 - of a stranger's function anything
                errors += 1
                first = first or f"{type(error).__name__}: {error}"
            taken.append(time.perf_counter() - began)
            done = time.monotonic() >= self._end
        with self._lock:
            self.calls += len(taken)
            self.errors += errors
            self.error = self.error or first[:_LONGEST_ERROR]
            self.latencies += taken[: max(0, _MOST_LATENCIES - len(self.latencies))]


def answer(call: Callable[[], Any], request: dict[str, Any], threads: ThreadPoolExecutor) -> dict[str, Any]:
    """Runs a block in the threads of the requests before: streams and handles of their own are made once."""
    block = Block(call, request)
    time.sleep(max(0.0, request["at"] - time.monotonic()))
    began = time.monotonic()
    working = [threads.submit(block.work) for _ in range(request["threads"])]
    for each in working:
        each.result()
    return {
        "began": began,
        "ended": time.monotonic(),
        "calls": block.calls,
        "errors": block.errors,
        "error": block.error,
        "latencies": block.latencies,
    }


def serve(call: Callable[[], Any], began: float, speak: Any) -> None:  # noqa: ANN401 - a file
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - not for a single call

    speak.write(json.dumps({"ready": time.monotonic() - began}) + "\n")
    speak.flush()
    with ThreadPoolExecutor(_MOST_THREADS) as threads:
        for line in sys.stdin:
            speak.write(json.dumps(answer(call, json.loads(line), threads)) + "\n")
            speak.flush()


def main(kind: str, words: list[str]) -> None:
    if kind == "once":
        returned = load_function(words[0], words[1])(**json.loads(words[2]))
        sys.stdout.write(f"{returned!r}\n" if returned is not None else "")
        return
    # What the function prints must not come between our answers.
    speak = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    began = time.monotonic()
    serve(load_function(words[0], words[1]) if kind == "function" else call_of_command(words), began, speak)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
