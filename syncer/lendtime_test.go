package syncer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
)

// TestTimeOfABorrowedEvent: a counter whose clock is behind the owner's counts at the owner's time,
// and returns that time, so that taking back at it undoes the event.
func TestTimeOfABorrowedEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoans(t, 1, prompt, twotier.Limit{Window: 60_000, Max: 10_000})
		b := l.counters[1]
		l.ask(b, 100)
		l.stepped.Store(-int64(300 * time.Millisecond))
		for _, op := range []twotier.Op{
			{Checks: []twotier.Check{{Key: []byte("hot"), N: 1}}},
			{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte("hot"), N: 1,
				Limits: l.limits}}},
		} {
			var res twotier.Result
			if err := b.Do(t.Context(), &op, &res); err != nil || res.Source != twotier.SourceNear {
				t.Fatalf("%v, source %s", err, res.Source)
			}
			if ahead := res.Checks[0].TS - l.now().UnixMilli(); ahead < 300 {
				t.Errorf("%d ms ahead of the own clock, want those of the owner", ahead)
			}
		}
	})
}

// TestDryRunOfABorrowedKey uses nothing of the loan.
func TestDryRunOfABorrowedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoans(t, 1, prompt, twotier.Limit{Window: 60_000, Max: 10_000})
		b := l.counters[1]
		l.ask(b, 100)
		op := twotier.Op{Kind: twotier.Acquire, DryRun: true,
			Checks: []twotier.Check{{Key: []byte("hot"), N: 1, Limits: l.limits}}}
		var res twotier.Result
		for range 200 {
			if err := b.Do(t.Context(), &op, &res); err != nil || !res.Allowed ||
				res.Source != twotier.SourceNear {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		if used, ok := b.FillLoanRequest(&b.q, 0); !ok || used.Counted != 0 {
			t.Errorf("%d were counted", used.Counted)
		}
	})
}
