package otlp

import (
	"context"
	"log/slog"
	"sync/atomic"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// queue bounds the spans that wait, those in the batch that is being sent included. A span
// takes about three kilobytes.
const queue = 2048

// gate lets as many spans pass as the queue of the processor behind it has room for, so that what
// is dropped is counted: the processor would drop the rest without a word.
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

// sender sends batches and counts what became of them. It takes errors to the log, where the SDK
// would print them to stderr one by one.
type sender struct {
	sdk.SpanExporter
	tally  *tally
	log    *slog.Logger
	ctx    context.Context // done when sending is given up
	giveUp context.CancelFunc
	// failing says that the last batch was not sent, and that the log says so. Batches are sent
	// one at a time.
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
