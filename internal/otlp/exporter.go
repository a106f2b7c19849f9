package otlp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	otel "go.opentelemetry.io/otel/trace"

	"twotier.dev/twotier/internal/outbox"
	"twotier.dev/twotier/internal/trace"
)

// Options configure an [Exporter].
type Options struct {
	// Endpoint is the URL that spans are posted to, with its path. Required.
	Endpoint string
	// Service is the name of the service unless the environment has one, Node the name of this
	// instance, and Version its version.
	Service, Node, Version string
	// Logger receives a message when spans can't be sent, and one when they can again; nil means
	// silence.
	Logger *slog.Logger

	exporter sdk.SpanExporter // in place of one for Endpoint, in tests
}

// Exporter records spans and sends them. Make one with [New].
type Exporter struct {
	*processor
	provider *sdk.TracerProvider
	tracer   otel.Tracer
}

// New returns an exporter that sends nothing before Open.
func New(ctx context.Context, opt Options) (*Exporter, error) {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	to := opt.exporter
	if to == nil {
		var err error
		to, err = otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(opt.Endpoint))
		if err != nil {
			return nil, fmt.Errorf("--otlp-endpoint: %w", err)
		}
	}
	// Later attributes replace earlier ones.
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", opt.Service),
		attribute.String("service.version", opt.Version),
		attribute.String("service.instance.id", opt.Node)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	x := &Exporter{processor: newProcessor(to, opt.Logger)}
	x.provider = sdk.NewTracerProvider(sdk.WithSampler(sdk.AlwaysSample()),
		sdk.WithResource(about), sdk.WithSpanProcessor(x.processor))
	x.tracer = x.provider.Tracer("twotier.dev/twotier",
		otel.WithInstrumentationVersion(opt.Version))
	return x, nil
}

// Start implements trace.Tracer.
func (x *Exporter) Start(id [16]byte, parent [8]byte, state, name string,
	began time.Time) (trace.Span, [8]byte) {
	parsed, _ := otel.ParseTraceState(state) // one that is malformed is left out
	asks := otel.NewSpanContext(otel.SpanContextConfig{TraceID: id, SpanID: parent,
		TraceFlags: otel.FlagsSampled, TraceState: parsed, Remote: true})
	_, span := x.tracer.Start(otel.ContextWithRemoteSpanContext(context.Background(), asks), name,
		otel.WithTimestamp(began), otel.WithSpanKind(otel.SpanKindServer))
	return recording{span}, span.SpanContext().SpanID()
}

// Close sends the remaining spans. Spans that are not sent when ctx is done are dropped. It may be
// called twice.
func (x *Exporter) Close(ctx context.Context) error {
	x.Queue.Close(ctx)
	if err := x.provider.Shutdown(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("end the exporter of spans: %w", err)
	}
	return nil
}

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

// maxQueue bounds the waiting spans. A span takes about three kilobytes.
const maxQueue = 2048

// processor queues the spans that have ended, and sends them in batches. It replaces the one of the
// SDK, which drops spans silently.
type processor struct {
	*outbox.Queue[sdk.ReadOnlySpan]
	to      sdk.SpanExporter
	timeout time.Duration // of a batch
}

// newProcessor returns a processor for spans that go to an exporter.
func newProcessor(to sdk.SpanExporter, log *slog.Logger) *processor {
	milliseconds := func(name string, usual int) time.Duration {
		return time.Duration(setting(name, usual)) * time.Millisecond
	}
	p := &processor{to: to, timeout: milliseconds("OTEL_BSP_EXPORT_TIMEOUT", 30_000)}
	p.Queue = outbox.New(outbox.Options[sdk.ReadOnlySpan]{Send: p.send, Most: maxQueue,
		Batch:  min(maxQueue, setting("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)),
		Gather: milliseconds("OTEL_BSP_SCHEDULE_DELAY", 5000), Logger: log,
		Failed: "spans can't be sent to the collector and are dropped; " +
			"twotier_trace_spans_total counts them",
		Works:  "spans are sent to the collector again",
		Metric: "twotier_trace_spans_total", Help: "Spans that have ended, by outcome: exported " +
			"to the collector of --otlp-endpoint, or dropped because it is slow or gone.",
		Sent: "exported"})
	return p
}

// setting returns the positive number in a variable of the environment, or else the usual one.
func setting(name string, usual int) int {
	n, _ := strconv.Atoi(os.Getenv(name))
	return cmp.Or(max(0, n), usual)
}

// send exports a batch, all of it or nothing.
func (p *processor) send(ctx context.Context, batch []sdk.ReadOnlySpan) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if err := p.to.ExportSpans(ctx, batch); err != nil {
		return 0, err
	}
	return len(batch), nil
}

// OnStart implements [sdk.SpanProcessor].
func (*processor) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd implements [sdk.SpanProcessor].
func (p *processor) OnEnd(s sdk.ReadOnlySpan) { p.Add(s) }

// ForceFlush implements [sdk.SpanProcessor]. Nothing calls it.
func (*processor) ForceFlush(context.Context) error { return nil }

// Shutdown implements [sdk.SpanProcessor]. Close the queue first.
func (p *processor) Shutdown(ctx context.Context) error { return p.to.Shutdown(ctx) }
