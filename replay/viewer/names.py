"""Many short texts, found by what is in them: one buffer and where each ends. It knows no requests."""

from bisect import bisect_right

import numpy as np

from replay.viewer.framing import Array


class Names:
    """Texts by their places, which stay: appended one by one, as UTF-8 back to back."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends: list[int] = []

    def __len__(self) -> int:
        return len(self._ends)

    def append(self, text: str) -> None:
        self._bytes += text.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._bytes))

    def __getitem__(self, place: int) -> str:
        begin = self._ends[place - 1] if place else 0
        return self._bytes[begin : self._ends[place]].decode("utf-8", "surrogatepass")

    def having(self, text: str) -> Array:
        """Places, ascending, of those that have `text` in them; all of them for ""."""
        if not text:
            return np.arange(len(self._ends))
        wanted = text.encode("utf-8", "surrogatepass")
        found: list[int] = []
        at = self._bytes.find(wanted)
        while at >= 0:
            place = bisect_right(self._ends, at)
            end = self._ends[place]
            if at + len(wanted) <= end:
                found.append(place)
                at = self._bytes.find(wanted, end)
            else:  # from one into the next
                at = self._bytes.find(wanted, at + 1)
        return np.array(found, np.int64)
