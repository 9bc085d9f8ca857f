"""A model of two layers with random weights, as a Hugging Face folder: real keys and values, a millisecond a step.

Its tokens are the bytes, so that any sequence of them is a prompt, and an answer a text of sorts.
"""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

HIDDEN, HEADS, KV_HEADS, MLP, LAYERS, VOCABULARY, CONTEXT = 64, 4, 2, 96, 2, 257, 512
_SEED = 7


def write_tiny_model(folder: Path) -> Path:
    """Make the folder; equal weights every time."""
    folder.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "intermediate_size": MLP,
        "num_hidden_layers": LAYERS,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "eos_token_id": VOCABULARY - 1,
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    save_file(_weights(), folder / "model.safetensors")
    _tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def _weights() -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    rng = np.random.default_rng(_SEED)
    head = HIDDEN // HEADS
    shapes = {"model.embed_tokens": (VOCABULARY, HIDDEN), "lm_head": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        parts = {
            "self_attn.q_proj": (HIDDEN, HIDDEN),
            "self_attn.k_proj": (KV_HEADS * head, HIDDEN),
            "self_attn.v_proj": (KV_HEADS * head, HIDDEN),
            "self_attn.o_proj": (HIDDEN, HIDDEN),
            "mlp.gate_proj": (MLP, HIDDEN),
            "mlp.up_proj": (MLP, HIDDEN),
            "mlp.down_proj": (HIDDEN, MLP),
        }
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in parts.items()}
    weights = {
        f"{name}.weight": (rng.standard_normal(shape) * 2 * shape[1] ** -0.5).astype(np.float32)
        for name, shape in shapes.items()
    }
    norms = ["model.norm"]
    for layer in range(LAYERS):
        norms += [f"model.layers.{layer}.{name}" for name in ("input_layernorm", "post_attention_layernorm")]
    return weights | {f"{name}.weight": np.ones(HIDDEN, np.float32) for name in norms}


def _tokenizer() -> Tokenizer:
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]  # GPT-2's alphabet writes them from U+0100 on
    vocabulary = {chr(byte): byte for byte in printable}
    vocabulary |= {chr(256 + place): byte for place, byte in enumerate(others)}
    tokenizer = Tokenizer(models.BPE(vocab={**vocabulary, "<end>": VOCABULARY - 1}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    return tokenizer
