// Package otlp sends spans to a collector of OpenTelemetry: OTLP over HTTP, as protobuf. It is the
// only package that knows the SDK of OpenTelemetry.
//
// An [Exporter] is the trace.Tracer of a node. It records what it is told to, and decides nothing:
// trace.Begin begins spans only for requests whose own span is kept. A span that has ended waits in
// a queue of bounded length for the next batch. Nothing waits for the collector: if it is slow or
// gone, spans are dropped, and counted.
//
// Besides what [Options] say, the SDK reads the standard variables of the environment, among them
// OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_TIMEOUT, OTEL_EXPORTER_OTLP_CERTIFICATE,
// OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES and OTEL_BSP_SCHEDULE_DELAY.
//
// An Exporter is safe for concurrent use.
package otlp
