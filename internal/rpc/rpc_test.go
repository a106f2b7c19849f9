package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/ring"
)

// TestErrorsSayWhatToDoNext checks the errors against the one question that routing asks: may
// another node be asked, or may this node count in place of the unreachable one?
func TestErrorsSayWhatToDoNext(t *testing.T) {
	moved := &rpc.MovedError{To: ring.Member{ID: "b"}}
	for _, test := range []struct {
		err                             error
		elsewhere, unreachable, unknown bool
	}{
		{rpc.ErrUnreachable, false, true, false},
		{rpc.ErrRefused, true, false, false},
		{moved, true, false, false},
		{fmt.Errorf("send: %w", moved), true, false, false},
		{rpc.ErrLate, false, false, false},
		{twotier.ErrUnknownOutcome, false, false, true},
	} {
		got := []bool{
			errors.Is(test.err, twotier.ErrNotOwner), errors.Is(test.err, rpc.ErrUnreachable),
			errors.Is(test.err, twotier.ErrUnknownOutcome),
		}
		if want := []bool{test.elsewhere, test.unreachable,
			test.unknown}; !slices.Equal(got, want) {
			t.Errorf("%v: elsewhere, unreachable, unknown: %v, want %v", test.err, got, want)
		}
	}
	if !errors.Is(rpc.ErrLate, twotier.ErrUnavailable) {
		t.Error("what came too late can't be tried again")
	}
}

// TestBroadcastReachesAllOthers calls each member but this one, concurrently, and ends when its
// time is up.
func TestBroadcastReachesAllOthers(t *testing.T) {
	members := []ring.Member{{ID: "a", Name: "a"}, {ID: "b", Name: "b"}, {ID: "c", Name: "c"}}
	table, err := ring.NewTable(members, "b", 11, 0)
	must.Succeed(t, err)
	var mu sync.Mutex
	var reached []string
	both := make(chan struct{})
	rpc.Broadcast(t.Context(), table, time.Minute, func(_ context.Context, m *ring.Member) {
		mu.Lock()
		reached = append(reached, m.Name)
		if len(reached) == 2 {
			close(both)
		}
		mu.Unlock()
		<-both // one call after the other would never end
	})
	slices.Sort(reached)
	if !slices.Equal(reached, []string{"a", "c"}) {
		t.Errorf("reached %v, want a and c", reached)
	}
	rpc.Broadcast(t.Context(), table, time.Millisecond, func(ctx context.Context, _ *ring.Member) {
		<-ctx.Done()
	})
}
