package redisstore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// notStored is the answer of two-tier mode to a settlement that isShort.
const notStored = "unavailable: what the hold counted has not arrived in the store yet"

// settler remembers the operation that counted last, as if it had made a hold.
type settler struct{ op twotier.Op }

// next returns an operation that settles the hold, at times, or the drawn one.
func (s *settler) next(dice *rand.Rand, drawn twotier.Op, now int64) twotier.Op {
	if s.op.Checks != nil && dice.IntN(8) == 0 {
		c := s.op.Checks[0]
		c.N, c.Limits = -1-dice.Int64N(c.N), nil
		return twotier.Op{Kind: twotier.Acquire, TS: s.op.TS, Checks: []twotier.Check{c}}
	}
	if drawn.Kind != twotier.Count && !drawn.DryRun && drawn.Checks[0].N > 0 &&
		drawn.Checks[0].Kind == twotier.EventCheck {
		if s.op = drawn; drawn.TS == 0 {
			s.op.TS = now
		}
	}
	return drawn
}

// isShort reports whether an operation settles a hold of less than a minute, and takes back more
// events than pure-Redis mode has at that time. Two-tier mode refuses such a settlement, because
// another node may have yet to flush the rest.
func isShort(t *testing.T, store *redisstore.Store, direct doer, op twotier.Op, now int64) bool {
	t.Helper()
	c, ts := &op.Checks[0], op.TS
	if ts == 0 {
		ts = now
	}
	if op.Kind != twotier.Acquire || c.N >= 0 || op.DryRun || now-ts >= time.Minute.Milliseconds() {
		return false
	}
	dry, res := op, twotier.Result{}
	dry.DryRun = true
	if err := direct.Do(t.Context(), &dry, &res); err != nil || !op.Counts(&res) {
		return false
	}
	return countedAt(t, store, c, ts) < -c.N
}

// countedAt returns the number of events in the stored buckets of a key that contain a moment.
func countedAt(t *testing.T, s *redisstore.Store, c *twotier.Check, ts int64) (n int64) {
	t.Helper()
	ns := c.NS
	if string(ns) == twotier.DefaultNamespace {
		ns = nil
	}
	r := &syncer.Round{Partition: s.Placement().Of(ns, c.Key), Writer: "reader",
		ReadOnly: true, Keys: []syncer.KeyRound{{NS: ns, Key: c.Key, Load: true}}}
	if s.Exchange(t.Context(), []*syncer.Round{r}); r.Err != nil || r.Keys[0].Err != nil {
		t.Fatal(r.Err, r.Keys[0].Err)
	}
	for _, b := range r.Keys[0].Loaded {
		if b.Start <= ts && ts < b.End() {
			n += b.N
		}
	}
	return n
}
