"""Spans on their way to the collector: a bounded queue, a thread that sends batches, and what became of each span.

A trace finds room as a whole or is dropped as a whole and counted, so no half trace is shown because of us. A collector
that is away is told of once, and once more when it is back.
"""

import logging
import os
import threading
from collections.abc import Sequence

import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from daemon.telemetry.spans_sent import SpansSent

DEFAULT_MAX_WAITING = 2048  # spans, as the SDK has it

log = structlog.get_logger(__name__)


class CountingExporter(SpanExporter):
    """The sender's thread: another exporter, with its results counted."""

    def __init__(self, exporter: SpanExporter, sent: SpansSent) -> None:
        self._exporter = exporter
        self._sent = sent
        self._is_failing = False
        # it would log a line for each attempt
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception:
            log.exception("spans could not be sent")
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self._sent.num_exported += len(spans)
        else:
            self._sent.num_failed += len(spans)
        self._tell(is_failing=result is not SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def _tell(self, *, is_failing: bool) -> None:
        if is_failing and not self._is_failing:
            log.warning(
                "the collector takes no spans: they are dropped until it does", num_failed=self._sent.num_failed
            )
        elif self._is_failing and not is_failing:
            log.info("the collector takes spans again", num_failed=self._sent.num_failed)
        self._is_failing = is_failing


class SpanBatches(BatchSpanProcessor):
    """`has_room` for a trace, then its spans; `close` at the end."""

    def __init__(self, exporter: SpanExporter, sent: SpansSent) -> None:
        """Batches and their queue are as large as OTEL_BSP_… say."""
        self._max_waiting = int(os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE") or DEFAULT_MAX_WAITING)
        self._sent = sent
        super().__init__(CountingExporter(exporter, sent), max_queue_size=self._max_waiting)

    def has_room(self, num_spans: int) -> bool:
        """Whether they can be taken; they are counted as dropped where not."""
        if self._sent.num_waiting + num_spans <= self._max_waiting:
            return True
        self._sent.num_dropped += num_spans
        return False

    def on_end(self, span: ReadableSpan) -> None:
        self._sent.num_taken += 1
        super().on_end(span)

    def close(self, seconds: float) -> None:
        """Send what waits, for so long at most; a thread that hangs does not keep the process."""
        ending = threading.Thread(target=self.shutdown, name="spans' end", daemon=True)
        ending.start()
        ending.join(seconds)
