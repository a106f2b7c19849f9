package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
)

// TestDistinct adds values to keys of all nodes, with and without limits, and counts them.
func TestDistinct(t *testing.T) {
	c := newBed(t, 3).client()
	for i := range 10 {
		r := client.DistinctRequest{Key: fmt.Sprint("key-", i),
			Values:  []string{"a", "\"b\\\n", "a"},
			Limits:  []client.Limit{{Window: 24 * time.Hour, Max: 2}},
			Windows: []time.Duration{time.Minute, 90 * time.Minute}}
		for _, over := range []bool{false, true} {
			a, err := c.Distinct(t.Context(), r)
			must.Succeed(t, err)
			if a.Over != over || (a.RetryAfter > 23*time.Hour) != over || a.Degraded ||
				a.Source == "" || len(a.Counts) != 3 {
				t.Fatalf("%+v", a)
			}
			for j, want := range []client.DistinctCount{
				{Window: 24 * time.Hour, Max: 2, Count: 2, AtLeast: 2, AtMost: 2,
					Refused: over},
				{Window: time.Minute, Count: 2, AtLeast: 2, AtMost: 2},
				{Window: 90 * time.Minute, Count: 2, AtLeast: 2, AtMost: 2},
			} {
				// A minute may pass.
				if got := a.Counts[j]; got != want && want.Window != time.Minute {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
			r.Values = []string{"a", "c"}
		}
		at := time.Now()
		_, err := c.Distinct(t.Context(), client.DistinctRequest{Key: r.Key,
			Values: []string{"late"},
			At:     at.Add(-2 * time.Hour), Ack: client.AckMemory})
		must.Succeed(t, err)
		a, err := c.Distinct(t.Context(), client.DistinctRequest{Namespace: "default", Key: r.Key,
			At: at, Windows: []time.Duration{time.Hour, 3 * time.Hour}})
		must.Succeed(t, err)
		if a.Over || a.Counts[0].Count != 2 || a.Counts[1].Count != 3 {
			t.Errorf("later: %+v", a)
		}
	}
}

// TestDistinctByRules has rules judge values, and looks for each rule's part in the answer.
func TestDistinctByRules(t *testing.T) {
	c := newBed(t, 3).client()
	r := client.DistinctRequest{Key: "k", Values: []string{"a", "b"}, Rules: []string{"spied",
		"devices"}, Windows: []time.Duration{time.Hour}}
	for _, over := range []bool{false, true} {
		a, err := c.Distinct(t.Context(), r)
		must.Succeed(t, err)
		n, by := a.Counts, fmt.Sprint(a.RefusedBy)
		if a.Over != over || len(n) != 3 || n[0].Rule != "spied" || !n[0].Shadow ||
			n[1].Rule != "devices" || n[1].Shadow || n[1].Max != 3 || n[0].Refused != over ||
			n[1].Refused != over || n[2].Rule != "" || (by == "[devices]") != over {
			t.Errorf("%+v", a)
		}
		r.Values = []string{"c", "d"}
	}
	r.Rules = r.Rules[:1]
	if a, err := c.Distinct(t.Context(), r); err != nil || a.Over || !a.Counts[0].Refused {
		t.Errorf("in shadow: %+v, %v", a, err)
	}
	r.Key, r.Rules = "one", []string{"devices"}
	if a, err := c.Distinct(t.Context(), r); err != nil || !a.Over || a.Counts[0].Max != 1 {
		t.Errorf("an override: %+v, %v", a, err)
	}
}

// TestDistinctInBatch adds values to keys of all nodes in one batch, among other operations, judged
// by limits, by named rules, and by none, and counts them.
func TestDistinctInBatch(t *testing.T) {
	c := newBed(t, 3).client()
	hours := []time.Duration{time.Hour, 7 * time.Hour}
	var ops, later []client.Op
	const keys, each = 12, 6
	for i := range keys {
		key := fmt.Sprint("key-", i)
		ops = append(ops,
			client.Op{Add: &client.AddRequest{Key: key}},
			client.Op{Distinct: &client.DistinctRequest{Key: key, Values: []string{"a", "\"b\\\n"},
				Ack: client.AckRedis, Limits: []client.Limit{{Window: time.Hour, Max: 2}}}},
			client.Op{Distinct: &client.DistinctRequest{Key: key, Values: []string{"c"},
				Windows: hours, Limits: []client.Limit{{Window: time.Hour, Max: 2}}}},
			client.Op{Distinct: &client.DistinctRequest{Key: key, Namespace: "other",
				Values: []string{"c", "d", "e", "f"}, Rules: []string{"spied", "devices"}}},
			client.Op{Distinct: &client.DistinctRequest{Key: key, Values: []string{"late"},
				At: time.Now().Add(-2 * time.Hour)}},
			client.Op{Distinct: &client.DistinctRequest{Key: key, Windows: hours}})
	}
	res, err := c.Batch(t.Context(), ops)
	must.Succeed(t, err)
	at := time.Now() // windows that end earlier may lack the added values
	for i := range keys {
		later = append(later, client.Op{Distinct: &client.DistinctRequest{Windows: hours, At: at,
			Key: fmt.Sprint("key-", i)}})
	}
	asked, err := c.Batch(t.Context(), later)
	must.Succeed(t, err)
	for i := 0; i < len(res); i += each {
		for _, r := range res[i : i+each] {
			must.Succeed(t, r.Err)
		}
		first, over, by, query := res[i+1].Distinct, res[i+2].Distinct, res[i+3].Distinct,
			res[i+5].Distinct
		if first.Over || first.Counts[0].Count != 2 || first.Source == "" {
			t.Errorf("added: %+v", first)
		}
		if !over.Over || fmt.Sprint(over.RefusedBy) != "[limits[0]]" || len(over.Counts) != 3 ||
			over.Counts[1].Window != time.Hour || over.Counts[1].Count != 2 {
			t.Errorf("over: %+v", over)
		}
		if !by.Over || fmt.Sprint(by.RefusedBy) != "[devices]" || by.Counts[1].Max != 3 {
			t.Errorf("by a rule: %+v", by)
		}
		must.Succeed(t, asked[i/each].Err)
		for _, a := range []*client.DistinctAnswer{query, asked[i/each].Distinct} {
			if a.Over || a.Counts[0].Count != 2 || a.Counts[1].Count != 3 {
				t.Errorf("asked: %+v", a)
			}
		}
	}
	for _, wrong := range []client.DistinctRequest{
		{Key: "k"}, {Key: "k", Values: []string{"\xff"}}, {Key: "k", Values: []string{""}},
		{Key: "k", Rules: []string{"devices"}, Windows: hours},
		{Key: "k", Values: []string{"a"}, Rules: []string{"login"}},
	} {
		res, err := c.Batch(t.Context(), []client.Op{{Distinct: &wrong},
			{Distinct: &client.DistinctRequest{Key: "good", Values: []string{"a"}}}})
		must.Succeed(t, err)
		if !errors.Is(res[0].Err, client.ErrInvalid) || res[1].Err != nil {
			t.Errorf("%+v: %+v", wrong, res)
		}
	}
	both := client.Op{Add: ops[0].Add, Distinct: ops[1].Distinct}
	if _, err := c.Batch(t.Context(), []client.Op{both}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("two in one: %v", err)
	}
}

// TestDistinctOfManyValues counts values until they are too many for an exact number.
func TestDistinctOfManyValues(t *testing.T) {
	c := newBed(t, 1).client()
	for i := range 6 {
		r := client.DistinctRequest{Key: "many", Windows: []time.Duration{time.Hour}}
		for j := range 1000 {
			r.Values = append(r.Values, fmt.Sprint(i, "-", j))
		}
		a, err := c.Distinct(t.Context(), r)
		must.Succeed(t, err)
		n, truth := a.Counts[0], float64(1000*(i+1))
		if (n.Error > 0) != (truth > 4096) || float64(n.Count) < truth*(1-6*n.Error) ||
			float64(n.Count) > truth*(1+6*n.Error) {
			t.Errorf("%+v of %v", n, truth)
		}
	}
}

// TestDistinctRefusals sends invalid requests, and one to an address without a node.
func TestDistinctRefusals(t *testing.T) {
	c := newBed(t, 1).client()
	for _, r := range []client.DistinctRequest{
		{Key: "k"}, {Key: "k", Values: []string{""}}, {Key: "k", Values: []string{"\xff"}},
		{Key: "\xff", Values: []string{"a"}}, {Key: "k",
			Windows: []time.Duration{9999 * time.Hour}},
		{Key: "k", Limits: []client.Limit{{Window: time.Hour, Max: 1}}},
		{Key: "k", Values: []string{"a"}, Ack: client.AckDisk},
		{Key: "k", Windows: []time.Duration{time.Hour}, Rules: []string{"devices"}},
		{Key: "k", Values: []string{"a"}, Rules: []string{"\xff"}},
		{Key: "k", Values: []string{"a"}, Rules: []string{"login"}},
	} {
		if a, err := c.Distinct(t.Context(), r); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%+v: %+v, %v", r, a, err)
		}
	}
	nobody := noNode(t)
	hour := []time.Duration{time.Hour}
	ask := client.DistinctRequest{Key: "k", Windows: hour}
	if _, err := nobody.Distinct(t.Context(), ask); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("a question: %v", err)
	}
	add := client.DistinctRequest{Key: "k", Values: []string{"a"}}
	if _, err := nobody.Distinct(t.Context(), add); !errors.Is(err, client.ErrUnknownOutcome) {
		t.Errorf("values: %v", err)
	}
}

