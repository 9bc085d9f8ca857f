"""The stream told as requests' lives: what trace viewers draw, and what OpenTelemetry calls spans; live and afterwards.

In reading order:
    moments.py          stretches of lives, steps, gauges, moments
    telling.py          entries → moments, by the figures of `timeline.py`; `stretches.py` holds who lives,
                        `notices.py` has names
    request_values.py   one request in plain values, as `show` prints them
    request_traces.py   moments → a request's span and its children; `request_attributes.py` is what they bear,
                        `trace_ids.py` what they are called
"""
