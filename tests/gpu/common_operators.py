"""67 common operators of PyTorch that belong to the traced workload, and 18 that are kept out of it. See slim_used.py.

Each is a function of nothing. The same bytes must come from every run: what adds up in no fixed order is not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    Operators: TypeAlias = dict[str, Callable[[], Any]]


def _made(torch: Any, *shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(11)).cuda()


def _seeded(torch: Any, work: Callable[[], Any]) -> Callable[[], Any]:
    def again() -> Any:
        torch.cuda.manual_seed(3)
        return work()

    return again


def traced(torch: Any) -> Operators:
    found = {
        **_products(torch),
        **_layers(torch),
        **_reductions(torch),
        **_indexing(torch),
        **_algebra(torch),
        **_random(torch),
    }
    expected = 67
    if len(found) != expected:
        raise ValueError(f"{len(found)} operators")
    return found


def _products(torch: Any) -> Operators:
    a, h = _made(torch, 512, 512), _made(torch, 512, 512).half()
    b = _made(torch, 8, 64, 96)
    linear = torch.nn.functional.linear
    return {
        "matmul float32": lambda: a @ a,
        "matmul float16": lambda: h @ h,
        "matmul bfloat16": lambda: a.bfloat16() @ a.bfloat16(),
        "matmul float64": lambda: a.double() @ a.double(),
        "bmm": lambda: torch.bmm(b, b.transpose(1, 2)),
        "mv": lambda: torch.mv(a, a[0]),
        "dot": lambda: torch.dot(a[0], a[1]),
        "outer": lambda: torch.outer(a[0], a[1]),
        "addmm": lambda: torch.addmm(a, a, a),
        "einsum": lambda: torch.einsum("ij,kj->ik", a, a),
        "linear": lambda: linear(a, a, a[0]),
        "linear float16": lambda: linear(h, h, h[0]),
    }


def _layers(torch: Any) -> Operators:
    functional = torch.nn.functional
    x, w = _made(torch, 4, 16, 32, 32), _made(torch, 24, 16, 3, 3)
    line, taps = _made(torch, 4, 16, 128), _made(torch, 24, 16, 5)
    q = _made(torch, 2, 8, 128, 64).half()
    torch.manual_seed(5)
    recurrent = torch.nn.LSTM(32, 48, 2, device="cuda")
    return {
        "conv1d": lambda: functional.conv1d(line, taps, padding=2),
        "conv2d": lambda: functional.conv2d(x, w, padding=1),
        "conv2d float16": lambda: functional.conv2d(x.half(), w.half(), padding=1),
        "conv_transpose2d": lambda: functional.conv_transpose2d(x, w.transpose(0, 1), stride=2),
        "max_pool2d": lambda: functional.max_pool2d(x, 2),
        "avg_pool2d": lambda: functional.avg_pool2d(x, 2),
        "adaptive_avg_pool2d": lambda: functional.adaptive_avg_pool2d(x, 5),
        "batch_norm": lambda: functional.batch_norm(x, None, None, training=True),
        "layer_norm": lambda: functional.layer_norm(x, x.shape[1:]),
        "group_norm": lambda: functional.group_norm(x, 4),
        "attention": lambda: functional.scaled_dot_product_attention(q, q, q, is_causal=True),
        "relu": lambda: functional.relu(x),
        "gelu": lambda: functional.gelu(x),
        "silu": lambda: functional.silu(x),
        "sigmoid": lambda: torch.sigmoid(x),
        "tanh": lambda: torch.tanh(x),
        "softmax": lambda: functional.softmax(x, 1),
        "log_softmax": lambda: functional.log_softmax(x, 1),
        "cross_entropy": lambda: functional.cross_entropy(x[:, :, 0, 0], torch.arange(4, device="cuda")),
        "mse_loss": lambda: functional.mse_loss(x, x + 1),
        "interpolate": lambda: functional.interpolate(x, scale_factor=2.0, mode="bilinear"),
        "pad": lambda: functional.pad(x, (1, 2, 3, 4), mode="reflect"),
        "lstm": lambda: recurrent(x[0])[0],
    }


def _reductions(torch: Any) -> Operators:
    x = _made(torch, 300, 400)
    return {
        "sum": x.sum,
        "mean": lambda: x.mean(1),
        "std": lambda: x.std(1),
        "max": lambda: x.max(1)[0],
        "argmax": lambda: x.argmax(1),
        "norm": lambda: torch.linalg.vector_norm(x, dim=1),
        "logsumexp": lambda: torch.logsumexp(x, 1),
        "cumsum": lambda: torch.cumsum(x, 1),
        "cumprod": lambda: torch.cumprod(x, 1),
        "any": lambda: (x > 3).any(1),
    }


def _indexing(torch: Any) -> Operators:
    x = _made(torch, 300, 400)
    where = torch.arange(300, device="cuda").flip(0)
    return {
        "sort": lambda: torch.sort(x, dim=1, stable=True),
        "topk": lambda: torch.topk(x, 9)[0],
        "unique": lambda: torch.unique((x * 10).long()),
        "gather": lambda: torch.gather(x, 0, where[:, None].expand(300, 400)),
        "scatter": lambda: torch.zeros_like(x).scatter(0, where[:, None].expand(300, 400), x),
        "index_select": lambda: torch.index_select(x, 0, where),
        "masked_select": lambda: x[x > 0],
        "where": lambda: torch.where(x > 0, x, -x),
        "embedding": lambda: torch.nn.functional.embedding(where, x),
        "cat": lambda: torch.cat([x, x], 1),
        "one_hot": lambda: torch.nn.functional.one_hot(where, 300),
        "triu": lambda: torch.triu(x),
    }


def _algebra(torch: Any) -> Operators:
    a = _made(torch, 64, 64)
    spd = a @ a.T + 64 * torch.eye(64, device="cuda")
    x = _made(torch, 4, 512)
    return {
        "cholesky": lambda: torch.linalg.cholesky(spd),
        "qr": lambda: torch.linalg.qr(a),
        "solve": lambda: torch.linalg.solve(spd, a),
        "eigh": lambda: torch.linalg.eigh(spd)[0],
        "rfft": lambda: torch.view_as_real(torch.fft.rfft(x)),
        "fft2": lambda: torch.view_as_real(torch.fft.fft2(a)),
    }


def _random(torch: Any) -> Operators:
    return {
        "rand": _seeded(torch, lambda: torch.rand(10_000, device="cuda")),
        "randn": _seeded(torch, lambda: torch.randn(10_000, device="cuda")),
        "randint": _seeded(torch, lambda: torch.randint(0, 1000, (10_000,), device="cuda")),
        "dropout": _seeded(torch, lambda: torch.nn.functional.dropout(torch.ones(10_000, device="cuda"))),
    }


def held_out(torch: Any) -> Operators:
    functional = torch.nn.functional
    a, x = _made(torch, 64, 64), _made(torch, 4, 16, 32, 32)
    cube = _made(torch, 2, 8, 16, 16, 16)
    torch.manual_seed(5)
    gated = torch.nn.GRU(32, 48, 2, device="cuda")
    return {
        "conv3d": lambda: functional.conv3d(cube, cube[:, :, :3, :3, :3]),
        "conv2d float64": lambda: functional.conv2d(x.double(), x[:, :, :3, :3].double()),
        "conv2d depthwise": lambda: functional.conv2d(x, x[:1, :, :3, :3].transpose(0, 1), groups=16),
        "matmul complex64": lambda: torch.view_as_real(a.to(torch.complex64) @ a.to(torch.complex64)),
        "matmul int8": lambda: torch._int_mm((a * 20).to(torch.int8), (a * 20).to(torch.int8)),
        "matmul float32 2048": lambda: _made(torch, 2048, 2048) @ _made(torch, 2048, 2048),
        "svd": lambda: torch.linalg.svd(a)[1],
        "inverse": lambda: torch.linalg.inv(a),
        "lstsq": lambda: torch.linalg.lstsq(a, a)[0],
        "fft of a prime": lambda: torch.view_as_real(torch.fft.fft(_made(torch, 4, 127))),
        "fft double": lambda: torch.view_as_real(torch.fft.fft(_made(torch, 4, 512).double())),
        "sparse product": lambda: (a * (a > 1)).to_sparse_csr() @ a,
        "gru": lambda: gated(x[0])[0],
        "grid_sample": lambda: functional.grid_sample(x, x[:, :2].permute(0, 2, 3, 1).tanh(), align_corners=False),
        "bicubic": lambda: functional.interpolate(x, scale_factor=2.0, mode="bicubic"),
        "poisson": _seeded(torch, lambda: torch.poisson(torch.full((1000,), 3.0, device="cuda"))),
        "median": lambda: a.median(1)[0],
        "histc": lambda: torch.histc(a, 20),
    }
