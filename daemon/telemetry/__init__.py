"""Readings of the stream for other systems. None of them counts anything itself, and none may hold up a request.

In reading order:
    metrics.py         /metrics, for Prometheus; the names are those of `recorder/metrics/`
    otel_settings.py   whether OpenTelemetry is asked for, by options and by the standard's own variables
    open_telemetry.py  starts and ends it; nothing of its SDK is imported before
    otel_resource.py   who sends
    request_feed.py    entries → ended requests: their spans and durations
    span_sender.py     … spans, through the SDK's sampler and batches; `span_batches.py` bounds and counts these
    metric_sender.py   … what /metrics says and GenAI's durations, through the SDK's instruments
    spans_sent.py      how many spans were sent and lost
    provisioning/      a Grafana dashboard and Prometheus' alert rules over these names
"""
