package resp_test

import (
	"context"
	"strings"
	"testing"

	"twotier.dev/twotier/distinct"
	"twotier.dev/twotier/internal/resp"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// distincter is a service that counts distinct values in memory.
type distincter struct {
	resp.Service
	engine *distinct.Engine
}

func (d *distincter) Distinct(ctx context.Context, op *distinct.Op, values [][]byte,
	res *distinct.Result) error {
	for _, v := range values {
		op.Hashes = append(op.Hashes, d.engine.Hash(v))
	}
	return d.engine.Do(ctx, op, res, false)
}

// TestDistinct adds and counts values.
func TestDistinct(t *testing.T) {
	t.Parallel()
	l, err := leaparray.NewLadder(leaparray.DefaultLevels()...)
	if err != nil {
		t.Fatal(err)
	}
	const now = 1_700_000_000_000
	engine, err := distinct.New(distinct.Options{
		Now: func() int64 { return now }, Placement: syncer.Placement{Partitions: 1},
		Namespaces: map[string]distinct.Namespace{"default": {Ladder: l}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, resp.Options{Service: &distincter{newService(t), engine}})
	c := dial(t, s)
	for _, test := range []struct{ command, want string }{
		{"TT.DISTINCT k VALUES 2 a b", "[]"},
		{"tt.distinct k values 3 a c c window 1m 1h", "[3 3]"},
		{"TT.DISTINCT k WINDOW 24h", "[3]"},
		{"TT.DISTINCT k NS other WINDOW 24h", "[0]"},
		{"TT.DISTINCT k TS 1699996400000 VALUES 1 late", "[]"},
		{"TT.DISTINCT k WINDOW 1m 2h", "[3 4]"},
		{"TT.DISTINCT k VALUES 2 a", "values: want their number"},
		{"TT.DISTINCT k VALUES 0 WINDOW 1m", "values: want their number"},
		{"TT.DISTINCT k VALUES 1 " + strings.Repeat("x", 1025), "values[0]: want 1 to 1024 bytes"},
		{"TT.DISTINCT k NS / VALUES 1 a", "ns: want 1 to 64"},
		{"TT.DISTINCT k TS 0 VALUES 1 a", "ts: want unix milliseconds"},
		{"TT.DISTINCT k WINDOW 9d", "window: "},
		{"TT.DISTINCT k WINDOW nonsense", "window: want a duration"},
		{"TT.DISTINCT k NS other", "values: missing"},
		{"TT.DISTINCT k LIMIT 1m", "LIMIT: unknown option"},
		{"TT.DISTINCT k NS x WINDOW", "WINDOW: its value is missing"},
		{"TT.DISTINCT k", "wrong number of arguments"},
	} {
		got, exact := c.do(test.command), strings.HasPrefix(test.want, "[")
		if exact && got != test.want || !strings.Contains(got, test.want) {
			t.Errorf("%.60s: %s, want %s", test.command, got, test.want)
		}
	}
}
