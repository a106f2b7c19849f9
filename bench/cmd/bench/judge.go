package main

import (
	"context"
	"fmt"
	"time"

	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/load"
)

// Tally is the outcome of one limiter with a trace. An exact log of the limiter's own earlier
// admissions judges each decision, so that a wrong decision counts only once.
type Tally struct {
	Name     string `json:"name"`
	Events   int    `json:"events"`
	Admitted int    `json:"admitted"`
	// Over counts events that were admitted although a true window of theirs was full; WorstExcess
	// is the largest excess of a true window over its limit.
	Over        int   `json:"over_admitted"`
	WorstExcess int64 `json:"worst_excess"`
	// Early counts events that were refused although all their true windows had room.
	Early int `json:"refused_early"`
	// OverBeyond and EarlyBeyond count the errors that one width of the sub-windows doesn't
	// explain: windows shorter (longer) by a width would have decided otherwise, too.
	OverBeyond  int `json:"over_admitted_beyond_one_width"`
	EarlyBeyond int `json:"refused_early_beyond_one_width"`
	// Differs counts decisions that differ from the exact log's decisions on the same trace. One
	// early difference causes later ones.
	Differs int `json:"differs_from_exact"`

	decisions []bool
	own       limiter.Exact // the events that it admitted
}

// replay sends events one after the other and judges each decision. If there is a start, events are
// due at their times after it, and each decision is judged at the time of its call.
func replay(ctx context.Context, l limiter.Limiter, events []limiter.Call,
	start time.Time) (*Tally, error) {
	t := &Tally{Name: l.Name(), Events: len(events)}
	for i, e := range events {
		if !start.IsZero() {
			due := start.Add(time.Duration(e.TS) * time.Millisecond)
			if err := load.Sleep(ctx, time.Until(due)); err != nil {
				return nil, err
			}
			e.TS = time.Now().UnixMilli()
		}
		allowed, err := limiter.Ask(ctx, l, e)
		if err != nil {
			return nil, fmt.Errorf("event %d of %d: %w", i, len(events), err)
		}
		t.judge(e, allowed)
	}
	return t, nil
}

// judge compares one decision with the limiter's earlier admissions, and then records it.
func (t *Tally) judge(e limiter.Call, allowed bool) {
	t.decisions = append(t.decisions, allowed)
	excess := t.own.Excess(e, 0)
	switch {
	case allowed && excess > 0:
		t.Over++
		t.WorstExcess = max(t.WorstExcess, excess)
		if t.own.Excess(e, -1) > 0 {
			t.OverBeyond++
		}
	case !allowed && excess <= 0:
		t.Early++
		if t.own.Excess(e, +1) <= 0 {
			t.EarlyBeyond++
		}
	}
	if allowed {
		t.Admitted++
		t.own.Record(e)
	}
}

// compare counts the decisions that differ from the exact log's.
func (t *Tally) compare(exact *Tally) {
	for i, d := range t.decisions {
		if d != exact.decisions[i] {
			t.Differs++
		}
	}
}

// Example is a story small enough to be checked by hand: at most 10 in any 5 minutes.
type Example struct {
	Title string
	Steps []Step
}

// Step is a number of tries at one time after eleven.
type Step struct {
	Minute, Second int64
	Tries          int
}

func examples() []Example {
	return []Example{
		{"1 at 11:01:00, 8 at 11:05:00; of 8 tries at 11:06:00",
			[]Step{{1, 0, 1}, {5, 0, 8}, {6, 0, 8}}},
		{"1 at 11:01:30, 8 at 11:05:00; of 8 tries at 11:06:00",
			[]Step{{1, 30, 1}, {5, 0, 8}, {6, 0, 8}}},
		{"1 at 11:01:10, 8 at 11:05:00; of 8 tries at 11:06:40",
			[]Step{{1, 10, 1}, {5, 0, 8}, {6, 40, 8}}},
		{"10 at 11:04:50; of 10 tries at 11:05:10", []Step{{4, 50, 10}, {5, 10, 10}}},
	}
}

// run plays an example and returns how many tries of the last step were admitted. Eleven is the
// time of eleven o'clock in unix milliseconds.
func (e Example) run(ctx context.Context, l limiter.Limiter, key string,
	eleven int64) (admitted int, err error) {
	check := limiter.One(key, []limiter.Limit{{Window: 5 * 60_000, Max: 10}})
	for _, s := range e.Steps {
		admitted = 0
		for range s.Tries {
			ok, err := limiter.Ask(ctx, l,
				limiter.At(eleven+(s.Minute*60+s.Second)*1000, check))
			if err != nil {
				return 0, fmt.Errorf("example %q: %w", e.Title, err)
			}
			if ok {
				admitted++
			}
		}
	}
	return admitted, nil
}
