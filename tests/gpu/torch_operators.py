"""Operators of PyTorch, by what they need of its libraries. See operators.py."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Operators: TypeAlias = Iterator[tuple[str, Any]]  # a name, and a function of nothing

_N = 512


def _seeded(torch: Any, *shape: int, dtype: Any = None) -> Any:
    generator = torch.Generator().manual_seed(11)
    made = torch.randn(*shape, generator=generator)
    return made.to(dtype or torch.float32).cuda()


def _matmuls(torch: Any) -> Operators:
    for name in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128"):
        for size in (17, 128, _N, 2048):
            a = _seeded(torch, size, size, dtype=getattr(torch, name))
            yield f"matmul {name} {size}", lambda a=a: a @ a
        a = _seeded(torch, 8, 64, 96, dtype=getattr(torch, name))
        yield f"bmm {name}", lambda a=a: torch.bmm(a, a.transpose(1, 2))
        yield f"addmv {name}", lambda a=a: torch.mv(a[0], a[0][0])
    a = _seeded(torch, 1024, 1024)

    def tf32() -> Any:
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return a @ a
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    yield "matmul tf32", tf32
    i8 = (a * 20).clamp(-100, 100).to(torch.int8)
    yield "matmul int8", lambda: torch._int_mm(i8, i8)
    one = torch.tensor(1.0, device="cuda")
    f8, f8t = a.to(torch.float8_e4m3fn), a.to(torch.float8_e4m3fn).t().contiguous().t()
    for out in (torch.bfloat16, torch.float16, torch.float32):
        yield f"matmul fp8 to {out}", lambda out=out: torch._scaled_mm(f8, f8t, scale_a=one, scale_b=one, out_dtype=out)
    linear = torch.nn.functional.linear
    h = a.half()
    yield "linear fp16 bias gelu", lambda: torch.nn.functional.gelu(linear(h, h, h[0]))
    yield "einsum", lambda: torch.einsum("ij,kj->ik", a, a)


def _convolutions(torch: Any) -> Operators:
    functional = torch.nn.functional
    for name in ("float16", "bfloat16", "float32", "float64"):
        x = _seeded(torch, 4, 32, 40, 40, dtype=getattr(torch, name))
        w = _seeded(torch, 64, 32, 3, 3, dtype=getattr(torch, name))
        yield f"conv2d {name}", lambda x=x, w=w: functional.conv2d(x, w, padding=1)
        last = x.to(memory_format=torch.channels_last)
        yield f"conv2d channels last {name}", lambda x=last, w=w: functional.conv2d(x, w, stride=2)
        yield f"conv2d backward {name}", lambda x=x, w=w: _gradients(torch, functional.conv2d, x, w)
        yield f"conv2d groups {name}", lambda x=x: functional.conv2d(x, x[:1, :, :3, :3].transpose(0, 1), groups=32)
    x = _seeded(torch, 2, 8, 16, 16, 16)
    yield "conv3d", lambda: functional.conv3d(x, x[:, :, :3, :3, :3])
    yield "conv_transpose2d", lambda: functional.conv_transpose2d(x[:, :, 0], x[0, :, :8, :3, :3].contiguous())
    yield "conv1d", lambda: functional.conv1d(x[:, :, 0, 0], x[0, :4, :8, 0, :3].contiguous())


def _gradients(torch: Any, work: Callable[..., Any], *inputs: Any) -> Any:
    copies = [each.detach().clone().requires_grad_() for each in inputs]
    return torch.autograd.grad(work(*copies).float().sum(), copies)


def _attentions(torch: Any) -> Operators:
    from_module = importlib.import_module("torch.nn.attention")
    attend = torch.nn.functional.scaled_dot_product_attention
    for backend in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"):
        for name in ("float16", "bfloat16"):
            q = _seeded(torch, 2, 8, 256, 64, dtype=getattr(torch, name))

            def work(*inputs: Any, backend: str = backend) -> Any:
                with from_module.sdpa_kernel(getattr(from_module.SDPBackend, backend)):
                    return attend(*inputs, is_causal=True)

            yield f"attention {backend} {name}", lambda work=work, q=q: work(q, q, q)
            yield f"attention backward {backend} {name}", lambda work=work, q=q: _gradients(torch, work, q, q, q)
    torch.manual_seed(5)
    layer = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True, device="cuda").eval()
    x = _seeded(torch, 2, 32, 64)
    yield "transformer layer", lambda: layer(x)


def _orders(torch: Any) -> Operators:
    for name in ("float32", "float16", "int64", "int32", "uint8"):
        x = (_seeded(torch, 100_000) * 100).to(getattr(torch, name))
        yield f"sort {name}", lambda x=x: torch.sort(x, stable=True)
        yield f"topk {name}", lambda x=x: torch.topk(x, 50)[0]
        yield f"cumsum {name}", lambda x=x: torch.cumsum(x, 0)
        yield f"unique {name}", lambda x=x: torch.unique(x)
        yield f"sum {name}", lambda x=x: x.sum()
        yield f"max {name}", lambda x=x: x.max()
    x = _seeded(torch, 300, 400)
    for name in ("cumprod", "cummax", "logcumsumexp", "argsort", "flip", "prod", "std", "var", "median", "mode"):
        work, along = getattr(torch, name), (0,) if name == "flip" else 1
        yield name, lambda work=work, along=along: work(x, along)
    yield "histc", lambda: torch.histc(x, 50)
    yield "bincount", lambda: torch.bincount((x.abs() * 10).long().flatten())
    yield "searchsorted", lambda: torch.searchsorted(torch.sort(x[0])[0], x[1])
    yield "masked_select", lambda: x[x > 0]
    yield (
        "scatter_add int",
        lambda: torch.zeros(50, dtype=torch.long, device="cuda").scatter_add(
            0, (x.abs() * 10).long().flatten() % 50, torch.ones(120_000, dtype=torch.long, device="cuda")
        ),
    )


def _linalg(torch: Any) -> Operators:
    linalg = torch.linalg
    for name in ("float32", "float64", "complex64"):
        a = _seeded(torch, 96, 96, dtype=getattr(torch, name))
        spd = a @ a.mH + 96 * torch.eye(96, device="cuda", dtype=a.dtype)
        batch = torch.stack([spd] * 5)
        for driver in ("gesvd", "gesvdj", "gesvda"):
            yield f"svd {driver} {name}", lambda a=a, driver=driver: linalg.svd(a, driver=driver)[1]
        yield f"solve {name}", lambda a=a: linalg.solve(a, a.mT)
        yield f"cholesky {name}", lambda a=spd: linalg.cholesky(a)
        yield f"cholesky batched {name}", lambda a=batch: linalg.cholesky(a)
        yield f"cholesky_solve {name}", lambda a=spd: torch.cholesky_solve(a, linalg.cholesky(a))
        yield f"qr {name}", lambda a=a: linalg.qr(a)
        yield f"lu {name}", lambda a=a: linalg.lu(a)
        yield f"inv {name}", lambda a=a: linalg.inv(a)
        yield f"inv batched {name}", lambda a=batch: linalg.inv(a)
        yield f"eigh {name}", lambda a=spd: linalg.eigh(a)[0]
        yield f"eig {name}", lambda a=a: linalg.eigvals(a)
        yield f"lstsq {name}", lambda a=a: linalg.lstsq(a, a)[0]
        yield f"det {name}", lambda a=a: linalg.slogdet(a)
        yield f"triangular {name}", lambda a=spd: linalg.solve_triangular(a.triu(), a, upper=True)
        yield f"matrix_exp {name}", lambda a=a: linalg.matrix_exp(a / 50)
        yield f"ldl {name}", lambda a=spd: linalg.ldl_factor(a)[0]


def _transforms(torch: Any) -> Operators:
    fft = torch.fft
    for size in (64, 100, 127, 1 << 14, 3 * 5 * 7 * 11):
        x = _seeded(torch, 4, size)
        yield f"rfft {size}", lambda x=x: torch.view_as_real(fft.rfft(x))
        yield f"fft double {size}", lambda x=x: torch.view_as_real(fft.fft(x.double()))
        yield f"irfft {size}", lambda x=x: fft.irfft(fft.rfft(x))
    x = _seeded(torch, 8, 64, 64)
    yield "fft2", lambda: torch.view_as_real(fft.fft2(x))
    yield "fftn", lambda: torch.view_as_real(fft.fftn(x))
    yield "fft half", lambda: torch.view_as_real(fft.fft(x.half()).to(torch.complex64))
    yield (
        "stft",
        lambda: torch.view_as_real(
            torch.stft(x.flatten()[:8192], 256, window=torch.hann_window(256, device="cuda"), return_complex=True)
        ),
    )


def _random(torch: Any) -> Operators:
    def seeded(work: Any) -> Callable[[], Any]:
        def again() -> Any:
            torch.cuda.manual_seed(3)
            return work()

        return again

    x = torch.full((1000,), 0.3, device="cuda")
    for name in ("rand", "randn"):
        for dtype in ("float16", "float32", "float64"):
            make = getattr(torch, name)
            kind = getattr(torch, dtype)
            yield f"{name} {dtype}", seeded(lambda make=make, kind=kind: make(10_000, device="cuda", dtype=kind))
    yield "randint", seeded(lambda: torch.randint(0, 1000, (10_000,), device="cuda"))
    yield "randperm", seeded(lambda: torch.randperm(10_000, device="cuda"))
    yield "bernoulli", seeded(lambda: torch.bernoulli(x))
    yield "poisson", seeded(lambda: torch.poisson(x * 10))
    yield "multinomial", seeded(lambda: torch.multinomial(x, 100))
    yield "exponential", seeded(lambda: torch.empty(1000, device="cuda").exponential_())
    yield "gamma", seeded(lambda: torch._standard_gamma(x))
    yield "dropout", seeded(lambda: torch.nn.functional.dropout(x))


def _sparse(torch: Any) -> Operators:
    dense = _seeded(torch, 256, 256)
    dense = dense * (dense > 1)
    for name in ("float32", "float64"):
        d = dense.to(getattr(torch, name))
        yield f"sparse coo mm {name}", lambda d=d: torch.sparse.mm(d.to_sparse(), d)
        yield f"sparse csr mm {name}", lambda d=d: d.to_sparse_csr() @ d
        yield f"sparse csr mv {name}", lambda d=d: d.to_sparse_csr() @ d[0]
        yield f"sparse sparse mm {name}", lambda d=d: torch.sparse.mm(d.to_sparse(), d.to_sparse()).to_dense()
        yield f"sparse bsr mm {name}", lambda d=d: d.to_sparse_bsr((16, 16)) @ d
        yield f"sampled addmm {name}", lambda d=d: torch.sparse.sampled_addmm(d.to_sparse_csr(), d, d).to_dense()
    half = _seeded(torch, 128, 128, dtype=torch.float16)
    mask = torch.tensor([0, 0, 1, 1], device="cuda", dtype=torch.bool).tile((128, 32))

    def structured() -> Any:
        sparse = importlib.import_module("torch.sparse")
        return sparse.to_sparse_semi_structured(half * mask) @ half

    yield "semi-structured", structured


def _layers(torch: Any) -> Operators:
    functional, nn = torch.nn.functional, torch.nn
    x = _seeded(torch, 4, 16, 32, 32)
    for name in ("relu", "gelu", "silu", "softmax", "log_softmax", "tanh", "mish", "softplus", "hardswish"):
        work = getattr(functional, name)
        extra = {"dim": 1} if "softmax" in name else {}
        yield name, lambda work=work, extra=extra: work(x, **extra)
        yield f"{name} backward", lambda work=work, extra=extra: _gradients(torch, lambda a: work(a, **extra), x)
    yield "layer_norm", lambda: functional.layer_norm(x, x.shape[1:])
    yield "group_norm", lambda: functional.group_norm(x, 4)
    yield "batch_norm", lambda: functional.batch_norm(x, None, None, training=True)
    yield "max_pool2d", lambda: functional.max_pool2d(x, 2)
    yield "avg_pool2d", lambda: functional.avg_pool2d(x, 3)
    yield "adaptive_avg_pool2d", lambda: functional.adaptive_avg_pool2d(x, 5)
    yield "interpolate", lambda: functional.interpolate(x, scale_factor=2.0, mode="bicubic")
    yield "grid_sample", lambda: functional.grid_sample(x, x[:, :2].permute(0, 2, 3, 1).tanh(), align_corners=False)
    yield "cross_entropy", lambda: functional.cross_entropy(x[:, :, 0, 0], torch.arange(4, device="cuda"))
    yield "embedding", lambda: functional.embedding(torch.arange(16, device="cuda"), x[0, 0])
    torch.manual_seed(5)
    for kind in ("LSTM", "GRU", "RNN"):
        layer = getattr(nn, kind)(32, 48, 2, device="cuda")
        yield kind, lambda layer=layer: layer(x[0])[0]
    weights = [_seeded(torch, 100, 100) for _ in range(3)]

    def adam() -> Any:
        leaves = [each.clone().requires_grad_() for each in weights]
        chosen = torch.optim.Adam(leaves, lr=0.1, fused=True)
        sum(each.square().sum() for each in leaves).backward()
        chosen.step()
        return leaves

    yield "fused adam", adam


def _others(torch: Any) -> Operators:
    x = _seeded(torch, _N, _N)

    def graph() -> Any:
        still = x.clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            _ = still @ still
        torch.cuda.current_stream().wait_stream(stream)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            out = still @ still + 1
        captured.replay()
        return out

    yield "cuda graph", graph
    compiled = torch.compile(lambda a: torch.softmax(a @ a, 1).relu() * 2)
    yield "torch.compile", lambda: compiled(x)


def _collectives(torch: Any) -> Operators:
    x = _seeded(torch, _N, _N)
    torch.cuda.set_device(0)
    store = Path(tempfile.mkdtemp(), "store")
    torch.distributed.init_process_group("nccl", init_method=f"file://{store}", rank=0, world_size=1)
    for name in ("all_reduce", "broadcast", "all_gather", "reduce_scatter"):
        yield f"nccl {name}", lambda name=name: _collective(torch, name, x.clone())


def _bitsandbytes(torch: Any) -> Operators:
    if importlib.util.find_spec("bitsandbytes") is None:
        return
    bits: Any = importlib.import_module("bitsandbytes.functional")
    x = _seeded(torch, _N, _N)
    half = x.half()
    yield "bitsandbytes 4 bit", lambda: bits.dequantize_4bit(*bits.quantize_4bit(half))
    yield "bitsandbytes 8 bit", lambda: bits.dequantize_blockwise(*bits.quantize_blockwise(x))
    yield "bitsandbytes int8", lambda: bits.int8_vectorwise_quant(half)[0]


def _collective(torch: Any, name: str, x: Any) -> Any:
    distributed = torch.distributed
    if name == "all_reduce":
        distributed.all_reduce(x)
    elif name == "broadcast":
        distributed.broadcast(x, 0)
    elif name == "all_gather":
        out = [torch.empty_like(x)]
        distributed.all_gather(out, x)
        return out[0]
    else:
        out = torch.empty_like(x)
        distributed.reduce_scatter(out, [x])
        return out
    return x


PARTS = (
    *(_matmuls, _convolutions, _attentions, _orders, _linalg, _transforms),
    *(_random, _sparse, _layers, _others, _collectives, _bitsandbytes),
)
