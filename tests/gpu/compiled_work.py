"""Something to do for each package of compiled_packages.py: `python3 -m tests.gpu.compiled_work NAME` prints a digest
of the results and the seconds to the first.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_DEVICE = "cuda"


def catboost() -> tuple[bytes, float]:
    package = importlib.import_module("catboost")
    x, y = _table()
    model = package.CatBoostRegressor(
        iterations=50, task_type="GPU", random_seed=1, verbose=False, allow_writing_files=False
    )
    began = time.monotonic()
    model.fit(x, y)
    seconds = time.monotonic() - began
    return model.predict(x).tobytes(), seconds


def xformers() -> tuple[bytes, float]:
    """The largest two of four, and what is left of a matrix by that: without its Python, which wants more."""
    torch: Any = importlib.import_module("torch")
    package = importlib.util.find_spec("xformers")
    torch.ops.load_library(str(Path(str(package and package.origin)).with_name("_C.so")))
    operators = torch.ops.xformers
    values = torch.randn(256, 512, generator=torch.Generator().manual_seed(1))
    torch.ones(1, device=_DEVICE)
    began = time.monotonic()
    operators.sparse24_largest_mask_2d(values.half().to(_DEVICE)).cpu()
    seconds = time.monotonic() - began
    found = []
    for kind in (torch.float16, torch.bfloat16):
        x = values.to(kind).to(_DEVICE)
        *_, masks = operators.sparse24_sparsify_both_ways(x)
        found += [operators.sparse24_largest_mask_2d(x), operators.sparse24_apply_dense_output(x, masks)]
    return b"".join(each.contiguous().view(torch.uint8).cpu().numpy().tobytes() for each in found), seconds


def ctranslate2() -> tuple[bytes, float]:
    """A decoder of two layers with random weights: beam search, and the logits of a forward pass."""
    import numpy as np

    package = importlib.import_module("ctranslate2")
    specs = importlib.import_module("ctranslate2.specs")
    random = np.random.default_rng(1)
    width, words = 64, 128

    def set_linear(linear: Any, out: int, into: int) -> None:
        linear.weight = random.standard_normal((out, into), dtype=np.float32) / 8
        linear.bias = random.standard_normal(out, dtype=np.float32)

    def set_norm(norm: Any) -> None:
        norm.gamma, norm.beta = np.ones(width, np.float32), np.zeros(width, np.float32)

    spec = specs.TransformerDecoderModelSpec.from_config(
        2, 4, pre_norm=True, activation=specs.common_spec.Activation.GELU
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = decoder.projection.weight = random.standard_normal((words, width), dtype=np.float32)
    decoder.position_encodings.encodings = random.standard_normal((64, width), dtype=np.float32)
    set_norm(decoder.layer_norm)
    for layer in decoder.layer:
        set_norm(layer.self_attention.layer_norm)
        set_linear(layer.self_attention.linear[0], 3 * width, width)
        set_linear(layer.self_attention.linear[1], width, width)
        set_norm(layer.ffn.layer_norm)
        set_linear(layer.ffn.linear_0, 4 * width, width)
        set_linear(layer.ffn.linear_1, width, 4 * width)
    spec.register_vocabulary([str(number) for number in range(words)])
    spec.validate()
    spec.optimize(quantization=None)
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        model = package.Generator(folder, device=_DEVICE)
    began = time.monotonic()
    found = model.generate_batch(
        [["0", "5", "7"], ["0", "9", "11"]], max_length=20, beam_size=3, num_hypotheses=2, return_scores=True
    )
    seconds = time.monotonic() - began
    logits = model.forward_batch([["0", "5", "7", "90"]]).to_device(package.Device.cpu)
    told = json.dumps([[each.sequences, each.scores] for each in found])
    return told.encode() + np.array(logits).tobytes(), seconds


def bitsandbytes() -> tuple[bytes, float]:
    """What gives the same bits each time: that needs neither sums by atomics nor cuBLAS, which stand-ins refuse."""
    from tests.gpu import bitsandbytes_results

    torch = importlib.import_module("torch")
    torch.ones(1, device=_DEVICE)
    began = time.monotonic()
    package = importlib.import_module("bitsandbytes")
    package.functional.quantize_blockwise(torch.ones(4096, device=_DEVICE))
    torch.cuda.synchronize()
    seconds = time.monotonic() - began
    results = bitsandbytes_results.run()["results"]
    steady = {name: each for name, each in results.items() if " " not in each and not name.startswith(("LAMB", "LARS"))}
    if len(steady) < len(results) // 2:
        raise RuntimeError(str(results)[:500])
    sys.stderr.write(f"{len(steady)} of {len(results)}\n")
    return json.dumps(steady, sort_keys=True).encode(), seconds


def _table() -> tuple[Any, Any]:
    import numpy as np

    random = np.random.default_rng(1)
    x = random.random((20000, 20), dtype=np.float32)
    return x, x[:, 0] * x[:, 1] + np.sin(x[:, 2] * 6)


if __name__ == "__main__":
    results, seconds = globals()[sys.argv[1]]()
    sys.stdout.write(json.dumps([hashlib.sha256(results).hexdigest(), round(seconds, 3)]) + "\n")
