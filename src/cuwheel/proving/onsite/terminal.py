"""What a kit says on the terminal while it runs, and at its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ..runner.capture import printable

_MARKS = {"passed": "ok", "skipped": "skipped", "failed": "FAILED", "crashed": "CRASHED", "timeout": "TIMEOUT",
          "memory": "MEMORY"}  # fmt: skip
_LAST_LINES = 12
_AGREEMENTS = {
    "contradicted": "PREDICTION CONTRADICTED",
    "open": "prediction left open",
    "agreed": "prediction confirmed",
}
_ORDER = ("contradicted", "open", "agreed", "none")


def say(text: str = "") -> None:
    """A closed pipe (`| head`) is not a reason to stop: the proof is a file."""
    try:
        sys.stdout.write(printable(text) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def listed(manifest: Mapping[str, Any]) -> None:
    say(f"made by {manifest['tool']}")
    for each in manifest["wheels"]:
        say(f"\n{each['file']}  {each['size']:,} bytes\n  sha256 {each['sha256']}")
        say(f"  {len(each['requirements'])} requirements packed, {len(each['checks'])} checks:")
        for check in each["checks"]:
            say(f"    {check['name']}{'  (GPU)' if check.get('gpu') else ''}")


def machine(here: Mapping[str, Any]) -> None:
    system = here["distribution"] or here["os"]
    libc = f", glibc {here['glibc']}" if here["glibc"] else ""
    say(f"{system}, {here['cpu']}{libc}, Python {here['python']}")
    driver = f"driver {here['driver']}" if here["driver"] else "driver version unknown"
    cuda = f", CUDA {here['driver_cuda']}" if here["driver_cuda"] else ""
    for each in here["gpus"]:
        name = " ".join(each["name"].split())
        say(f"{name}, compute capability {each['capability']}, {driver}{cuda}")
    if not here["gpus"]:
        status = f" (cuInit gives {here['driver_status']})" if here["driver_status"] else ""
        say(f"no GPU that CUDA sees{status}")


def wheel(packed: Mapping[str, Any]) -> None:
    say(f"\n{packed['file']}")


def predicted(found: Optional[Mapping[str, Any]]) -> None:
    if found:
        error = f", {found['error']['name']} ({found['error']['code']})" if found.get("error") else ""
        say(f"  predicted for {found['capability']}: {found['outcome']}{error}")


def problem(text: str) -> None:
    say(f"  {text}")


def check(result: Mapping[str, Any]) -> None:
    seconds = f"{result['seconds']:.1f} s" if result["outcome"] != "skipped" else ""
    detail = f": {result['problem']}" if result["problem"] else ""
    say(f"  {_MARKS.get(result['outcome'], result['outcome']):8}{result['name']}  {seconds}{detail}".rstrip())
    if result["outcome"] not in ("passed", "skipped"):
        for line in result["output"].rstrip().splitlines()[-_LAST_LINES:]:
            say(f"          | {line}")


def loaded(lines: Sequence[str]) -> None:
    """What a check really loaded on the GPU."""
    for line in lines:
        say(f"          loaded {line}")


def summary(proof: Mapping[str, Any], written: str) -> None:
    """What hardware contradicted comes first."""
    say()
    for each in sorted(proof["wheels"], key=lambda wheel: _ORDER.index(wheel["agreement"])):
        words = _AGREEMENTS.get(each["agreement"])
        if words:
            say(f"{words}: {each['file']}: {each['why']}")
    results = [result for each in proof["wheels"] for result in each["checks"]]
    counts = {mark: sum(1 for each in results if each["outcome"] == mark) for mark in _MARKS}
    say(", ".join(f"{count} {mark}" for mark, count in counts.items() if count) or "no checks were run")
    broken = [each["file"] for each in proof["wheels"] if each["problem"]]
    if broken:
        say(f"not installed: {', '.join(broken)}")
    if not proof["wheels"]:
        say("no wheel of the kit was selected")
    if written:
        say(f"proof: {written}   (cuwheel verify --read {written})")
