"""A recording as OpenTelemetry spans: a trace for each request, in OTLP/JSON, one `TracesData` object a line.

The request's span bears the GenAI attributes of the current registry and, under `reprise.`, all that `show` says of it;
its children are the stretches of its life. Ids are digests of the recording's salt and the request's number, so that
exporting twice gives the same. Whether it was a chat or a completion is not recorded: it is said to be a completion.

Source: OTLP 1.x, JSON Protobuf Encoding and File Exporter; open-telemetry/semantic-conventions-genai.
"""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from engine.core.events import RequestArrived
from replay.export.moments import Began, Closed, Ended, Noted, Opened
from replay.export.otlp_attributes import ENDS_OF_THEIR_OWN, encoded, request_attributes
from replay.export.telling import Telling
from replay.lives import Run

_BATCH_REQUESTS = 64
_KIND_INTERNAL, _KIND_SERVER = 1, 2
_STATUS_ERROR = 2


def write_otlp(run: Run, file: BinaryIO, *, vllm_names: bool = False) -> dict[str, int]:
    """Returns what was written, in counts. Of a preemption the span that follows it tells.

    vllm_names   the attributes that vLLM and SGLang give their spans are there, too
    """
    telling, spans = Telling(), _Spans(run, vllm_names)
    for moment in telling.of(run):
        match moment:
            case Opened():
                spans.live[moment.request] = _Live(moment.arrived, moment.at_ns)
            case Began():
                spans.live[moment.request].stretches.append([moment.name, moment.at_ns, 0, dict(moment.values)])
            case Ended():
                spans.live[moment.request].end(moment)
            case Noted() if moment.request >= 0 and moment.name != "waits":
                spans.live[moment.request].notes.append(moment)
            case Closed():
                spans.close(moment)
        if len(spans.done) >= _BATCH_REQUESTS:
            file.write(spans.as_line())
    if spans.done:
        file.write(spans.as_line())
    return {"requests": telling.num_requests, "spans": spans.num_spans}


@dataclass(slots=True)
class _Live:
    """stretches   [name, from, to, values], in order"""

    arrived: RequestArrived
    at_ns: int
    stretches: list[list[Any]] = field(default_factory=list)
    notes: list[Noted] = field(default_factory=list)

    def end(self, moment: Ended) -> None:
        stretch = self.stretches[-1]
        stretch[2] = moment.at_ns
        stretch[3] |= moment.values


class _Spans:
    """
    live   requests under way
    done   finished spans of whole requests, not yet written
    """

    def __init__(self, run: Run, vllm_names: bool) -> None:
        self._vllm_names = vllm_names
        header = run.recording.header
        self._salt = header.salt
        self._wall_ns = header.created_wall_ns - header.created_now_ns
        self._model = str(header.environment.get("model") or header.config.get("model", ""))
        self._resource = encoded(
            {
                "service.name": "reprise",
                "service.version": header.reprise_version,
                "reprise.recording": run.recording.path.resolve().name,
                "reprise.numerics_class": str(header.environment.get("numerics_class", "")),
            }
        )
        self.live: dict[int, _Live] = {}
        self.done: list[list[dict[str, Any]]] = []
        self.num_spans = 0

    def close(self, moment: Closed) -> None:
        held = self.live.pop(moment.request)
        trace_id = self._digest(moment.request, 0, 16)
        root = self._span(trace_id, 0, "llm_request", held.at_ns, moment.at_ns)
        root["kind"] = _KIND_SERVER
        root["attributes"] = encoded(
            request_attributes(held.arrived, moment.span, self._model, vllm_names=self._vllm_names)
        )
        root["events"] = [
            {
                "timeUnixNano": str(self._wall_ns + note.at_ns),
                "name": note.name,
                "attributes": encoded(note.values),
            }
            for note in held.notes
        ]
        if moment.span.outcome not in ENDS_OF_THEIR_OWN:
            root["status"] = {"code": _STATUS_ERROR, "message": str(moment.span.outcome)}
        spans = [root]
        for number, (name, begin_ns, end_ns, values) in enumerate(held.stretches, start=1):
            child = self._span(trace_id, number, name, begin_ns, end_ns, moment.request)
            child["attributes"] = encoded({f"reprise.{key}": value for key, value in values.items()})
            spans.append(child)
        self.num_spans += len(spans)
        self.done.append(spans)

    def as_line(self) -> bytes:
        """What is done, as one line; it is forgotten."""
        spans = [span for request in self.done for span in request]
        self.done.clear()
        scope = {"scope": {"name": "reprise.export"}, "spans": spans}
        data = {"resourceSpans": [{"resource": {"attributes": self._resource}, "scopeSpans": [scope]}]}
        return json.dumps(data, separators=(",", ":")).encode() + b"\n"

    def _span(
        self, trace_id: str, number: int, name: str, begin_ns: int, end_ns: int, parent_request: int | None = None
    ) -> dict[str, Any]:
        """Span 0 of a trace is the request's own."""
        span: dict[str, Any] = {
            "traceId": trace_id,
            "spanId": hashlib.blake2b(b"%d" % number, key=bytes.fromhex(trace_id), digest_size=8).hexdigest(),
            "name": name,
            "kind": _KIND_INTERNAL,
            "startTimeUnixNano": str(self._wall_ns + begin_ns),
            "endTimeUnixNano": str(self._wall_ns + end_ns),
        }
        if parent_request is not None:
            span["parentSpanId"] = hashlib.blake2b(b"0", key=bytes.fromhex(trace_id), digest_size=8).hexdigest()
        return span

    def _digest(self, request: int, number: int, size: int) -> str:
        return hashlib.blake2b(b"%d %d" % (request, number), key=self._salt, digest_size=size).hexdigest()
