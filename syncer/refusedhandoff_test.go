package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// TestARefusedKeyIsNotAcknowledgedOnceItIsHandedOver: an operation waits for the store with a key
// that it refuses and another that it is slow to take, in different partitions. Meanwhile the
// partition of the refused key is handed over, or its handoff begins and is canceled. Memory no
// longer shows that the key was refused, but it was not stored, and the operation must not report
// that it was.
func TestARefusedKeyIsNotAcknowledgedOnceItIsHandedOver(t *testing.T) {
	for _, batch := range []bool{false, true} {
		for _, canceled := range []bool{false, true} {
			for bad := range 2 { // waited for first, or last
				name := fmt.Sprintf("batch=%v,canceled=%v,partition=%d", batch, canceled, bad)
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						testRefusedHandover(t, batch, canceled, bad)
					})
				})
			}
		}
	}
}

func testRefusedHandover(t *testing.T, batch, canceled bool, badAt int) {
	place := twotier.Placement{Partitions: 2}
	bad, good := keyIn(place, badAt, "bad-"), keyIn(place, 1-badAt, "good-")
	release, tries := make(chan struct{}), 0
	store := &strict{Store: embedded.New(embedded.Options{}), key: bad,
		delay: func(rounds []*syncer.Round) {
			switch r := rounds[0]; {
			case r.Seq == 0:
			case r.Partition != badAt:
				<-release
			default:
				if tries++; tries == 2 { // after the handoff was canceled
					close(release)
					time.Sleep(time.Second)
				}
			}
		}}
	c := open(t, syncer.Options{Store: store, Placement: place, Exchanges: 2,
		RoundTimeout: time.Minute})
	done := make(chan error, 1)
	go func() { done <- countBoth(c, bad, good, batch) }()
	time.Sleep(2 * time.Second) // the key is refused and parked by now
	if err := c.BeginHandoff(t.Context(), badAt); err != nil {
		t.Fatal(err)
	}
	if canceled {
		c.StartOwning(badAt)
	} else {
		if err := c.FinishHandoff(badAt); err != nil {
			t.Fatal(err)
		}
		close(release)
	}
	if err := <-done; !errors.Is(err, twotier.ErrUnknownOutcome) {
		t.Errorf("%v, and the store has %v", err, store.Get(badAt, nil, []byte(bad)))
	}
	store.healed.Store(true)
	time.Sleep(20 * time.Second)
}

// countBoth counts two keys, by operations that wait for the store, and returns the error of the
// operation that counts the first.
func countBoth(c *syncer.Counter, bad, good string, batch bool) error {
	ctx := context.Background()
	if batch {
		ops, res := []twotier.Op{*addOp(bad, 1, twotier.AckStore), *addOp(good, 1,
			twotier.AckStore)},
			make([]twotier.Result, 2)
		c.DoAll(ctx, ops, res)
		return res[0].Err
	}
	op := acquireOp(bad, 1, 100)
	op.Ack, op.Checks = twotier.AckStore, append(op.Checks, acquireOp(good, 1, 100).Checks...)
	return c.Do(ctx, op, new(twotier.Result))
}
