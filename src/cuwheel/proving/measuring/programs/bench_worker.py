"""Calls a function, or runs a command, many times at once, when it is told to: the measured side of `cuwheel bench`.

Run as `python bench_worker.py function FILE NAME` or `python bench_worker.py command WORD…`. It says a JSON object when
it is ready, then reads requests from its input, a JSON object a line, and answers each with one:
 {"at": monotonic time to begin, "threads": n, "calls": most or null, "seconds": most}
 → {"began": …, "ended": …, "calls": n, "errors": n, "error": the first one's words, "latencies": [seconds, …]}
It runs in the environment that is measured, which has no cuwheel: nothing but the standard library of Python 3.9.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_MOST_THREADS = 1024
_MOST_LATENCIES = 50_000  # of one request; calls beyond are counted, and not kept
_LONGEST_ERROR = 500


def of_command(words: list[str]) -> Callable[[], Any]:
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
    """By the threads of the requests before: streams and handles of their own are made once, and not in every block."""
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


def main(kind: str, words: list[str]) -> None:
    # What the function prints must not come between our answers.
    speak = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    began = time.monotonic()
    if kind == "function":
        from call_function import load  # type: ignore[import-not-found]  # noqa: PLC0415 - it lies beside this file

        call = load(words[0], words[1])
    else:
        call = of_command(words)
    speak.write(json.dumps({"ready": time.monotonic() - began}) + "\n")
    speak.flush()
    with ThreadPoolExecutor(_MOST_THREADS) as threads:
        for line in sys.stdin:
            speak.write(json.dumps(answer(call, json.loads(line), threads)) + "\n")
            speak.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
