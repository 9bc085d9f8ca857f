"""The engine's entries, as they come, → each request's spans and figures when it has ended.

A reading that fails must not touch what is served: it is switched off then, and says so. It must not know
OpenTelemetry's SDK.
"""

from collections.abc import Callable
from typing import Any

import structlog

from engine.core.limits import Limits
from engine.core.vocabulary import Entry
from recorder.request_span import RequestSpan
from recorder.spans.moments import Closed
from recorder.spans.request_traces import RequestTrace, RequestTraces
from recorder.spans.telling import Telling

log = structlog.get_logger(__name__)


class RequestFeed:
    """
    run            name of the recording, "" for none
    on_trace       told of a request's spans, with what is to be added to their times for the calendar's
    on_end         told of its figures, and the model's name
    """

    def __init__(
        self,
        run: str,
        on_trace: Callable[[RequestTrace, int], None],
        on_end: Callable[[RequestSpan, str], None],
        *,
        vllm_names: bool,
    ) -> None:
        self._run = run
        self._on_trace = on_trace
        self._on_end = on_end
        self._vllm_names = vllm_names
        self._telling = Telling()
        self._traces: RequestTraces | None = None
        self._wall_offset_ns = 0
        self._model = ""
        self._is_broken = False

    def begin_engine(self, info: dict[str, Any]) -> None:
        """`info` as in `Ready`: of the first engine, model and clock hold for the whole run."""
        if self._traces is None:
            self._model = str(info.get("model", ""))
            self._wall_offset_ns = int(info.get("recording", {}).get("wall_offset_ns", 0))
            self._traces = RequestTraces(self._model, self._run, vllm_names=self._vllm_names)
        self._telling.begin_engine(Limits.from_dict(info["limits"]))

    def apply(self, entry: Entry) -> None:
        """Never raises."""
        if self._is_broken or self._traces is None:
            return
        try:
            for moment in self._telling.apply(entry):
                trace = self._traces.take(moment)
                if trace is not None:
                    self._on_trace(trace, self._wall_offset_ns)
                if isinstance(moment, Closed):
                    self._on_end(moment.span, self._model)
        except Exception:
            self._is_broken = True
            log.exception("no spans are sent any more: they could not be made", sequence=entry.sequence)
