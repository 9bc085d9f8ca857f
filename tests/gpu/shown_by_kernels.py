"""Each kernel against float64, at a model's sizes: at least 10^5 values each, in float32 where the kernel gives that.

The bounds are what the arithmetic may lose: float32 sums in any order, and one rounding to bfloat16 where the result is
one. Weights are compared as what they are dequantised to.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from kernels.backend import StepBatch
from kernels.cuda import attention, embedding, head, linear, rms_norm, rotary_kv, silu_mul
from kernels.cuda.attention_plan import AttentionShape, Plan, Sharing, plan_of
from kernels.cuda.weights import pack
from kernels.packing import SequenceRows, pack_batch
from tests.gpu.stage import Outcome, Stage
from tests.kernels.cuda.stored_matrices import stored_matrix

BFLOAT16 = 1.05 * 2.0**-8  # of the value: half a unit in the last place, and a little for what went into it
FLOAT32 = 2.0**-16  # of the sum of magnitudes: a few hundred additions, each half a unit in the last place
FORMATS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K")


def kernels_are_right(stage: Stage) -> Outcome:
    """The largest error of each, as a share of its bound; more than 1 is wrong."""
    checks: dict[str, Callable[[Stage], tuple[float, int]]] = {
        "rms_norm": _rms_norm,
        "silu_mul": _silu_mul,
        "rotary_write": _rotary,
        "attend": _attend,
        "statistics": _statistics,
        **{f"linear {name}": partial(_linear, format=name) for name in FORMATS},
        **{f"embedding {name}": partial(_embedding, format=name) for name in ("Q8_0", "Q4_K")},
    }
    shares: dict[str, float] = {}
    counts: dict[str, int] = {}
    said = []
    for name, check in checks.items():
        try:
            shares[name], counts[name] = check(stage)
        except Exception as error:  # a kernel that does not even run must not hide the others
            shares[name], counts[name] = float("inf"), 0
            said.append(f"{name}: {type(error).__name__}: {error}")
    wrong = [name for name, share in shares.items() if not share <= 1.0]
    few = [] if stage.is_dry else [name for name, count in counts.items() if count < 100_000]
    said += [f"{name}: error {shares[name]:.3g} of its bound, {counts[name]:,} values" for name in shares]
    verdict = f"{len(shares) - len(wrong)} of {len(shares)} kernels within their bounds" + (
        f"; not {wrong}" if wrong else ""
    )
    return Outcome(not wrong and not few, [verdict, *said], {"error_shares": shares, "values": counts})


def _share(actual: torch.Tensor, expected: torch.Tensor, bound: torch.Tensor) -> tuple[float, int]:
    """The largest error as a share of its bound; nan counts as wrong."""
    shares = (actual.double() - expected).abs() / bound.clamp(min=1e-30)
    return float(shares.nan_to_num(nan=float("inf")).max()), actual.numel()


def _numbers(stage: Stage, *shape: int, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw).to(stage.device)


def _rms_norm(stage: Stage) -> tuple[float, int]:
    rows, width = stage.size(256, 3), stage.size(4096, 64)
    hidden, weight = _numbers(stage, rows, width), _numbers(stage, width, seed=1)
    out = torch.empty(rows, width, dtype=torch.bfloat16, device=stage.device)
    rms_norm.rms_norm(hidden, weight, 1e-5, out)
    x = hidden.double()
    expected = x / (x.square().mean(1, keepdim=True) + 1e-5).sqrt() * weight.double()
    return _share(out, expected, expected.abs() * BFLOAT16)


def _silu_mul(stage: Stage) -> tuple[float, int]:
    rows, width = stage.size(256, 3), stage.size(4096, 64)
    gate_up = _numbers(stage, rows, 2 * width) * 4
    out = torch.empty(rows, width, dtype=torch.bfloat16, device=stage.device)
    silu_mul.silu_mul(gate_up, out)
    gate, up = gate_up.double().chunk(2, 1)
    expected = gate * torch.sigmoid(gate) * up
    return _share(out, expected, expected.abs() * BFLOAT16 + 1e-6)


def _linear(stage: Stage, format: str) -> tuple[float, int]:
    rows, outputs, inputs = stage.size(67, 2), stage.size(2048, 70), stage.size(4096, 256)
    stored = stored_matrix(format, outputs, inputs)
    weight = pack([stored], stage.device)
    x = _numbers(stage, rows, inputs).bfloat16()
    out = torch.empty(rows, outputs, device=stage.device)
    linear.linear(x, weight, out)
    numbers = torch.from_numpy(stored.float32()).bfloat16().double().to(stage.device)
    return _share(out, x.double() @ numbers.T, x.double().abs() @ numbers.T.abs() * FLOAT32)


def _embedding(stage: Stage, format: str) -> tuple[float, int]:
    rows, width = stage.size(512, 3), 256
    stored = stored_matrix(format, 1000, width)
    ids = torch.arange(rows, dtype=torch.int32, device=stage.device) * 7 % 1000
    out = torch.empty(rows, width, device=stage.device)
    embedding.gather(ids, pack([stored], stage.device), out)
    expected = torch.from_numpy(stored.float32()).double().to(stage.device)[ids.long()]
    return _share(out, expected, expected.abs() * 2.0**-22 + 1e-7)


def _statistics(stage: Stage) -> tuple[float, int]:
    """Of the logarithms; the ids must be exact. Each goes over all of its row's logits."""
    rows, vocabulary = stage.size(64, 2), stage.size(49152, 60)
    logits = _numbers(stage, rows, vocabulary) * 5
    best = torch.empty(rows, dtype=torch.int32, device=stage.device)
    highest, log_sum = (torch.empty(rows, device=stage.device) for _ in range(2))
    head.statistics(logits, best, highest, log_sum)
    if not torch.equal(best.long(), logits.argmax(1)) or not torch.equal(highest, logits.amax(1)):
        return float("inf"), logits.numel()
    expected = torch.logsumexp(logits.double(), 1)
    return _share(log_sum, expected, expected.abs() * 1e-5)[0], logits.numel()


