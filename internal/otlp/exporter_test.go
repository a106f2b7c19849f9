package otlp

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	otel "go.opentelemetry.io/otel/trace"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/trace"
)

// collector is an exporter of the SDK that keeps the spans it receives.
type collector struct {
	// export, if set, is called first. If it returns an error, the spans are not kept.
	export func(ctx context.Context) error

	mu    sync.Mutex
	spans []sdk.ReadOnlySpan
}

func (c *collector) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if c.export != nil {
		if err := c.export(ctx); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans = append(c.spans, spans...)
	return nil
}

func (c *collector) Shutdown(context.Context) error { return nil }

// open returns an exporter to a collector.
func open(t *testing.T, to *collector, log *bytes.Buffer) *Exporter {
	t.Helper()
	x, err := New(t.Context(), Options{Service: "twotier", Node: "a", Version: "1", exporter: to,
		Logger: slog.New(slog.NewTextHandler(log, nil))})
	must.Succeed(t, err)
	x.Open()
	t.Cleanup(func() { _ = x.Close(context.Background()) })
	return x
}

// end records some spans.
func end(x *Exporter, n int) {
	for range n {
		span, _ := x.Start([16]byte{1}, [8]byte{2}, "", "span", time.Now())
		span.End()
	}
}

// TestSpan compares an exported span with the recorded one.
func TestSpan(t *testing.T) {
	t.Setenv("OTEL_SERVICE_NAME", "counters")
	var to collector
	var log bytes.Buffer
	x := open(t, &to, &log)
	parent := &trace.Context{ID: [16]byte{1}, Span: [8]byte{2}, Flags: trace.Sampled, State: "v=1"}
	began := time.Now().Add(-time.Second)
	of := trace.Begin(x, parent, "POST /v1/add", began)
	of.Recorded().Set(slog.Int("n", 3), slog.String("ns", "default"))
	of.Recorded().Fail("it broke")
	of.Recorded().End()
	of.Recorded().End()
	must.Succeed(t, errors.Join(x.Close(t.Context()), x.Close(t.Context())))
	if len(to.spans) != 1 || x.Sent() != 1 || x.Dropped() != 0 || log.Len() > 0 {
		t.Fatalf("%d spans, %d exported, %d dropped, %s", len(to.spans), x.Sent(), x.Dropped(),
			log.String())
	}
	s := to.spans[0]
	if s.Name() != "POST /v1/add" || s.SpanKind() != otel.SpanKindServer ||
		!s.StartTime().Equal(began) || s.Status().Description != "it broke" ||
		s.SpanContext().TraceID() != parent.ID || s.SpanContext().SpanID() != of.Span ||
		s.Parent().SpanID() != parent.Span || s.SpanContext().TraceState().String() != "v=1" {
		t.Errorf("%+v", s)
	}
	if a := s.Attributes(); len(a) != 2 || a[0].Value.AsInt64() != 3 ||
		a[1].Value.AsString() != "default" {
		t.Errorf("%v", a)
	}
	about := s.Resource().String()
	for _, want := range []string{"service.name=counters", "service.instance.id=a",
		"service.version=1"} {
		if !strings.Contains(about, want) {
			t.Errorf("%s has no %s", about, want)
		}
	}
}

// TestBatchesAwaitMoreSpans sends a batch at the end of the delay that the environment sets, or
// once it has the size that it sets. More spans than the queue has room for are dropped.
func TestBatchesAwaitMoreSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "2000")
		t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "100")
		var to collector
		x := open(t, &to, new(bytes.Buffer))
		end(x, 2)
		time.Sleep(1999 * time.Millisecond)
		if x.Sent() != 0 {
			t.Error("spans are sent early")
		}
		time.Sleep(2 * time.Millisecond)
		if x.Sent() != 2 {
			t.Errorf("%d spans are sent", x.Sent())
		}
		end(x, 101)
		synctest.Wait()
		if x.Sent() != 103 { // the batch of 100 does not wait, and takes the last one along
			t.Errorf("%d spans are sent of a batch that is full", x.Sent())
		}
		to.export = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		end(x, 100)
		synctest.Wait() // they are on their way
		end(x, maxQueue+7)
		if x.Dropped() != 7 {
			t.Errorf("%d were dropped, want 7", x.Dropped())
		}
	})
}

// TestCloseGivesUp closes an exporter to a collector that never answers.
func TestCloseGivesUp(t *testing.T) {
	to := collector{export: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
	x := open(t, &to, new(bytes.Buffer))
	end(x, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.Close(ctx); err != nil {
		t.Error(err)
	}
	if x.Dropped() != 1000 || x.Sent() != 0 {
		t.Errorf("%d exported, %d dropped", x.Sent(), x.Dropped())
	}
}

// BenchmarkSpan records spans with the attributes of typical requests.
func BenchmarkSpan(b *testing.B) {
	x, err := New(b.Context(), Options{Service: "twotier", exporter: new(nowhere)})
	must.Succeed(b, err)
	parent := &trace.Context{ID: [16]byte{1}, Span: [8]byte{2}, Flags: trace.Sampled}
	b.ReportAllocs()
	for b.Loop() {
		span := trace.Begin(x, parent, "POST /v1/acquire", time.Now()).Recorded()
		span.Set(slog.String("http.request.method", "POST"), slog.String("url.scheme", "http"),
			slog.String("http.route", "/v1/acquire"), slog.String("url.path", "/v1/acquire"))
		span.Set(trace.OperationsAttr(1), trace.NamespaceAttr("default"))
		span.Set(trace.VerdictAttr("allowed"))
		span.Set(slog.Int("http.response.status_code", 200))
		span.End()
	}
	if err := x.Close(context.Background()); err != nil {
		b.Error(err)
	}
}

// nowhere is a collector that discards everything.
type nowhere struct{}

func (*nowhere) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return nil }
func (*nowhere) Shutdown(context.Context) error                        { return nil }
