"""What a step takes: a linear form of its shape, as in `engine/core/step_time.py`, with given weights; and copies."""

from dataclasses import astuple, dataclass

from engine.core.step_time import StepShape


@dataclass(frozen=True, slots=True)
class StepCost:
    """Nanoseconds; the defaults are the `cpu` backend's kernels with the default model on two quiet cores (AVX-512).

    fixed_ns           any step
    decode_ns          a row of one token
    context_ns         a token that such a row attends
    prefill_ns         a token of a longer row
    pair_ns            a (token, token it attends) pair in a longer row
    copy_ns            a token of a KV block copied to the host pool or back; the default is 64 µs for a block of
                       16, 368 KB: 45 to 60 were measured on quiet cores, 100 to 160 on busy ones
    """

    fixed_ns: float = 2_000_000
    decode_ns: float = 450_000
    context_ns: float = 100
    prefill_ns: float = 220_000
    pair_ns: float = 40
    copy_ns: float = 4_000

    def of(self, shape: StepShape) -> int:
        return int(
            self.fixed_ns
            + self.decode_ns * shape.num_decodes
            + self.context_ns * shape.decode_context
            + self.prefill_ns * shape.prefill_tokens
            + self.pair_ns * shape.prefill_pairs
        )

    def of_copies(self, num_blocks: int, block_size: int) -> int:
        """Blocks are copied whole, however full they are."""
        return int(self.copy_ns * num_blocks * block_size)

    def as_flags(self) -> str:
        """As `simulate` takes it."""
        return ",".join(f"{value:.6g}" for value in astuple(self))
