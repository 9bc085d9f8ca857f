"""The one door to a model's files."""

from engine.execution.model import Model
from engine.execution.weights.gguf import read_gguf
from engine.execution.weights.safetensors import read_folder
from engine.text.model_source import ModelSource


def load_model(source: ModelSource) -> Model:
    """The model in `source`, its tensors still lying in the files. Raises ModelError with field, figure and remedy."""
    if source.kind == "gguf":
        return read_gguf(source.path)
    return read_folder(source.path)
