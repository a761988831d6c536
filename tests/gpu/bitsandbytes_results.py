"""Operators of bitsandbytes on a GPU, each result by its hash: the same library code gives the same bits.

    python3 tests/gpu/bitsandbytes_results.py run WHEEL           as JSON, of the package that is in a wheel
    python3 tests/gpu/bitsandbytes_results.py same OUT WHEEL…     all the same? exits 1 where not; OUT gets the JSON

Needs torch and a GPU, and nothing of ours. Each wheel is unpacked and run by a process of its own.
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

_REPEATS = 2
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
    names = ("Adam", "AdamW", "Lion", "RMSprop", "SGD", "Adagrad", "LAMB", "LARS", "AdEMAMix")
    for name, bits in itertools.product(names, ("8bit", "32bit")):
        if hasattr(bnb.optim, name + bits):
            for kind, dtype in types.items():
                yield f"{name}{bits} {kind}", partial(_optimised, torch, bnb, name + bits, dtype)


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
    """Results that are not even the same twice in one process (sums by atomics) are counted, and not compared."""
    every = {each.name: of_wheel(each) for each in wheels}
    out.write_text(json.dumps(every, indent=1))
    first: dict[str, str] = next(iter(every.values()))["results"]
    good = bool(first)
    for name, each in every.items():
        results: dict[str, str] = each["results"]
        errors = [case for case, text in results.items() if ":" in text]
        unsteady = [case for case, text in results.items() if " " in text and ":" not in text]
        compared = [case for case in first if case not in unsteady and " " not in first[case].partition(":")[0]]
        other = [case for case in compared if results.get(case) != first[case]]
        good = good and not other and results.keys() == first.keys()
        counts = f"{len(compared)} compared, {len(other)} other than the first's, {len(errors)} errors"
        sys.stdout.write(f"{name}: {len(results)} results, {counts}, {len(unsteady)} unsteady\n")
        lines = [f"{case}: {results.get(case)} / {first[case]}" for case in other[:5]]
        lines += [f"{case}: {results[case]}" for case in errors[:3]] + [each.get("failed", "")[-300:]]
        sys.stdout.write("".join(f"  {line}\n" for line in lines if line))
    return good


if __name__ == "__main__":
    if sys.argv[1] == "inside":
        sys.stdout.write(json.dumps(run()) + "\n")
    elif sys.argv[1] == "run":
        sys.stdout.write(json.dumps(of_wheel(Path(sys.argv[2])), indent=1) + "\n")
    else:
        sys.exit(0 if same(Path(sys.argv[2]), [Path(each) for each in sys.argv[3:]]) else 1)
