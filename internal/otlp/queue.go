package otlp

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"strconv"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"twotier.dev/twotier/internal/outbox"
)

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
