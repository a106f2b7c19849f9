package syncer_test

import (
	"fmt"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// TestTakingBackRefunds counts at several times and takes back without a time. The events taken
// back are missing from every window that showed them, newest first, whether or not the store knew
// of them. Counters that start afterwards see the same, also after the store has lost everything.
func TestTakingBackRefunds(t *testing.T) {
	windows := limits(10_000, 100, 60_000, 100, 3_600_000, 100, 86_400_000, 100)
	for _, c := range []struct {
		back int64
		want string
	}{
		{3, "[2 6 6 10]"}, {5, "[0 4 4 8]"}, {6, "[0 3 3 7]"}, {9, "[0 0 0 4]"}, {11, "[0 0 0 2]"},
		{13, "[0 0 0 0]"}, {1000, "[0 0 0 0]"},
	} {
		for _, flushes := range []bool{false, true} {
			t.Run(fmt.Sprint(c.back, " flushed ", flushes), func(t *testing.T) {
				store, one := embedded.New(embedded.Options{}), twotier.Placement{Partitions: 1}
				clk := &clock{now: t0}
				opt := syncer.Options{Store: store, Now: clk.Now, Placement: one}
				counter := open(t, opt)
				add(t, counter, "k", 4, t0-7_200_000)
				add(t, counter, "k", 4, t0-30_000)
				add(t, counter, "k", 5, t0)
				if flushes {
					flush(t, counter)
				}
				clk.set(t0 + 2_000)
				if ts := add(t, counter, "k", -c.back, 0).Checks[0].TS; ts != 0 {
					t.Errorf("taken back at %d, but there is no single time", ts)
				}
				shows(t, counter, windows, c.want)
				flush(t, counter)
				shows(t, open(t, opt), windows, c.want)
				store.Flush()
				add(t, counter, "another", 1, 0) // this tells the counter of the loss
				flush(t, counter)
				shows(t, open(t, opt), windows, c.want)
			})
		}
	}
}

// TestTakingBackAtAnEmptySecond takes back at a second without counts, in a minute with counts, and
// at one with fewer counts than are taken back. All windows agree on the rest.
func TestTakingBackAtAnEmptySecond(t *testing.T) {
	clk := &clock{now: t0 - t0%3_600_000 + 30_000}
	c := open(t, syncer.Options{Store: embedded.New(embedded.Options{}), Now: clk.Now})
	windows := limits(60_000, 0, 3_600_000, 0, 86_400_000, 0)
	add(t, c, "k", 5, clk.Now())
	add(t, c, "k", 2, clk.Now()+1000)
	clk.set(clk.Now() + 2_000)
	add(t, c, "k", -5, clk.Now())
	shows(t, c, windows, "[7 7 7]")
	add(t, c, "k", -5, clk.Now()-1000)
	shows(t, c, windows, "[5 5 5]")
	flush(t, c)
	clk.set(clk.Now() + 10*60_000) // past the span of the seconds
	add(t, c, "k", 1, 0)
	add(t, c, "k", -5, clk.Now()-10*60_000-2_000)
	shows(t, c, windows, "[1 1 1]")
}

// shows compares the sums of windows of key k.
func shows(t *testing.T, c *syncer.Counter, windows []twotier.Limit, want string) {
	t.Helper()
	op := twotier.Op{Kind: twotier.Count,
		Checks: []twotier.Check{{Key: []byte("k"), Limits: windows}}}
	var res twotier.Result
	if err := c.Do(t.Context(), &op, &res); err != nil {
		t.Fatal(err)
	}
	var got []int64
	for _, l := range res.Checks[0].Limits {
		got = append(got, l.Hi)
	}
	if fmt.Sprint(got) != want {
		t.Errorf("windows hold %v, want %s", got, want)
	}
}

// TestCountedAt: the time in a result is where the event was counted, and where it can be taken
// back. An uncounted operation has no time.
func TestCountedAt(t *testing.T) {
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Store: embedded.New(embedded.Options{}), Now: clk.Now})
	l := limits(10_000, 3)
	first := add(t, c, "k", 1, 0).Checks[0].TS
	second := acquire(t, c, "k", 2, t0-3_000, l).Checks[0].TS
	if first != t0 || second != t0-3_000 {
		t.Errorf("counted at %d and %d", first, second)
	}
	if ts := acquire(t, c, "k", 2, 0, l).Checks[0].TS; ts != 0 {
		t.Errorf("a refusal was counted at %d", ts)
	}
	clk.set(t0 + 5_000)
	add(t, c, "k", -2, second)
	shows(t, c, limits(6_000, 0, 60_000, 0), "[1 1]")
	add(t, c, "k", -1, first)
	shows(t, c, limits(6_000, 0, 60_000, 0), "[0 0]")
}

// TestDryRun: the answer is the one that the operation would get, and nothing is counted.
func TestDryRun(t *testing.T) {
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Store: embedded.New(embedded.Options{}), Now: clk.Now})
	for n, counted := range map[int64]bool{2: false, 4: false, 5: true} {
		op := twotier.Op{Kind: twotier.Acquire, DryRun: true, CountDenied: counted,
			Checks: []twotier.Check{{Key: []byte("k"), N: n, Limits: limits(10_000, 3)}}}
		var dry, counting twotier.Result
		for range 2 {
			if err := c.Do(t.Context(), &op, &dry); err != nil {
				t.Fatal(err)
			}
		}
		shows(t, c, limits(60_000, 0), "[0]")
		op.DryRun = false
		if err := c.Do(t.Context(), &op, &counting); err != nil {
			t.Fatal(err)
		}
		counting.Checks[0].TS = 0
		if fmt.Sprintf("%+v", dry) != fmt.Sprintf("%+v", counting) {
			t.Errorf("dry run: %+v\nreal:    %+v", dry, counting)
		}
		add(t, c, "k", -1000, 0)
	}
}
