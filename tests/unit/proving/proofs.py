"""A proof as a kit writes it, to be read back whole or broken."""

from __future__ import annotations

from typing import Any


def check(name: str = "two", outcome: str = "passed", *, gpu: bool = True, output: str = "2\n") -> dict[str, Any]:
    return {
        "name": name,
        "kind": "python",
        "outcome": outcome,
        "gpu": gpu,
        "problem": "" if outcome == "passed" else "it did not",
        "seconds": 0.25,
        "status": 0 if outcome == "passed" else 1,
        "signal": "",
        "memory": 1000,
        "output": output,
        "output_bytes": len(output),
        "left": [],
        "file": "",
        "version": "",
    }


def wheel(*checks: dict[str, Any], outcome: str = "native", agreement: str = "agreed") -> dict[str, Any]:
    error = {"code": 209, "name": "cudaErrorNoKernelImageForDevice"} if outcome == "fails" else None
    return {
        "file": "foo-1.0-py3-none-any.whl",
        "sha256": "ab" * 32,
        "size": 1000,
        "name": "foo",
        "version": "1.0",
        "requirements": [{"file": "bar-1.0-py3-none-any.whl", "sha256": "cd" * 32, "size": 1, "member": "wheels/x"}],
        "problem": "",
        "frameworks": {"torch": ["2.11.0", "13.0"]},
        "prediction": {
            "capability": "9.0",
            "driver_cuda": "13.0",
            "follows": None,
            "framework_cuda": None,
            "outcome": outcome,
            "error": error,
            "conditions": [],
        },
        "probed": {"loaded": 1, "refused": 0, "compared": 0, "against": []},
        "agreement": agreement,
        "why": "as it was written",
        "checks": list(checks),
        "seconds": 1.5,
    }


def proof(*wheels: dict[str, Any], succeeded: bool = True) -> dict[str, Any]:
    return {
        "schema": "cuwheel.proof/1",
        "tool": "cuwheel 0.1.0",
        "began": "2026-11-15T14:27:55Z",
        "seconds": 2.0,
        "machine": {
            "os": "Linux",
            "distribution": "Debian",
            "kernel": "6",
            "cpu": "x86_64",
            "glibc": "2.36",
            "python": "3.11.2",
            "implementation": "cpython",
            "driver": "580.1",
            "driver_cuda": "13.0",
            "driver_status": 0,
            "gpus": [{"name": "NVIDIA H200", "capability": "9.0", "memory": 150_000_000_000}],
            "smi_gpus": ["NVIDIA H200 (9.0)"],
            "variables": {},
        },
        "wheels": list(wheels),
        "succeeded": succeeded,
    }
