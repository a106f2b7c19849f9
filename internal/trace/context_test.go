package trace_test

import (
	"context"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/trace"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestParse covers all parts of a context.
func TestParse(t *testing.T) {
	c := trace.Parse(parent, "vendor=1")
	if c == nil || c.TraceID() != parent[3:35] || c.Span != [8]byte{0xb7, 0xad, 0x6b, 0x71, 0x69,
		0x20, 0x33, 0x31} || !c.Sampled() || c.State != "vendor=1" {
		t.Fatalf("%+v", c)
	}
	if c = trace.Parse(parent[:53]+"02", ""); c == nil || c.Sampled() || c.Flags != 2 {
		t.Errorf("%+v", c)
	}
	if c = trace.Parse(parent, strings.Repeat("x", trace.MaxState+1)); c == nil || c.State != "" {
		t.Errorf("a long state: %+v", c)
	}
	for _, later := range []string{parent[:53] + "ff", "cc" + parent[2:],
		"cc" + parent[2:] + "-future"} {
		if c := trace.Parse(later, ""); c.TraceID() != parent[3:35] {
			t.Errorf("%q: %+v", later, c)
		}
	}
	for _, bad := range []string{"", parent[:54], parent + "-x", parent + "0",
		"cc" + parent[2:] + "x", "ff" + parent[2:], "0g" + parent[2:], strings.ToUpper(parent),
		parent[:53] + "0x", "00_" + parent[3:], parent[:35] + "_" + parent[36:],
		parent[:52] + "_" + parent[53:],
		"00-" + strings.Repeat("0", 32) + parent[35:],
		parent[:36] + strings.Repeat("0", 16) + "-00",
	} {
		if c := trace.Parse(bad, ""); c != nil || c.TraceID() != "" {
			t.Errorf("%q: %+v", bad, c)
		}
	}
}

// TestContext passes a context on, and looks for one where there is none.
func TestContext(t *testing.T) {
	ctx := t.Context()
	if c := trace.From(ctx); c != nil || trace.With(ctx, nil) != ctx {
		t.Errorf("%+v", c)
	}
	c := trace.Parse(parent, "")
	under, cancel := context.WithCancel(trace.With(ctx, c))
	defer cancel()
	if trace.From(under) != c {
		t.Error("it was lost")
	}
}
