"""Which slices are whose: numbers of slices sorted by request, each request's in order of time. It knows no columns."""

import numpy as np

from replay.viewer.framing import Array


class ByRequest:
    """Over the slices numbered from `first` on: `requests` and `begins` of each."""

    def __init__(self, requests: Array, begins: Array, first: int = 0) -> None:
        self._order = np.lexsort((begins, requests)) + first
        in_order = requests[self._order - first]
        self._firsts = np.flatnonzero(np.diff(in_order.astype(np.int64), prepend=-1))
        self._requests = in_order[self._firsts]

    def of(self, requests: Array) -> tuple[Array, Array]:
        """(place in `requests`, number of the slice) for all slices of these requests, in their order."""
        if not len(self._requests) or not len(requests):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        ends = np.append(self._firsts[1:], len(self._order))
        found = np.searchsorted(self._requests, requests)
        found[found == len(self._requests)] = 0
        known = self._requests[found] == requests
        begin = np.where(known, self._firsts[found], 0)
        lengths = np.where(known, ends[found] - begin, 0)
        places = np.repeat(np.arange(len(requests)), lengths)
        offsets = np.arange(len(places)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return places, self._order[np.repeat(begin, lengths) + offsets]
