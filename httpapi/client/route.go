package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/valyala/fastjson"

	"twotier.dev/twotier/internal/batching"
)

// call is one or more operations sent to a node together, and their answer.
type call struct {
	batching.Call
	ops   int
	body  []byte // the operations, separated by commas
	usual int    // checks among them that default rules judge
	write bool   // it counts, and can't be repeated
	adds  bool   // it adds values
	slow  bool   // it waits for Redis
	by    time.Time
	reply []byte // a JSON array of the answers
}

// Size implements batching.Item.
func (k *call) Size() (ops, bytes int) { return k.ops, len(k.body) }

// takeResults takes one result for each operation of the call and copies it.
func (k *call) takeResults(results *[]*fastjson.Value) error {
	if len(*results) < k.ops {
		*results = nil
		return unknownOutcomeError(k.write, errAnswer)
	}
	k.reply = append(k.reply[:0], '[')
	for i, v := range (*results)[:k.ops] {
		if i > 0 {
			k.reply = append(k.reply, ',')
		}
		k.reply = v.MarshalTo(k.reply)
	}
	k.reply = append(k.reply, ']')
	*results = (*results)[k.ops:]
	return nil
}

// wait waits for the answer. If left is set the call must not be used again, because a lane may
// still have it.
func (k *call) wait(ctx context.Context) (left bool, err error) {
	outcome, err := k.Wait(ctx, time.Until(k.by))
	if errors.Is(err, batching.ErrTime) {
		err = errTimeout
	}
	switch outcome {
	case batching.Finished:
		return false, err
	case batching.Withdrawn:
		return true, fmt.Errorf("%w: %w", ErrUnavailable, err)
	default:
		return true, unknownOutcomeError(k.write, err)
	}
}

// view determines the nodes that operations go to. It is immutable.
type view struct {
	table   *table  // nil if there is none yet
	members []*link // of the table; nil for one that can't be reached directly
	any     []*link // nodes for keys that have no owner, or whose owner does not answer
}

// known returns the links to the members and to the seeds. A link may be there twice.
func (c *Client) known(v *view) []*link {
	all := slices.Concat(v.members, c.seeds)
	return slices.DeleteFunc(all, func(l *link) bool { return l == nil })
}

// trail lists the nodes tried so far.
type trail struct {
	links  [4]*link
	n      int
	direct bool // the last of them is the owner according to the table
}

func (t *trail) full() bool           { return t.n == len(t.links) }
func (t *trail) add(l *link)          { t.links[t.n] = l; t.n++ }
func (t *trail) fits(l *link) bool    { return l != nil && !slices.Contains(t.links[:t.n], l) }
func (t *trail) fitsNow(l *link) bool { return t.fits(l) && l.up.Load() }

// chooseNode returns the node to try next, and whether it is the owner. It prefers the owner, then
// a node that answers, then any node. It returns nil if all were tried.
func (c *Client) chooseNode(at int, tried *trail) (l *link, direct bool) {
	v := c.view.Load()
	if at >= 0 && at < len(v.members) && tried.fitsNow(v.members[at]) {
		return v.members[at], true
	}
	for _, list := range [][]*link{v.any, c.seeds} {
		start := int(c.turn.Add(1))
		for i := range list {
			if l := list[(start+i)%len(list)]; tried.fitsNow(l) {
				return l, false
			}
		}
	}
	for _, list := range [][]*link{v.any, c.seeds} {
		for _, l := range list {
			if tried.fits(l) {
				return l, false
			}
		}
	}
	return nil, false
}

// do sends a call to the member at an index, or to another node if that one certainly did not
// execute it. If left is set, the call must not be used again.
func (c *Client) do(ctx context.Context, k *call, at int,
	tried *trail) (l *link, left bool, err error) {
	err = ErrUnavailable
	for {
		next := c.nextNode(ctx, k.by, at, tried)
		if next == nil {
			return l, false, c.noAnswer(ctx, k.by, err)
		}
		l = next
		k.Reset()
		// An operation that a node has to forward may also take long, if the owner can't be
		// reached.
		slow := k.slow || !tried.direct && c.knowsOwners()
		if err = l.submit(k, slow); err == nil {
			left, err = k.wait(ctx)
		}
		if err == nil {
			c.stats.ops.Add(int64(k.ops))
			if tried.direct {
				c.stats.direct.Add(int64(k.ops))
			}
		}
		if left || !errors.Is(err, errNotDone) {
			return l, left, err
		}
	}
}

// nextNode records and returns the node to try next, see chooseNode. It returns nil if all were
// tried, or if it is too late.
func (c *Client) nextNode(ctx context.Context, by time.Time, at int, tried *trail) (l *link) {
	if tried.full() || c.ctx.Err() != nil || ctx.Err() != nil || !time.Now().Before(by) {
		return nil
	}
	if l, tried.direct = c.chooseNode(at, tried); l != nil {
		tried.add(l)
	}
	return l
}

// noAnswer returns the error of a call that no node answered. The last one has failed with err.
func (c *Client) noAnswer(ctx context.Context, by time.Time, err error) error {
	switch {
	case c.ctx.Err() != nil:
		return ErrClosed
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	case !time.Now().Before(by):
		return fmt.Errorf("%w: %w", ErrUnavailable, errTimeout)
	case errors.Is(err, ErrUnavailable):
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// knowsOwners reports whether the client knows any owners.
func (c *Client) knowsOwners() bool {
	t := c.view.Load().table
	return t != nil && len(t.owners) > 0
}

// begin prepares a call for new operations.
func (k *call) begin() {
	k.ops, k.usual, k.body, k.write = 0, 0, k.body[:0], false
	k.adds, k.slow = false, false
}

// ownerOf returns the index of the member that owns all keys of an acquire, or none.
func (t *table) ownerOf(r *AcquireRequest) int {
	if len(r.Checks) == 0 {
		return t.ownerUnderRules(r.Rules, r.Namespace, r.Key)
	}
	at := none
	for i := range r.Checks {
		c := &r.Checks[i]
		owner := t.ownerUnderRules(c.Rules, c.Namespace, c.Key)
		if owner == none || i > 0 && owner != at {
			return none
		}
		at = owner
	}
	return at
}

// ownerUnderRules returns the index of the member that owns a key judged by named rules, or none:
// without a namespace the key is counted in the namespace of the rules, which the client does not
// know.
func (t *table) ownerUnderRules(rules []string, ns, key string) int {
	if len(rules) > 0 && ns == "" {
		return none
	}
	return t.owner(ns, key)
}
