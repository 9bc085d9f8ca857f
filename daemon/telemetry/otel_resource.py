"""Who sends: OpenTelemetry's resource. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word."""

from opentelemetry.sdk.resources import OTELResourceDetector, Resource


def resource_of(version: str) -> Resource:
    own = Resource({"service.name": "reprise", "service.version": version})
    return own.merge(OTELResourceDetector().detect())