def _rotary(stage: Stage) -> tuple[float, int]:
    """Queries; keys and values in their slots are what attention's check reads."""
    rows, heads, kv_heads, dim = stage.size(128, 3), 16, 4, 64
    qkv = _numbers(stage, rows, (heads + 2 * kv_heads) * dim)
    positions = torch.arange(rows, dtype=torch.int32, device=stage.device) * 3
    angles = positions.double()[:, None] * torch.logspace(0, -4, dim // 2, dtype=torch.float64, device=stage.device)
    cos, sin = torch.zeros(2, 3 * rows, dim // 2, device=stage.device)
    cos[positions.long()], sin[positions.long()] = angles.cos().float(), angles.sin().float()
    keys, values = (
        torch.zeros(rows // 16 + 2, kv_heads, 16, dim, dtype=torch.bfloat16, device=stage.device) for _ in "kv"
    )
    queries = torch.empty(rows, heads, dim, dtype=torch.bfloat16, device=stage.device)
    slots = torch.arange(rows, device=stage.device)
    rotary_kv.rotary_write(qkv, positions, slots, cos, sin, None, None, 1e-5, queries, keys, values)
    first, second = qkv[:, : heads * dim].double().view(rows, heads, dim).chunk(2, 2)
    c, s = angles.cos()[:, None], angles.sin()[:, None]
    expected = torch.cat((first * c - second * s, second * c + first * s), 2)
    return _share(queries, expected, expected.abs() * BFLOAT16 + 1e-5)


def _attend(stage: Stage) -> tuple[float, int]:
    """A long decode, a long prefill chunk and a short one; several splits, blocks backwards."""
    shape = AttentionShape(*((16, 4, 64, 16) if not stage.is_dry else (4, 2, 16, 16)))
    pieces = [(900, 1), (500, 130), (0, 40)] if not stage.is_dry else [(20, 1), (3, 2)]
    blocks = max(start + count for start, count in pieces) // 16 + 1
    tables = [range((index + 1) * blocks - 1, index * blocks - 1, -1) for index in range(len(pieces))]
    rows = [SequenceRows([0] * count, start, table, 0) for (start, count), table in zip(pieces, tables, strict=True)]
    batch = pack_batch(rows, 16)
    memory = (blocks * len(pieces) + 1, shape.num_kv_heads, 16, shape.head_dim)
    keys, values = (_numbers(stage, *memory, seed=seed).bfloat16() for seed in (1, 2))
    num_rows = len(batch.token_ids)
    queries = _numbers(stage, num_rows, shape.num_heads, shape.head_dim, seed=3).bfloat16()
    out = torch.zeros(num_rows, shape.num_heads * shape.head_dim, dtype=torch.bfloat16, device=stage.device)
    sharing = Sharing(num_programs=8, max_partials=64)
    plan = Plan.room(shape, sharing, max_rows=num_rows, max_sequences=3, max_blocks=blocks, device=stage.device)
    plan.put(plan_of(batch, shape, sharing))
    attention.attend(queries, keys, values, plan, out)
    expected = _plain_attention(batch, queries, keys, values)
    return _share(out, expected, torch.full_like(expected, 4 * BFLOAT16))  # values are about 1, and so are their means


def _plain_attention(batch: StepBatch, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    rows = []
    for row, position in enumerate(batch.positions.tolist()):
        sequence = int(np.searchsorted(batch.query_starts, row, side="right")) - 1
        slots = torch.arange(position + 1)
        blocks = torch.from_numpy(batch.block_tables[sequence])[slots // 16]
        repeats = queries.shape[1] // keys.shape[1]
        k, v = (each[blocks, :, slots % 16].double().repeat_interleave(repeats, 1) for each in (keys, values))
        weights = (torch.einsum("hd,nhd->hn", queries[row].double(), k) / queries.shape[2] ** 0.5).softmax(-1)
        rows.append(torch.einsum("hn,nhd->hd", weights, v).flatten())
    return torch.stack(rows)
