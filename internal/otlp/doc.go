// Package otlp sends spans to an OpenTelemetry collector: OTLP over HTTP, as protobuf. It is the
// only package that uses the SDK of OpenTelemetry.
//
// An [Exporter] is the trace.Tracer of a node. It records every span it is given, and decides
// nothing: trace.Begin begins spans only for requests in recorded traces. A span that has ended
// waits in a queue of bounded length for the next batch. Nothing waits for the collector: if it is
// slow or gone, spans are dropped, and counted.
//
// In addition to [Options], the SDK reads the standard environment variables, among them
// OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_TIMEOUT, OTEL_EXPORTER_OTLP_CERTIFICATE,
// OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES and OTEL_BSP_SCHEDULE_DELAY.
//
// An Exporter is safe for concurrent use.
package otlp
