package syncer_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/syncer"
)

// pulse is a Pulse whose process stands still at chosen moments.
type pulse struct {
	uncovered atomic.Bool
	// stops makes the process stand still before its next answer.
	stops atomic.Bool
}

func (p *pulse) Covers(int64) bool       { return !p.uncovered.Load() }
func (p *pulse) Stops() uint64           { return 0 }
func (p *pulse) HasRunSince(uint64) bool { return !p.stops.Load() }

// TestNothingIsDecidedAfterAStandstill: until the counter is told whose its partitions are, it
// refuses decisions, alone and in batches, in place of owners and for loans. Reads and adds without
// limits go on.
func TestNothingIsDecidedAfterAStandstill(t *testing.T) {
	p := new(pulse)
	c := open(t, syncer.Options{Pulse: p})
	var res twotier.Result
	if err := c.Do(t.Context(), acquireOp("key", 1, 10), &res); err != nil || !res.Allowed {
		t.Fatal(err, res)
	}
	p.uncovered.Store(true)
	inPlace, reserve := acquireOp("key", 1, 10), acquireOp("key", 1, 10)
	inPlace.AllowNonOwner, reserve.Reserve = true, "id"
	back := &twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{Key: []byte("key"), N: -1}}}
	for i, op := range []*twotier.Op{acquireOp("key", 1, 10), inPlace, reserve, back} {
		if err := c.Do(t.Context(), op, &res); !errors.Is(err, twotier.ErrNotOwner) {
			t.Errorf("operation %d: %v", i, err)
		}
		batch := make([]twotier.Result, 2)
		c.DoAll(t.Context(), []twotier.Op{*op, *op}, batch)
		for _, r := range batch {
			if !errors.Is(r.Err, twotier.ErrNotOwner) {
				t.Errorf("operation %d in a batch: %v", i, r.Err)
			}
		}
	}
	add := &twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{Key: []byte("key"), N: 1}}}
	if err := c.Do(t.Context(), add, &res); err != nil {
		t.Errorf("an add: %v", err)
	}
	p.uncovered.Store(false)
	if err := c.Do(t.Context(), acquireOp("key", 9, 10), &res); err != nil || res.Allowed {
		t.Errorf("afterwards: %v, %+v, want a refusal with a count of 2", err, res)
	}
}

// TestStandstillBeforeTheAnswer: the process stands still between a decision and its answer. An
// admission is no longer one: its outcome is unknown, and its counts stay. A reservation is undone.
// A refusal stays a refusal.
func TestStandstillBeforeTheAnswer(t *testing.T) {
	for _, batched := range []bool{false, true} {
		t.Run(fmt.Sprint("batched ", batched), func(t *testing.T) {
			p := new(pulse)
			c := open(t, syncer.Options{Pulse: p})
			do := func(op *twotier.Op) (res twotier.Result) {
				if batched {
					some := make([]twotier.Result, 1)
					c.DoAll(t.Context(), []twotier.Op{*op}, some)
					return some[0]
				}
				res.Err = c.Do(t.Context(), op, &res)
				return res
			}
			p.stops.Store(true)
			res := do(acquireOp("key", 4, 10))
			if !errors.Is(res.Err, twotier.ErrUnknownOutcome) {
				t.Errorf("an admission: %v", res.Err)
			}
			reserve := acquireOp("key", 4, 10)
			reserve.Reserve = "id"
			res = do(reserve)
			if !errors.Is(res.Err, twotier.ErrNotOwner) || c.Undo(reserve) {
				t.Errorf("a reservation: %v", res.Err)
			}
			if res = do(acquireOp("key", 7, 10)); res.Err != nil || res.Allowed {
				t.Errorf("a refusal: %v, %+v", res.Err, res)
			}
			p.stops.Store(false)
			res = do(acquireOp("key", 6, 10))
			if res.Err != nil || !res.Allowed || res.Checks[0].Limits[0].Count != 10 {
				t.Errorf("afterwards: %v, %+v", res.Err, res)
			}
		})
	}
}

// TestAnIdleCounterRests: while nothing is counted, the clock makes nothing due, except to verify
// that the store still has everything. Later counts are still flushed in time.
func TestAnIdleCounterRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := embedded.New(embedded.Options{})
		c := open(t, syncer.Options{Store: store, Placement: twotier.Placement{Partitions: 64},
			FlushInterval: 100 * time.Millisecond, VerifyInterval: 5 * time.Second})
		for range 3 {
			for i := range 100 {
				add(t, c, fmt.Sprint("k", i), 1, 0)
			}
			time.Sleep(120 * time.Millisecond)
			if n := c.Stats().PendingBuckets; n > 0 {
				t.Errorf("%d buckets are pending after a flush interval", n)
			}
			time.Sleep(time.Second)
			if n := c.ShiftsAwake(); n > 0 {
				t.Errorf("%d shifts are awake though nothing is counted", n)
			}
			time.Sleep(time.Minute)
		}
	})
}
