"""A recording's moments, from all of its engine processes: `recorder/spans/telling.py`, fed with what was recorded."""

from collections.abc import Iterator

from engine.core.limits import Limits
from recorder.spans import telling
from recorder.spans.moments import Moment, Noted
from replay.lives import Run


class Telling(telling.Telling):
    """Iterate over one recording's `of`; once."""

    def of(self, run: Run) -> Iterator[Moment]:
        """All lives, in order. Who still lives at the end is closed there."""
        for life in run.lives:
            self.begin_engine(Limits.from_dict(life.header.limits))
            yield Noted("engine began", life.opened_ns, -1, {"segment": life.header.segment_number})
            for entry in life.entries():
                yield from self.apply(entry)
        yield from self.finish()
