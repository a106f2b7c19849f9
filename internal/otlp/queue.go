package otlp

import (
	"context"
	"log/slog"
	"sync/atomic"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// queue bounds the waiting spans, including the batch in flight. A span takes about three
// kilobytes.
const queue = 2048

// gate lets through as many spans as the queue of the processor behind it has room for, and counts
// the dropped ones: the processor would drop them silently.
type gate struct {
	sdk.SpanProcessor
	tally  *tally
	closed atomic.Bool
}

// OnEnd implements [sdk.SpanProcessor].
func (g *gate) OnEnd(s sdk.ReadOnlySpan) {
	if g.closed.Load() {
		g.tally.dropped.Add(1)
		return
	}
	if g.tally.waiting.Add(1) > queue {
		g.tally.waiting.Add(-1)
		g.tally.dropped.Add(1)
		return
	}
	g.SpanProcessor.OnEnd(s)
}

// sender sends batches and counts their outcomes. It logs errors, which the SDK would print to
// stderr one by one.
type sender struct {
	sdk.SpanExporter
	tally  *tally
	log    *slog.Logger
	ctx    context.Context // done when sending is given up
	giveUp context.CancelFunc
	// failing is set while the last batch was not sent and the log has reported it. Batches are
	// sent one at a time.
	failing bool
}

func newSender(to sdk.SpanExporter, tally *tally, log *slog.Logger) *sender {
	s := &sender{SpanExporter: to, tally: tally, log: log}
	s.ctx, s.giveUp = context.WithCancel(context.Background())
	return s
}

// ExportSpans implements [sdk.SpanExporter]. It returns no error.
func (s *sender) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	err := s.SpanExporter.ExportSpans(ctx, spans)
	n := int64(len(spans))
	if err != nil {
		s.tally.dropped.Add(n)
	} else {
		s.tally.exported.Add(n)
	}
	s.tally.waiting.Add(-n)
	switch {
	case err != nil && !s.failing:
		s.log.Warn("spans can't be sent to the collector and are dropped; "+
			"twotier_trace_spans_total counts them", "error", err)
	case err == nil && s.failing:
		s.log.Info("spans are sent to the collector again")
	}
	s.failing = err != nil
	return nil
}
