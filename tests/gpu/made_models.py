"""Models of random weights, for a machine that reaches no network: of the default model's shape, and of Llama 3 8B's.

Equal on every machine. Speed does not follow from what weights say, nor do the promises; only that answers make sense
is not shown with them. It must not know parts.
"""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models

from engine.execution.rotary import inverse_frequencies
from engine.text.text_model import TextModel
from engine.text.vocabulary import Vocabulary
from kernels.cuda.decoder_weights import DecoderWeights, Tables
from kernels.cuda.device_bench import fixed_planes
from kernels.cuda.planes import LAYOUTS
from kernels.cuda.tiles import Shape, default_plan
from kernels.cuda.weights import Part, Weight
from kernels.decoder import DecoderParameters, DecoderShape, LayerParameters
from kernels.rotary import rotary_tables
from kernels.stored_tensor import StoredTensor
from tests.kernels.cuda.shaped_layers import shaped_layer
from tests.kernels.cuda.stored_matrices import stored_matrix

SMALL = DecoderShape(30, 576, 1536, 9, 3, 64, 49152, 1e-5)
LARGE = DecoderShape(32, 4096, 14336, 32, 8, 128, 128256, 1e-5)
_CONTEXT = 4096


def made_parameters(shape: DecoderShape = SMALL, format: str = "Q4_1", head_format: str = "Q8_0") -> DecoderParameters:
    """As they would lie in a file, the head tied to the embedding."""
    q_size, kv_size = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    norm = _ones(shape.hidden_size)

    def layer(index: int) -> LayerParameters:
        def matrix(place: int, num_outputs: int, num_inputs: int = shape.hidden_size) -> StoredTensor:
            return stored_matrix(format, num_outputs, num_inputs, seed=10 * index + place)

        return LayerParameters(
            attention_norm=norm,
            q=matrix(0, q_size),
            k=matrix(1, kv_size),
            v=matrix(2, kv_size),
            o=matrix(3, shape.hidden_size, q_size),
            mlp_norm=norm,
            gate=matrix(4, shape.intermediate_size),
            up=matrix(5, shape.intermediate_size),
            down=matrix(6, shape.hidden_size, shape.intermediate_size),
        )

    embedding = stored_matrix(head_format, shape.vocab_size, shape.hidden_size, seed=7)
    layers = tuple([layer(index) for index in range(shape.num_layers)])
    return DecoderParameters(shape, embedding, layers, norm, embedding, tuple(inverse_frequencies(1e4, shape.head_dim)))


def _ones(length: int) -> StoredTensor:
    return StoredTensor("F32", (length,), torch.ones(1, length).numpy().view("uint8"))


def made_text_model(vocab_size: int) -> TextModel:
    """Every token a text of its own, none of them an end."""
    texts = tuple([b" %d" % token for token in range(vocab_size)])
    return TextModel(Vocabulary(None, texts, frozenset(), False, (), _CONTEXT, None))


def write_tokens(folder: Path, vocab_size: int) -> Path:
    """A Hugging Face folder without weights, for tests that want the text side of a model alone."""
    folder.mkdir(parents=True)
    config = {"model_type": "llama", "vocab_size": vocab_size, "max_position_embeddings": _CONTEXT}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    vocabulary = {f"t{token}": token for token in range(vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token="t0"))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def made_weights(shape: DecoderShape, format: str, head_format: str, device: torch.device) -> DecoderWeights:
    """Made on the device, a layer's matrices in memory of their own; the head is the embedding."""

    def matrix(num_outputs: int, num_inputs: int, format: str = format) -> Weight:
        of = Shape(LAYOUTS[format], num_outputs, num_inputs)
        return Weight(num_outputs, num_inputs, (Part(0, of, fixed_planes(of, device), default_plan(of)),))

    norm = torch.ones(shape.hidden_size, device=device)
    layers = tuple([shaped_layer(shape, norm, matrix) for _ in range(shape.num_layers)])
    head = matrix(shape.vocab_size, shape.hidden_size, head_format)
    cos, sin = (
        torch.from_numpy(table).to(device)
        for table in rotary_tables(tuple(inverse_frequencies(5e5, shape.head_dim)), _CONTEXT)
    )
    tables = Tables(cos, sin)
    return DecoderWeights(head, layers, norm, head, tables, tables)
