"""Whether and where OpenTelemetry is sent: two options of ours, and the variables that every OpenTelemetry SDK reads.

The SDK itself reads what else there is: headers, timeouts, certificates, samplers, batch sizes, resource attributes.

Source: OpenTelemetry specification, SDK environment variables and OTLP exporter configuration.
"""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from engine.core.errors import EngineError

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class InvalidOtelSetting(EngineError):
    """An option or variable for OpenTelemetry cannot be used; the message names it and says what to give instead."""


class OtelSettings(NamedTuple):
    """Full URLs; "" where a signal is not sent."""

    traces_endpoint: str
    metrics_endpoint: str

    @property
    def is_enabled(self) -> bool:
        return bool(self.traces_endpoint or self.metrics_endpoint)


def read_otel_settings(traces_option: str, metrics_option: str, environment: Mapping[str, str]) -> OtelSettings:
    """Options win over variables. Raises InvalidOtelSetting."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return OtelSettings("", "")
    return OtelSettings(
        _endpoint("traces", traces_option, environment), _endpoint("metrics", metrics_option, environment)
    )


def _endpoint(signal: str, option: str, environment: Mapping[str, str]) -> str:
    of_signal = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
    exporter = f"OTEL_{signal.upper()}_EXPORTER"
    if option:
        url, place = _with_path(option, signal, only_if_bare=True), f"--otlp-{signal}-endpoint"
    elif environment.get(exporter, "otlp") != "otlp":
        return ""
    elif environment.get(of_signal):
        url, place = environment[of_signal], of_signal
    elif environment.get(_ENDPOINT):
        url, place = _with_path(environment[_ENDPOINT], signal, only_if_bare=False), _ENDPOINT
    else:
        return ""
    parts = urlsplit(url)
    if parts.username or parts.password:  # it would be logged and shown
        raise InvalidOtelSetting(f"{place}: no password may stand in the URL: give it by OTEL_EXPORTER_OTLP_HEADERS")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidOtelSetting(f"{place}: {url!r} cannot be used: give a URL like http://127.0.0.1:4318")
    _require_http(signal, environment)
    return url


def _with_path(url: str, signal: str, *, only_if_bare: bool) -> str:
    if only_if_bare and urlsplit(url).path not in ("", "/"):
        return url
    return f"{url.rstrip('/')}/v1/{signal}"


def _require_http(signal: str, environment: Mapping[str, str]) -> None:
    for name in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = environment.get(name, "")
        if protocol and protocol != "http/protobuf":
            raise InvalidOtelSetting(
                f"{name}: {protocol!r} is not spoken here: set it to http/protobuf, whose port is usually 4318"
            )
        if protocol:
            return
