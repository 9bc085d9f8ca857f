"""What rows of logits are asked on the device for their draws: launched after a step, left for its one copy back.

Greedy rows need nothing but the step's statistics. For the others a few launches change the logits, find the likeliest
tokens and draw from all where that is asked (`draw_answers.py` goes on, on the host). Buffers grow with need. It must
not know the answers.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from kernels.cuda.draw_requests import MOST_CANDIDATES, MOST_TOP, WIDTHS, DrawRequests, requests_of, takes_the_likeliest
from kernels.cuda.logit_changes import ENTRY_FIELDS, change
from kernels.cuda.row_flags import CANDIDATES, CHANGED, TOP, WHOLE
from kernels.cuda.staging import Kinds, Staging
from kernels.cuda.top_k import flagged_top_k
from kernels.cuda.whole_draw import draw_whole
from kernels.sampling import DrawParameters, DrawRow, ids_of


class Asked(NamedTuple):
    """What the device was asked about `rows`. None: nothing, for all of them take the likeliest."""

    rows: Sequence[DrawRow]
    requests: DrawRequests | None
    vocab_size: int


class DeviceDraws:
    """Of one vocabulary."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._arriving = Staging(_arriving(_grown(0), 1, _grown(0), vocab_size), device)
        self._changed = torch.zeros(0, vocab_size, device=device)

    def ask(self, rows: Sequence[DrawRow], logits: torch.Tensor, left: Mapping[str, torch.Tensor]) -> Asked:
        """Launch all that `rows` need of `logits`, their own rows; the results come to `left`, on the device.

        logits   float32 [rows, vocabulary], contiguous
        left     of the kinds that `leaving` says
        """
        if all(map(takes_the_likeliest, rows)):
            return Asked(rows, None, self._vocab_size)
        requests = requests_of(rows, self._vocab_size)
        here = self._upload(requests)
        bits = int(np.bitwise_or.reduce(requests.flags))
        flags, numbers, changed = here["flags"], here["numbers"], logits
        if bits & CHANGED:
            self.make_room(len(rows))
            changed = self._changed[: len(rows)]
            masks = here["masks"], here["entries"], len(requests.entries)
            change(logits, changed, flags, here["mask_of"], *masks, numbers, here["penalties"])
        if bits & CANDIDATES:
            found = (left[name][: len(rows), : requests.width] for name in ("values", "ids", "raw"))
            flagged_top_k(logits, changed, flags, CANDIDATES, *found)
        if bits & WHOLE:
            found = (left[name][: len(rows)] for name in ("token_id", "token_raw", "total", "margin"))
            draw_whole(logits, changed, flags, left["values"], numbers, *found)
        if bits & TOP:
            count = min(MOST_TOP, self._vocab_size)
            values, ids = (left[name][: len(rows), :count] for name in ("top_values", "top_ids"))
            flagged_top_k(logits, logits, flags, TOP, values, ids, values)
        return Asked(rows, requests, self._vocab_size)

    def warm(self) -> None:
        """Compile all that a draw may need, so that no request waits for it."""
        logits = torch.zeros(1, self._vocab_size, device=self._device)
        left = Staging(leaving(1), self._device).device
        for top_k in WIDTHS:
            parameters = DrawParameters(top_k=min(top_k, self._vocab_size) - 1, num_logprobs=1)
            self.ask([DrawRow(parameters, 0, banned=ids_of([0]))], logits, left)

    def make_room(self, num_rows: int) -> None:
        """For changed logits of so many rows; otherwise it grows with need."""
        if num_rows > len(self._changed):
            self._changed = torch.zeros(_grown(num_rows), self._vocab_size, device=self._device)

    def _upload(self, requests: DrawRequests) -> dict[str, torch.Tensor]:
        """On the device; one copy. What of the staging is larger than the requests is not read."""
        arrays = {name: getattr(requests, name) for name in self._arriving.host}
        self._arriving.wait()
        if any(len(array) > len(self._arriving.host[name]) for name, array in arrays.items()):
            rows, masks, entries = (_grown(len(arrays[name])) for name in ("flags", "masks", "entries"))
            self._arriving = Staging(_arriving(rows, masks, entries, self._vocab_size), self._device)
        for name, array in arrays.items():
            self._arriving.host[name][: len(array)] = array
        self._arriving.upload()
        return self._arriving.device


def leaving(num_rows: int) -> Kinds:
    """What `ask` leaves of so many rows."""
    candidates, top = (num_rows, MOST_CANDIDATES), (num_rows, MOST_TOP)
    return {
        "values": (candidates, torch.float32),
        "ids": (candidates, torch.int32),
        "raw": (candidates, torch.float32),
        "token_id": ((num_rows,), torch.int32),
        "token_raw": ((num_rows,), torch.float32),
        "total": ((num_rows,), torch.float64),
        "margin": ((num_rows,), torch.float64),
        "top_values": (top, torch.float32),
        "top_ids": (top, torch.int32),
    }


def _arriving(num_rows: int, num_masks: int, num_entries: int, vocab_size: int) -> Kinds:
    return {
        "numbers": ((num_rows, 4), torch.float64),
        "flags": ((num_rows,), torch.int32),
        "penalties": ((num_rows, 2), torch.float32),
        "mask_of": ((num_rows,), torch.int32),
        "masks": ((num_masks, -(-vocab_size // 32)), torch.int32),
        "entries": ((num_entries, ENTRY_FIELDS), torch.int32),
    }


def _grown(count: int) -> int:
    return 1 << max(4, (count - 1).bit_length())
