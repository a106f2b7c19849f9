package node

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/ring"
)

const (
	// valueWorkers is the number of operations on values of one batch that run at the same time.
	valueWorkers = 16
	// listedOps and listedBytes bound the list of operations sent to another node at once, and its
	// answer.
	listedOps   = 512
	listedBytes = 256 << 10
)

// DistinctAll runs operations on one key in their order, and others at the same time. It sends each
// other node its operations in lists. Each operation gets its own error, as from Distinct.
func (n *Node) DistinctAll(ctx context.Context, calls []distinct.Call) {
	var local []*distinct.Call
	forwarded := map[string][]*distinct.Call{}
	deciders, members := map[int]*ring.Member{}, map[string]*ring.Member{}
	for i := range calls {
		c := &calls[i]
		if to := n.knownRemoteOwner(c.Op, deciders); to != nil {
			forwarded[to.Name], members[to.Name] = append(forwarded[to.Name], c), to
		} else {
			local = append(local, c)
		}
	}
	each := func(c *distinct.Call) bool {
		c.Run(func() error { return n.Distinct(ctx, c.Op, c.Values, c.Res) })
		return true
	}
	var running sync.WaitGroup
	for name, list := range forwarded {
		running.Go(func() {
			unserved, unknown := n.forwardDistinctList(ctx, members[name], list)
			runInOrder(unserved, each)
			// These may have been done, whatever prevents their repetition.
			for _, c := range unknown {
				var invalid *twotier.InvalidError
				if c.Err != nil && !errors.As(c.Err, &invalid) {
					c.Err = fmt.Errorf("%w: %v", twotier.ErrUnknownOutcome, c.Err)
				}
			}
		})
	}
	runInOrder(local, each)
	running.Wait()
}

// knownRemoteOwner returns the other node that owns a key, if that is known at once. The answer is
// the same for all keys of a partition, so that operations on one key stay in order.
func (n *Node) knownRemoteOwner(op *distinct.Op, known map[int]*ring.Member) *ring.Member {
	if !n.opened.Load() || n.opt.Distinct == nil || n.opt.Ring == nil || n.inRedis() {
		return nil
	}
	p := n.opt.Distinct.Partition(op)
	to, seen := known[p]
	if !seen {
		to = n.owned.Decider(p)
		known[p] = to
	}
	return to
}

// forwardDistinctList sends operations to another node in their order, in lists, until one gets no
// answer. It returns the operations that are not served, and the ones among them whose outcome is
// unknown.
func (n *Node) forwardDistinctList(ctx context.Context, to *ring.Member,
	calls []*distinct.Call) (unserved, unknown []*distinct.Call) {
	for len(calls) > 1 { // a list of one gains nothing
		q, a := &DistinctListRequest{}, DistinctListResponse{}
		for size := 0; len(q.Ops) < min(len(calls), listedOps); {
			c := calls[len(q.Ops)]
			n.setHashes(c.Op, c.Values)
			size += 256 + 24*len(c.Op.Hashes) + 128*(len(c.Op.Limits)+len(c.Op.Windows))
			if size > listedBytes && len(q.Ops) > 0 {
				break
			}
			q.Ops = append(q.Ops, *c.Op)
		}
		list := calls[:len(q.Ops)]
		err := n.opt.Peers.Ask(ctx, to, q, &a)
		switch {
		case err == nil && len(a.Parts) == len(list):
		case err == nil || errors.Is(err, twotier.ErrUnknownOutcome):
			return calls, list
		default:
			return calls, nil
		}
		for i, c := range list {
			if c.Err = a.Parts[i].Err; errors.Is(c.Err, twotier.ErrNotOwner) {
				unserved = append(unserved, c)
			} else if *c.Res = a.Parts[i].Result; c.Err == nil {
				setOwnerSource(c.Res)
				n.recordDistinct(c.Op, c.Res)
			}
		}
		if calls = calls[len(list):]; len(unserved) > 0 {
			break // later operations may be on the same keys
		}
	}
	return append(unserved, calls...), nil
}

// serveDistinctList runs operations for another node. It skips the operations behind one that this
// node no longer owns, by the same worker: they may be on the same key.
func (n *Node) serveDistinctList(ctx context.Context,
	q *DistinctListRequest) *DistinctListResponse {
	a := &DistinctListResponse{Parts: make([]DistinctPart, len(q.Ops))}
	calls, list := make([]distinct.Call, len(q.Ops)), make([]*distinct.Call, len(q.Ops))
	for i := range calls {
		calls[i] = distinct.Call{Op: &q.Ops[i], Res: &a.Parts[i].Result, Err: twotier.ErrNotOwner}
		list[i] = &calls[i]
	}
	runInOrder(list, func(c *distinct.Call) (goOn bool) {
		c.Run(func() error { return n.serveDistinct(ctx, c.Op, c.Res) })
		return !errors.Is(c.Err, twotier.ErrNotOwner)
	})
	for i := range calls {
		var p *distinct.PanicError
		if errors.As(calls[i].Err, &p) {
			n.opt.Logger.Error("panic in an operation for another node", "panic",
				fmt.Sprint(p.What), "stack", string(p.Stack))
		}
		a.Parts[i].Err = calls[i].Err
	}
	return a
}

// runInOrder runs operations by several workers; operations on one key keep their order. A worker
// ends when run returns false.
func runInOrder(calls []*distinct.Call, run func(c *distinct.Call) (goOn bool)) {
	// Each worker has a list.
	var lists [valueWorkers][]*distinct.Call
	seed := maphash.MakeSeed() // random, so that clients can't aim all keys at one worker
	for _, c := range calls {
		at := maphash.Bytes(seed, c.Op.Key) % valueWorkers
		lists[at] = append(lists[at], c)
	}
	var running sync.WaitGroup
	for _, list := range lists {
		if len(list) > 0 {
			running.Go(func() {
				for _, c := range list {
					if !run(c) {
						return
					}
				}
			})
		}
	}
	running.Wait()
}