// TestManyValuesOfOtherNodes gives one node many operations: half of them on one key that another
// node owns, with a limit, the others on keys of all nodes. The owner answers each operation, in
// order for the key, and receives a few messages.
func TestManyValuesOfOtherNodes(t *testing.T) {
	b := newBed(t, 3)
	for round := range 10 {
		err := b.manyValues(t, round)
		if err == nil {
			return
		}
		// In a long pause of the machine, a node may have declared another one dead.
		t.Logf("round %d: %v", round, err)
	}
	t.Error("it was so each time")
}

// manyValues is one round of TestManyValuesOfOtherNodes, with separate keys.
func (b *bed) manyValues(t *testing.T, round int) error {
	t.Helper()
	s := b.nodes[0]
	key := b.keyOf(t, b.nodes[1], round)
	const ops, most = 4_000, 100
	results := make([]twotier.Result, ops)
	var calls []twotier.Op
	for i := range ops / 2 {
		calls = append(calls, twotier.Op{Kind: twotier.Acquire,
			Checks: []twotier.Check{{Key: []byte(key)}},
			Values: []twotier.ValuesOf{{Values: [][]byte{fmt.Append(nil, "v", i)},
				Limits: []twotier.Limit{{Window: 86_400_000, Max: most}}}}},
			twotier.Op{Kind: twotier.Add,
				Checks: []twotier.Check{{Key: fmt.Append(nil, "many", round, i)}},
				Values: []twotier.ValuesOf{{Values: [][]byte{[]byte("a"), []byte("b")},
					Limits: []twotier.Limit{{Window: 3_600_000, Max: twotier.MaxBound}}}}})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	before := s.peers.Stats().MessagesTotal
	s.node.DoAll(ctx, calls, results)
	sent := s.peers.Stats().MessagesTotal - before
	from := map[twotier.Source]int{}
	for i := range calls {
		r, n := &results[i], int64(min(i/2+1, most))
		if i%2 == 1 {
			n = 2
		}
		if r.Err != nil || len(r.Values) != 1 || r.Values[0].Limits[0].Count != n ||
			r.Allowed != (i%2 == 1 || i/2 < most) || i%2 == 0 && r.Source != twotier.SourceOwner {
			return fmt.Errorf("%d: %+v %w, want %d", i, r, r.Err, n)
		}
		from[r.Source]++
	}
	if from[twotier.SourceMemory] < ops/20 || from[twotier.SourceOwner] < ops/2+ops/20 {
		return fmt.Errorf("answers from %v", from)
	}
	if sent > ops/20 {
		return fmt.Errorf("%d messages for %d operations", sent, ops)
	}
	return nil
}

// keyOf returns a key that a node owns, a different one in each round.
func (b *bed) keyOf(t *testing.T, owner *server, round int) string {
	t.Helper()
	table := owner.ring.Table()
	for i := range 10_000 {
		key := fmt.Sprint("owned", round, "-", i)
		if table.Owner(b.place.Of(nil, []byte(key))) == table.Find(owner.ring.Name()) {
			return key
		}
	}
	t.Fatal("no key")
	return ""
}

// TestAcquireValues acquires events of one key and values of another, of any nodes.
func TestAcquireValues(t *testing.T) {
	c := newBed(t, 3).client()
	few := []client.Limit{{Window: 24 * time.Hour, Max: 2}}
	for i := range 10 {
		r := client.AcquireRequest{Checks: []client.Check{
			{Key: fmt.Sprint("address-", i), Limits: few},
			{Key: fmt.Sprint("account-", i), Values: []string{"a", "\"b\\\n"}, ValueLimits: few}}}
		for _, allowed := range []bool{true, false} {
			a, err := c.Acquire(t.Context(), r)
			must.Succeed(t, err)
			want := client.DistinctCount{Window: 24 * time.Hour, Max: 2, Count: 2, AtLeast: 2,
				AtMost: 2, Refused: !allowed}
			if a.Allowed != allowed || len(a.Checks) != 2 || len(a.Checks[0].Values) != 0 ||
				a.Checks[0].Limits[0].Count != 1 || len(a.Checks[1].Values) != 1 ||
				a.Checks[1].Values[0] != want {
				t.Errorf("%+v", a)
			}
			r.Checks[1].Values = []string{"c"}
		}
		one, err := c.Acquire(t.Context(), client.AcquireRequest{Check: client.Check{
			Key: r.Checks[1].Key, Values: []string{"a"}, Rules: []string{"devices"}}})
		must.Succeed(t, err)
		if !one.Allowed || len(one.Values) == 0 || one.Values[0].Rule != "devices" ||
			len(one.Limits) != 0 {
			t.Errorf("%+v", one)
		}
	}
	_, err := c.Acquire(t.Context(), client.AcquireRequest{Check: client.Check{Key: "k",
		Values: []string{"\xff"}, ValueLimits: few}})
	if !errors.Is(err, client.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}
