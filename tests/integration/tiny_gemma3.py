"""A random Gemma 3 of seven small layers as one GGUF file, written as its converter writes them: weights, SentencePiece
vocabulary with bytes for what has no token, special tokens, and the chat template of its turns.

Its window is 40 tokens, so that every prompt here slides; layer 5 sees everything.
"""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from numpy.typing import NDArray

WINDOW, CONTEXT, LAYERS = 40, 512, 7
_HIDDEN, _MIDDLE, _HEADS, _HEAD_DIM = 64, 96, 2, 32
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6
_SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")
_WORDS = (
    "▁the",
    "▁a",
    "the",
    "th",
    "he",
    "▁t",
    "er",
    "in",
    "ri",
    "ver",
    "river",
    "▁river",
    "us",
    "user",
    "mo",
    "del",
    "model",
)
_LETTERS = "▁abcdefghijklmnopqrstuvwxyz.,"

CHAT_TEMPLATE = """{{ bos_token }}
{%- for message in messages -%}
{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n'
   + message['content'] | trim + '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif -%}"""


def write_tiny_gemma3(path: Path) -> Path:
    """Make the file; equal bytes every time."""
    writer = GGUFWriter(path, "gemma3")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(_HIDDEN)
    writer.add_feed_forward_length(_MIDDLE)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(1)
    writer.add_key_length(_HEAD_DIM)
    writer.add_value_length(_HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_sliding_window(WINDOW)
    _add_vocabulary(writer)
    _add_weights(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def pieces() -> list[tuple[str, int, float]]:
    """Text, type and score of each token."""
    special = [(text, _UNKNOWN if text == "<unk>" else _CONTROL, -1000.0) for text in _SPECIAL]
    breaks = [("\n" * count, _USER_DEFINED, -1000.0) for count in (1, 2, 3)]
    single_bytes = [(f"<0x{byte:02X}>", _BYTE, 0.0) for byte in range(256)]
    words = [(text, _NORMAL, -float(rank)) for rank, text in enumerate((*_WORDS, *_LETTERS))]
    return [*special, *breaks, *single_bytes, *words]


def _add_vocabulary(writer: GGUFWriter) -> None:
    texts, types, scores = zip(*pieces(), strict=True)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(list(texts))
    writer.add_token_types(list(types))
    writer.add_token_scores(list(scores))
    for name, number in (("pad", 0), ("eos", 1), ("bos", 2), ("unk", 3)):
        getattr(writer, f"add_{name}_token_id")(number)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _add_weights(writer: GGUFWriter) -> None:
    rng = np.random.default_rng(11)

    def add(name: str, rows: int, columns: int, format: str) -> None:
        values = (rng.standard_normal((rows, columns)) * 2 * columns**-0.5).astype(np.float32)
        _add(writer, name, values, format)

    def add_norm(name: str, length: int) -> None:
        writer.add_tensor(name, (1 + 0.2 * rng.standard_normal(length)).astype(np.float32))

    add("token_embd.weight", len(pieces()), _HIDDEN, "Q8_0")
    for layer in range(LAYERS):
        prefix = f"blk.{layer}"
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            add_norm(f"{prefix}.{name}.weight", _HIDDEN)
        for name in ("attn_q_norm", "attn_k_norm"):
            add_norm(f"{prefix}.{name}.weight", _HEAD_DIM)
        add(f"{prefix}.attn_q.weight", _HEADS * _HEAD_DIM, _HIDDEN, "Q5_0")
        add(f"{prefix}.attn_k.weight", _HEAD_DIM, _HIDDEN, "Q5_0")
        add(f"{prefix}.attn_v.weight", _HEAD_DIM, _HIDDEN, "Q8_0")
        add(f"{prefix}.attn_output.weight", _HIDDEN, _HEADS * _HEAD_DIM, "Q8_0")
        add(f"{prefix}.ffn_gate.weight", _MIDDLE, _HIDDEN, "Q5_0")
        add(f"{prefix}.ffn_up.weight", _MIDDLE, _HIDDEN, "Q5_0")
        add(f"{prefix}.ffn_down.weight", _HIDDEN, _MIDDLE, "Q8_0")
    add_norm("output_norm.weight", _HIDDEN)


def _add(writer: GGUFWriter, name: str, values: NDArray[np.float32], format: str) -> None:
    kind = GGMLQuantizationType[format]
    writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
