"""What a step computes between its kernels: one set of tensors per padded number of rows, made once and written anew.

A CUDA graph remembers addresses, so a step of so many rows always works in the same tensors. It must not know weights.
"""

from dataclasses import dataclass

import torch

from kernels.decoder import DecoderShape


@dataclass(frozen=True, slots=True)
class Workspace:
    """
    hidden      float32 [rows, hidden size]: the residual stream
    delta       float32 [rows, hidden size]: what attention or MLP gives to it
    normed      bfloat16 [rows, hidden size]
    qkv         float32 [rows, (heads + 2 × kv heads) × head dim]
    queries     bfloat16 [rows, heads, head dim]
    attended    bfloat16 [rows, heads × head dim]
    gate_up     float32 [rows, 2 × intermediate size]
    activated   bfloat16 [rows, intermediate size]
    """

    hidden: torch.Tensor
    delta: torch.Tensor
    normed: torch.Tensor
    qkv: torch.Tensor
    queries: torch.Tensor
    attended: torch.Tensor
    gate_up: torch.Tensor
    activated: torch.Tensor

    @classmethod
    def of(cls, shape: DecoderShape, num_rows: int, device: torch.device) -> "Workspace":
        """For so many rows. Raises torch.OutOfMemoryError."""

        def floats(*sizes: int) -> torch.Tensor:
            return torch.zeros(num_rows, *sizes, dtype=torch.float32, device=device)

        def halves(*sizes: int) -> torch.Tensor:
            return torch.zeros(num_rows, *sizes, dtype=torch.bfloat16, device=device)

        q_size = shape.num_heads * shape.head_dim
        return cls(
            hidden=floats(shape.hidden_size),
            delta=floats(shape.hidden_size),
            normed=halves(shape.hidden_size),
            qkv=floats(q_size + 2 * shape.num_kv_heads * shape.head_dim),
            queries=halves(shape.num_heads, shape.head_dim),
            attended=halves(q_size),
            gate_up=floats(2 * shape.intermediate_size),
            activated=halves(shape.intermediate_size),
        )

    def rows(self, num_rows: int) -> "Workspace":
        """The first so many rows of each."""
        return Workspace(*(getattr(self, name)[:num_rows] for name in self.__slots__))
