"""What every test stands on: the numeric environment, set before any of them imports torch, and the shared model."""

from kernels.numeric_environment import fix_numeric_environment

fix_numeric_environment()

from tests.model_fixtures import default_backend, default_model, default_source, text_tokens  # noqa: E402

__all__ = ["default_backend", "default_model", "default_source", "text_tokens"]
