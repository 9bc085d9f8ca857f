"""A small model of random weights, and prompts for it, in the place of what a recording was made with.

That a request has the same bits alone and in company holds for any model. So a failure of it in scheduling, batching or
memory shows with this one, too: no weights are needed, and no contents, only a recording's counts and digests. Prompts
are synthetic and share whole blocks where the recorded ones did; what a prompt repeats of another's answer is not
repeated here. It must not know what is looked for.
"""

import hashlib
from dataclasses import replace

import numpy as np

from engine.clock import SystemClock
from engine.core.contents import RequestContents
from engine.core.limits import Limits
from engine.execution.kv_store import KVStore
from engine.execution.rotary import inverse_frequencies
from engine.execution.runner import ModelRunner
from engine.text.text_model import TextModel
from engine.text.vocabulary import Vocabulary
from kernels.backend import Backend
from kernels.decoder import DecoderParameters, DecoderShape, LayerParameters
from kernels.dispatch import UnknownBackend, choose_backend, numerics_class
from kernels.stored_tensor import StoredTensor
from recorder.header import Header
from replay.model_runs.open_model import OpenedRunner, Overrides
from replay.model_runs.synthetic_tokens import FIRST_TOKEN, NUM_TOKENS, synthetic_tokens
from replay.shrink.scenario import Caller, Scenario

NAME = "stand-in"
_SHAPE = DecoderShape(
    num_layers=2,
    hidden_size=128,
    intermediate_size=256,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    vocab_size=FIRST_TOKEN + NUM_TOKENS,
    norm_epsilon=1e-5,
)
_ROTARY_BASE = 10_000.0
_ATTENTION = 3.0  # of queries and keys: so that who attends to what makes a difference


def open_stand_in(header: Header, overrides: Overrides) -> OpenedRunner:
    """An `OpenRunner`: the small model under the header's limits, on this machine's processor, or as told."""
    limits = Limits.from_dict(header.limits)
    backend = _backend(overrides.backend)
    backend.load(_parameters(), limits.max_model_len)
    kv_store = KVStore.allocate(backend, limits.num_kv_blocks, limits.block_size, limits.swap_space_blocks)
    runner = ModelRunner(backend, kv_store, TextModel(_vocabulary(limits)), header.salt, SystemClock())
    return OpenedRunner(runner, numerics_class(backend, NAME), {"backend": backend.name, "model": NAME})


def _backend(name: str | None) -> Backend:
    try:
        return choose_backend(name or "cpu", 1, "auto", _SHAPE).backend
    except UnknownBackend:
        if name is not None:
            raise
        return choose_backend("reference", 1, "auto", _SHAPE).backend


def with_stand_in_contents(scenario: Scenario) -> Scenario:
    """Every caller asks with a synthetic prompt, for an answer as long as the recorded one was."""
    key, block_size = scenario.header.salt, scenario.limits.block_size
    return scenario.only(tuple([_with_contents(caller, key, block_size) for caller in scenario.callers]))


def _with_contents(caller: Caller, key: bytes, block_size: int) -> Caller:
    arrived = caller.arrived
    tokens: tuple[int, ...] = ()
    for digest in arrived.prompt_digests:
        tokens += synthetic_tokens(key, digest, block_size)
    tokens += synthetic_tokens(key, b"prompt %d" % caller.number, arrived.num_prompt_tokens - len(tokens))
    given = synthetic_tokens(key, b"given %d" % caller.number, arrived.num_output_tokens)
    sampling = arrived.sampling._replace(ignore_eos=True)
    num_output_tokens = caller.num_own_tokens or arrived.max_output_tokens
    arrived = arrived._replace(max_output_tokens=num_output_tokens, sampling=sampling, grammar_digest=b"")
    return replace(caller, arrived=arrived, contents=RequestContents(tokens, output_token_ids=given))


def _parameters() -> DecoderParameters:
    shape = _SHAPE
    table = _matrix("embedding", shape.vocab_size, shape.hidden_size, 8.0)
    layers = tuple([_layer(f"layer {index}") for index in range(shape.num_layers)])
    frequencies = tuple(inverse_frequencies(_ROTARY_BASE, shape.head_dim))
    return DecoderParameters(shape, table, layers, _ones(shape.hidden_size), table, frequencies)


def _layer(name: str) -> LayerParameters:
    hidden, middle = _SHAPE.hidden_size, _SHAPE.intermediate_size
    q_size, kv_size = _SHAPE.num_heads * _SHAPE.head_dim, _SHAPE.num_kv_heads * _SHAPE.head_dim
    return LayerParameters(
        attention_norm=_ones(hidden),
        q=_matrix(f"{name} q", q_size, hidden, _ATTENTION),
        k=_matrix(f"{name} k", kv_size, hidden, _ATTENTION),
        v=_matrix(f"{name} v", kv_size, hidden),
        o=_matrix(f"{name} o", hidden, q_size),
        mlp_norm=_ones(hidden),
        gate=_matrix(f"{name} gate", middle, hidden),
        up=_matrix(f"{name} up", middle, hidden),
        down=_matrix(f"{name} down", hidden, middle),
    )


def _matrix(name: str, num_rows: int, num_columns: int, scale: float = 1.0) -> StoredTensor:
    """Uniform numbers that follow from the name, of a standard deviation of scale / sqrt(num_columns)."""
    drawn = np.frombuffer(hashlib.shake_256(name.encode()).digest(2 * num_rows * num_columns), np.uint16)
    values = (drawn.astype(np.float32) / 32_767.5 - 1.0) * np.float32(scale * (3.0 / num_columns) ** 0.5)
    return StoredTensor("F32", (num_rows, num_columns), values.reshape(num_rows, num_columns).view(np.uint8))


def _ones(length: int) -> StoredTensor:
    return StoredTensor("F32", (length,), np.ones((1, length), np.float32).view(np.uint8))


def _vocabulary(limits: Limits) -> Vocabulary:
    words = tuple([b" %d" % token_id for token_id in range(_SHAPE.vocab_size)])
    return Vocabulary(None, words, frozenset(), False, (), limits.max_model_len, None)
