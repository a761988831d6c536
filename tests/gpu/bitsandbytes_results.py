"""Operators of bitsandbytes on a GPU, each result by its hash: the same library code gives the same bits.

    python3 tests/gpu/bitsandbytes_results.py run WHEEL           as JSON, of the package that is in a wheel
    python3 tests/gpu/bitsandbytes_results.py same OUT WHEEL…     all the same? exits 1 where not; OUT gets the JSON

Needs torch and a GPU, and nothing of ours. Each wheel is unpacked and run twice, by processes of their own: what
differs between these two (sums by atomics, in LAMB and LARS) is counted, not compared. So is what bitsandbytes refuses.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_REPEATS = 4
_SECONDS = 240


def cases(torch: Any, bnb: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A name, and a function of nothing that gives tensors."""
    types = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    for (name, dtype), size in itertools.product(types.items(), (64, 256, 1024, 4096)):
        yield f"blockwise {name} {size}", partial(_blockwise, torch, bnb, dtype, size)
    for (name, dtype), kind, size in itertools.product(types.items(), ("nf4", "fp4"), (64, 256, 2048)):
        yield f"4-bit {kind} {name} {size}", partial(_four_bit, torch, bnb, dtype, kind, size)
    for (name, dtype), kind, rows in itertools.product(types.items(), ("nf4", "fp4"), (1, 4, 16, 64)):
        yield f"4-bit product {kind} {name} {rows}", partial(_product, torch, bnb, dtype, kind, rows)
    for threshold in (0.0, 3.0):
        yield f"int8 {threshold}", partial(_int8, torch, bnb, threshold)
    # Not AdEMAMix32bit: with 0.50.1 as it is published it ends in an illegal memory access, and all after it.
    names = ("Adam", "AdamW", "Lion", "RMSprop", "SGD", "Adagrad", "LAMB", "LARS")
    optimisers = [*map("".join, itertools.product(names, ("8bit", "32bit"))), "AdEMAMix8bit"]
    for name, (kind, dtype) in itertools.product(optimisers, types.items()):
        yield f"{name} {kind}", partial(_optimised, torch, bnb, name, dtype)


def _random(torch: Any, *shape: int, dtype: Any, seed: int = 7) -> Any:
    """The same numbers wherever: made without the GPU."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).cuda()


def _blockwise(torch: Any, bnb: Any, dtype: Any, size: int) -> Any:
    x = _random(torch, 129, 517, dtype=dtype)
    packed, state = bnb.functional.quantize_blockwise(x, blocksize=size)
    return [packed, state.absmax, bnb.functional.dequantize_blockwise(packed, state)]


def _four_bit(torch: Any, bnb: Any, dtype: Any, kind: str, size: int) -> Any:
    x = _random(torch, 256, 512, dtype=dtype)
    packed, state = bnb.functional.quantize_4bit(x, blocksize=size, quant_type=kind, compress_statistics=size == 64)
    return [packed, state.absmax, bnb.functional.dequantize_4bit(packed, state)]


def _product(torch: Any, bnb: Any, dtype: Any, kind: str, rows: int) -> Any:
    weight = _random(torch, 512, 1024, dtype=dtype)
    packed, state = bnb.functional.quantize_4bit(weight, quant_type=kind)
    with torch.no_grad():
        return [bnb.matmul_4bit(_random(torch, rows, 1024, dtype=dtype, seed=8), packed.t(), quant_state=state)]


def _int8(torch: Any, bnb: Any, threshold: float) -> Any:
    one, other = (_random(torch, size, 1024, dtype=torch.float16, seed=size) for size in (64, 256))
    first, first_stats, columns = bnb.functional.int8_vectorwise_quant(one, threshold=threshold)
    second, second_stats, _ = bnb.functional.int8_vectorwise_quant(other)
    product = bnb.functional.int8_linear_matmul(first, second)
    made = bnb.functional.int8_mm_dequant(product, first_stats, second_stats)
    return [first, first_stats, second, second_stats, product, made, *([] if columns is None else [columns])]


def _optimised(torch: Any, bnb: Any, name: str, dtype: Any) -> Any:
    weight = torch.nn.Parameter(_random(torch, 64, 4096, dtype=dtype))
    more = {"momentum": 0.9} if name.startswith(("SGD", "LARS")) else {}
    optimiser = getattr(bnb.optim, name)([weight], lr=1e-3, **more)
    for step in range(3):
        weight.grad = _random(torch, 64, 4096, dtype=dtype, seed=step)
        optimiser.step()
    state = optimiser.state[weight]
    return [weight.detach(), *(value for _, value in sorted(state.items()) if torch.is_tensor(value))]


def run() -> dict[str, Any]:
    torch, bnb = importlib.import_module("torch"), importlib.import_module("bitsandbytes")
    found = {}
    for name, work in cases(torch, bnb):
        try:
            hashes = {_hash(torch, work()) for _ in range(_REPEATS)}
            found[name] = " ".join(sorted(hashes))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            found[name] = f"{type(error).__name__}: {error}"[:300]
    mapped = {
        line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libbitsandbytes" in line
    }
    return {"version": bnb.__version__, "libraries": sorted(mapped), "results": found}


def _hash(torch: Any, tensors: Any) -> str:
    parts = [each.detach().reshape(-1).contiguous().view(torch.uint8).cpu().numpy().tobytes() for each in tensors]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def of_wheel(wheel: Path) -> dict[str, Any]:
    """From a process that sees the package of this wheel first."""
    with tempfile.TemporaryDirectory(prefix="bitsandbytes-") as folder:
        zipfile.ZipFile(wheel).extractall(folder)
        environ = {**os.environ, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}
        words = [sys.executable, str(Path(__file__).absolute()), "inside"]
        done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode:
            return {"failed": done.stderr[-2000:], "results": {}}
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


def same(out: Path, wheels: list[Path]) -> bool:
    every = {each.name: [of_wheel(each), of_wheel(each)] for each in wheels}
    out.write_text(json.dumps(every, indent=1))
    runs = [run["results"] for pair in every.values() for run in pair]
    cases = dict.fromkeys(case for results in runs for case in results)
    refused = [case for case in cases if all(":" in results.get(case, "") for results in runs)]
    unsteady = [case for case in cases if case not in refused and any(_differs(case, *pair) for pair in every.values())]
    compared = [case for case in cases if case not in refused and case not in unsteady]
    counts = f"{len(compared)} compared, {len(unsteady)} unsteady, {len(refused)} refused by all"
    sys.stdout.write(f"{len(cases)} cases: {counts}\n")
    good = bool(compared)
    for name, (run, _) in every.items():
        other = [case for case in compared if run["results"].get(case) != runs[0][case] or ":" in runs[0][case]]
        good = good and not other
        sys.stdout.write(f"{name}: {len(other)} other than the first's {run.get('failed', '')[-300:]}\n")
        sys.stdout.write("".join(f"  {case}: {run['results'].get(case)} / {runs[0][case]}\n" for case in other[:5]))
    return good


def _differs(case: str, one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Of two runs of the same wheel: other results, or several in one of them."""
    first, second = one["results"].get(case, ""), other["results"].get(case, "")
    return first != second or (" " in first and ":" not in first)


if __name__ == "__main__":
    if sys.argv[1] == "inside":
        sys.stdout.write(json.dumps(run()) + "\n")
    elif sys.argv[1] == "run":
        sys.stdout.write(json.dumps(of_wheel(Path(sys.argv[2])), indent=1) + "\n")
    else:
        sys.exit(0 if same(Path(sys.argv[2]), [Path(each) for each in sys.argv[3:]]) else 1)
