package hotkeys

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

const (
	// reviewEvery is how often a node looks for hot keys, tick how often it looks for loans that
	// need an exchange with the owner.
	reviewEvery = time.Second
	tick        = 50 * time.Millisecond
	// maxLoans bounds the keys that a node borrows.
	maxLoans = 1024
	// coolAfter is the number of consecutive reviews below half the rate after which a loan ends.
	coolAfter = 3
)

// Counter borrows and lends, see syncer.Counter.
type Counter interface {
	FillLoanRequest(q *twotier.LoanRequest, spare int64) (needed int64, ok bool)
	AcceptLoan(q *twotier.LoanRequest, r *twotier.LoanResponse, asked time.Time)
	EndLoan(q *twotier.LoanRequest) bool
	Lend(ctx context.Context, q *twotier.LoanRequest) (twotier.LoanResponse, error)
	CatchUp(ctx context.Context, c *twotier.Check) error
}

// Options configure a [Tracker]. All but Rate and Logger are required.
type Options struct {
	// Rate is the number of operations per second on a key of another node that makes it hot. 0
	// means that no key ever is.
	Rate float64
	// Placement assigns keys to partitions, Table partitions to members.
	Placement twotier.Placement
	Table     func() *ring.Table
	Counter   Counter
	Peers     rpc.Asker
	// Go runs fn in the background with a context that is done when the node closes, or runs it now
	// if the node is closing.
	Go func(fn func(ctx context.Context))
	// Changed is called after each change of the shared keys, with the tracker's lock held: it may
	// call Shared.
	Changed func()
	// Paused reports whether borrowing is suspended because the cluster counts in Redis.
	Paused func() bool
	// Logger receives keys that become hot or are no longer hot. Default: none.
	Logger *slog.Logger
}

// Tracker tracks hot keys: other nodes' keys that this node borrows, and its own keys that it
// lends.
type Tracker struct {
	opt    Options
	heat   detector
	shared atomic.Pointer[map[string]bool] // the names of the shared keys

	mu       sync.Mutex
	borrowed map[string]*borrowedKey // by name of the key
	lent     map[string]time.Time    // when each key was last lent
	// recalls holds the recalls under way, by key name, each with the recall that follows it, or
	// nil if no caller waits for one yet.
	recalls map[string]*recall
}

// New returns a tracker without hot keys.
func New(opt Options) *Tracker {
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	t := &Tracker{opt: opt, borrowed: map[string]*borrowedKey{}, lent: map[string]time.Time{},
		recalls: map[string]*recall{}}
	t.shared.Store(new(map[string]bool))
	return t
}

// Run borrows hot keys until ctx is done.
func (t *Tracker) Run(ctx context.Context) {
	var exchanges sync.WaitGroup
	defer exchanges.Wait()
	for last := time.Now(); retry.Pause(ctx, tick); {
		if now := time.Now(); now.Sub(last) >= reviewEvery {
			t.reviewLoans(now.Sub(last))
			last = now
		}
		for to, list := range t.dueLoans(time.Now()) {
			exchanges.Go(func() { t.exchange(ctx, to, list) })
		}
	}
}

// Sample samples operations that this node can't run alone because other nodes own some of their
// keys.
func (t *Tracker) Sample(ops []twotier.Op) {
	if t.opt.Rate > 0 {
		t.heat.sample(ops, t.isForeign)
	}
}

// isForeign reports whether another node owns a key.
func (t *Tracker) isForeign(c *twotier.Check) bool {
	return !t.opt.Table().OwnedBySelf(t.opt.Placement.Of(c.NS, c.Key))
}

// Shared returns the names of the keys that this node borrows or lends. Nobody changes the map.
func (t *Tracker) Shared() map[string]bool { return *t.shared.Load() }

// Sizes returns the number of this node's keys that other nodes borrow, and the number of other
// nodes' keys that this node borrows.
func (t *Tracker) Sizes() (lent, borrowed int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range t.lent {
		if time.Since(at) < 2*twotier.LoanTime {
			lent++
		}
	}
	return lent, len(t.borrowed)
}

// reviewLoans begins to borrow keys that have become hot since the last review, and ends loans of
// keys that have cooled down.
func (t *Tracker) reviewLoans(since time.Duration) {
	seen, hot := t.heat.drain(), int64(t.opt.Rate*since.Seconds())
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.publishLocked()
	maps.DeleteFunc(t.lent, func(_ string, at time.Time) bool {
		return time.Since(at) >= 2*twotier.LoanTime
	})
	for name, b := range t.borrowed {
		b.updateEnding(seen[name], hot)
	}
	for name, h := range seen {
		if h.events >= hot && hot > 0 && t.borrowed[name] == nil && !t.opt.Paused() &&
			len(t.borrowed) < maxLoans {
			t.borrowed[name] = newLoan(&h.check)
			t.opt.Logger.Info("a key is hot: borrowing from its owner", "key", string(h.check.Key))
		}
	}
}

// publishLocked publishes the names of the shared keys, unless they are still the same.
func (t *Tracker) publishLocked() {
	names := make(map[string]bool, len(t.borrowed)+len(t.lent))
	for name := range t.lent {
		names[name] = true
	}
	for name, b := range t.borrowed {
		if !b.ending {
			names[name] = true
		}
	}
	if !maps.Equal(names, t.Shared()) {
		t.shared.Store(&names)
		t.opt.Changed()
	}
}

const (
	// sampleEvery is the number of operations per sample.
	sampleEvery = 64
	// maxHeat bounds the keys tracked between two reviews.
	maxHeat = 1024
)

// detector samples operations on keys of other nodes.
type detector struct {
	seen atomic.Uint64

	mu   sync.Mutex
	keys map[string]*heat
}

// heat is the number of sampled operations on a key, scaled up, and the limits of the last one.
type heat struct {
	check  twotier.Check
	events int64
}

// sample samples one in sampleEvery of the operations, chosen at random: uniform batches may have
// the same key at every 64th place. foreign reports whether another node owns a key.
func (d *detector) sample(ops []twotier.Op, foreign func(*twotier.Check) bool) {
	k := uint64(len(ops))
	after := d.seen.Add(k)
	for range after/sampleEvery - (after-k)/sampleEvery {
		op := &ops[rand.IntN(len(ops))]
		for i := range op.Checks {
			if c := &op.Checks[i]; op.MayBorrow() && foreign(c) {
				d.add(op.Kind, c)
			}
		}
	}
}

func (d *detector) add(kind twotier.Kind, c *twotier.Check) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := string(c.AppendName(nil))
	h := d.keys[name]
	switch {
	case h == nil && len(d.keys) >= maxHeat:
		return
	case h == nil && d.keys == nil:
		d.keys = map[string]*heat{}
	}
	if h == nil {
		h = &heat{check: twotier.Check{NS: slices.Clone(c.NS), Key: slices.Clone(c.Key)}}
		d.keys[name] = h
	}
	h.events += sampleEvery
	if kind == twotier.Acquire {
		h.check.Limits = slices.Clone(c.Limits)
	}
}

// drain returns the approximate number of operations on each key since the last call.
func (d *detector) drain() map[string]*heat {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys := d.keys
	d.keys = nil
	return keys
}
