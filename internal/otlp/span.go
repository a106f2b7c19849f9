package otlp

import (
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	otel "go.opentelemetry.io/otel/trace"
)

// recording is a span of the SDK as a [trace.Span].
type recording struct{ span otel.Span }

// Set implements [trace.Span].
func (r recording) Set(attributes ...slog.Attr) {
	set := make([]attribute.KeyValue, len(attributes))
	for i, a := range attributes {
		if a.Value.Kind() == slog.KindInt64 {
			set[i] = attribute.Int64(a.Key, a.Value.Int64())
		} else {
			set[i] = attribute.String(a.Key, a.Value.String())
		}
	}
	r.span.SetAttributes(set...)
}

// Fail implements [trace.Span].
func (r recording) Fail(why string) { r.span.SetStatus(codes.Error, why) }

// End implements [trace.Span].
func (r recording) End() { r.span.End() }
