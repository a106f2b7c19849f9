package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// TestValuesWhileAPartitionMoves asks the owner of a key, which has not received its partition yet
// and names the holder. The holder is asked next, and its answer or failure is final.
func TestValuesWhileAPartitionMoves(t *testing.T) {
	for name, c := range map[string]struct {
		giver  error
		wanted error
	}{
		"giver answers": {},
		"giver is full": {twotier.ErrFull, twotier.ErrFull},
		// The holder's death does not entitle this node to decide in place of the owner.
		"giver is gone": {rpc.ErrUnreachable, twotier.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []string
				peers := &others{answer: func(to *ring.Member, request, response any) error {
					if _, ok := request.(*node.DistinctRequest); !ok {
						return nil
					}
					asked = append(asked, to.ID)
					if to.ID == "other" {
						return &rpc.MovedError{To: ring.Member{ID: "giver", Name: "giver"}}
					}
					response.(*node.DistinctResponse).Result.Source = twotier.SourceMemory
					return c.giver
				}}
				n, key := beside(t, nil, peers)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				var res distinct.Result
				err := n.Distinct(ctx, &distinct.Op{Key: key}, [][]byte{[]byte("v")}, &res)
				if !errors.Is(err, c.wanted) || len(asked) < 2 ||
					!slices.Equal(asked[:2], []string{"other", "giver"}) {
					t.Errorf("%v, after asking %v", err, asked)
				}
				if c.wanted == nil && res.Source != twotier.SourceOwner {
					t.Errorf("the source is %v", res.Source)
				}
			})
		})
	}
}

// goneStore is a store of distinct values that fails until it is back.
type goneStore struct{ back atomic.Bool }

func (s *goneStore) Compare(_ context.Context, list []*distinct.Exchange) {
	for _, x := range list {
		if x.Err = twotier.ErrUnavailable; s.back.Load() {
			x.Err, x.Found = nil, x.Expect
		}
	}
}

// TestValuesOfANodeWithoutTime drains a node that has no time left. Unflushed values that it
// counted in place of the owner are still handed over: first to a node that refuses them because it
// is leaving as well, and then once more.
func TestValuesOfANodeWithoutTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, taken, refused := &goneStore{}, 0, false
		peers := &others{values: store}
		peers.answer = func(_ *ring.Member, request, _ any) error {
			switch q := request.(type) {
			case *node.DistinctRequest:
				return rpc.ErrUnreachable
			case *node.DistinctHandover:
				if !refused {
					refused = true
					return twotier.ErrFull
				}
				taken += len(q.Keys)
			}
			return nil
		}
		n, key := beside(t, nil, peers)
		var res distinct.Result
		err := n.Distinct(t.Context(), &distinct.Op{Key: key}, [][]byte{[]byte("v")}, &res)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := n.Drain(ctx); err != nil {
			t.Error(err)
		}
		if taken != 1 {
			t.Errorf("%d keys were handed over, want 1", taken)
		}
		store.back.Store(true)
	})
}

// TestValuesWithoutTimeBlameNoHandover expects a request that expired before any node was asked to
// report just that.
func TestValuesWithoutTimeBlameNoHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, key := beside(t, nil, &others{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var res distinct.Result
		err := n.Distinct(ctx, &distinct.Op{Key: key}, [][]byte{[]byte("v")}, &res)
		if !errors.Is(err, twotier.ErrUnavailable) || strings.Contains(err.Error(), "handed over") {
			t.Error(err)
		}
	})
}

// TestMoreIsPendingThanAnAnswerHas makes a node the owner of partitions of which another node has
// more unflushed values than fit into an answer. It asks until it has received all of them.
func TestMoreIsPendingThanAnAnswerHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wanted []int
		asked, told := 0, map[int]bool{}
		peers := &others{values: &goneStore{}}
		peers.answer = func(_ *ring.Member, request, response any) error {
			q, ok := request.(*node.DistinctPendingRequest)
			if !ok {
				return nil
			}
			if asked++; asked == 1 {
				wanted = q.Partitions
			}
			var keys []distinct.Pending
			for _, p := range q.Partitions {
				if distinct.IsCut(keys) { // as distinct.Engine.ListUnflushed
					break
				}
				told[p] = true
				keys = append(keys, distinct.Pending{Key: fmt.Append(nil, p),
					Values: make([]byte, distinct.MaxPending/5*3)})
			}
			response.(*node.DistinctPendingResponse).Keys = keys
			return nil
		}
		n, _ := beside(t, nil, peers)
		for i := range 20 { // some keys belong to this node
			op := &distinct.Op{Key: fmt.Append(nil, "key", i), Windows: []int64{60_000}}
			_ = n.Distinct(t.Context(), op, nil, new(distinct.Result)) // the answer does not matter
		}
		if len(wanted) < 3 || len(told) != len(wanted) {
			t.Errorf("%d questions, told of %d of %d partitions", asked, len(told), len(wanted))
		}
	})
}

// TestPendingBehindABrokenConnection makes a node an owner while connections to a node with
// unflushed values break a few times in a row. It asks until it gets the answer.
func TestPendingBehindABrokenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wanted []int
		asked, told := 0, false
		peers := &others{values: &goneStore{}}
		peers.answer = func(_ *ring.Member, request, _ any) error {
			q, ok := request.(*node.DistinctPendingRequest)
			if !ok {
				return nil
			}
			if wanted == nil {
				wanted = q.Partitions
			}
			if slices.Equal(q.Partitions, wanted) {
				asked++
			}
			if asked < 5 {
				return rpc.ErrUnreachable
			}
			told = true
			return nil
		}
		n, _ := beside(t, nil, peers)
		for i := range 20 { // some keys belong to this node
			op := &distinct.Op{Key: fmt.Append(nil, "key", i), Windows: []int64{60_000}}
			_ = n.Distinct(t.Context(), op, nil, new(distinct.Result)) // the answer does not matter
		}
		if asked != 5 || !told {
			t.Errorf("asked %d times, want 5", asked)
		}
	})
}
