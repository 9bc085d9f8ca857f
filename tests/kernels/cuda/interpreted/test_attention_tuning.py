"""Wide tiles are used where they give equal bits and are faster, and the bits do not follow the choice."""

import pytest
import torch

from kernels.cuda import attention_tuning
from kernels.cuda.attention_tuning import WideTiles, wide_tiles


@pytest.fixture(autouse=True)
def a_device_that_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs that the interpreter bears; and its times are no device's."""
    monkeypatch.setattr(attention_tuning, "CHUNKS", ((252, 9), (0, 1)))
    monkeypatch.setattr(attention_tuning, "NUM_PROGRAMS", 2)
    monkeypatch.setattr(attention_tuning._Trial, "seconds", lambda self, has_wide: 1.0 if has_wide else 2.0)


def chosen(num_heads: int = 4, kind: torch.dtype = torch.bfloat16) -> WideTiles:
    return wide_tiles(num_heads, 1, 16, kind, (0, 12), torch.device("cpu"))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.uint8])
def test_the_faster_of_equal_bits_is_used(kind: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = chosen(kind=kind)
    assert wide[:2] == (True, True)
    monkeypatch.setattr(attention_tuning._Trial, "seconds", lambda self, has_wide: 2.0 if has_wide else 1.0)
    assert chosen(kind=kind) == WideTiles(are_used=False, are_equal=True, bits=wide.bits)


def test_tiles_of_other_bits_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    attended = attention_tuning._Trial.attended

    def one_bit_off(self: attention_tuning._Trial, window: int, *, has_wide: bool) -> bytes:
        found = attended(self, window, has_wide=has_wide)
        return found[:-1] + bytes([found[-1] ^ has_wide])

    expected = chosen()
    monkeypatch.setattr(attention_tuning._Trial, "attended", one_bit_off)
    assert chosen() == WideTiles(are_used=False, are_equal=False, bits=expected.bits)


def test_where_a_kv_head_has_as_many_heads_as_a_tile_has_rows_there_is_nothing_to_choose() -> None:
    assert chosen(num_heads=32)[:2] == (False, True)
