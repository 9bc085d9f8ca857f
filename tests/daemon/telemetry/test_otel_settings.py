"""OpenTelemetry is sent where options say, else where the standard's variables say, else not at all."""

import pytest

from daemon.telemetry.otel_settings import InvalidOtelSetting, OtelSettings, read_otel_settings

BASE = "http://collector:4318"


@pytest.mark.parametrize(
    ("option", "environment", "endpoint"),
    [
        ("", {}, ""),
        (BASE, {}, f"{BASE}/v1/traces"),
        (f"{BASE}/", {}, f"{BASE}/v1/traces"),
        (f"{BASE}/own/path", {}, f"{BASE}/own/path"),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": BASE}, f"{BASE}/v1/traces"),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": f"{BASE}/prefix/"}, f"{BASE}/prefix/v1/traces"),
        ("", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{BASE}/as/it/is"}, f"{BASE}/as/it/is"),
        ("http://mine:1", {"OTEL_EXPORTER_OTLP_ENDPOINT": BASE}, "http://mine:1/v1/traces"),
        (BASE, {"OTEL_SDK_DISABLED": "true"}, ""),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": BASE, "OTEL_TRACES_EXPORTER": "none"}, ""),
    ],
)
def test_the_endpoint_of_traces(option: str, environment: dict[str, str], endpoint: str) -> None:
    assert read_otel_settings(option, "", environment).traces_endpoint == endpoint


def test_one_variable_turns_on_both_signals() -> None:
    settings = read_otel_settings("", "", {"OTEL_EXPORTER_OTLP_ENDPOINT": BASE})
    assert settings == OtelSettings(f"{BASE}/v1/traces", f"{BASE}/v1/metrics")


@pytest.mark.parametrize(
    ("option", "environment", "named"),
    [
        ("collector:4318", {}, "--otlp-traces-endpoint"),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "grpc://collector"}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ("http://me:secret@collector", {}, "OTEL_EXPORTER_OTLP_HEADERS"),
        (BASE, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL.*http/protobuf"),
    ],
)
def test_what_cannot_be_used_is_named(option: str, environment: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidOtelSetting, match=named):
        read_otel_settings(option, "", environment)
