// Package otlp sends spans to an OpenTelemetry collector: OTLP over HTTP, as protobuf. It is the
// only package that uses the SDK of OpenTelemetry.
//
// An [Exporter] is the trace.Tracer of a node. It records every span it is given, and decides
// nothing: trace.Begin begins spans only for requests in recorded traces. A span that has ended
// waits for the next batch, see package outbox. Nothing waits for the collector.
//
// In addition to [Options], the standard environment variables are read, among them
// OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_TIMEOUT, OTEL_EXPORTER_OTLP_CERTIFICATE,
// OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES and OTEL_BSP_SCHEDULE_DELAY.
//
// An Exporter is safe for concurrent use.
package otlp
