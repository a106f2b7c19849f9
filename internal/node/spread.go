package node

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"twotier/internal/elapsed"
	"twotier/internal/retry"
	"twotier/internal/rpc"
	"twotier/ring"
)

// A hot key is one that other nodes forward to its owner more often than Options.HotRate. Its owner then lets every node count it, for
// a few seconds at a time: the nodes meet in the store (syncer.Counter.Share). Each time that is prolonged the owner hears how much
// they counted, and ends it once that, too, has become less.
const (
	spreadEvery = time.Second     // how often the owner looks at rates and prolongs leases
	leaseTime   = 3 * time.Second // for how long a node may count a key that it does not own
	// One operation in heatSample is looked at to find hot keys.
	heatSample = 64
	// maxHeat bounds the keys that are followed in a second, maxSpread those that are spread at a time.
	maxHeat   = 1024
	maxSpread = 64
	maxLeases = 1024
	// coolAfter is after how many looks in a row below half the rate a key is spread no more.
	coolAfter = 3
)

// spread is what a node knows of hot keys: those of its own that it lets others count, and those of others that it counts.
type spread struct {
	n      *Node
	served atomic.Uint64 // operations on behalf of others
	leased atomic.Int64  // len(leases)

	heatMu sync.Mutex
	heat   map[string]int64 // how often each key was seen since the last look

	mu     sync.RWMutex
	grants map[string]*grant // keys of this node that others count too
	leases map[string]*lease // keys of other nodes that this one counts
}

// grant is a key that its owner lets others count.
type grant struct {
	key    SpreadKey
	cooled int       // looks in a row at which it was no longer hot
	until  time.Time // when the last lease ends
}

// lease is the permission to count a key of another node.
type lease struct {
	key    SpreadKey
	owner  string // name of the member that gave it
	since  time.Time
	length time.Duration
	ops    atomic.Int64 // since the owner was last told
}

func newSpread(n *Node) *spread {
	return &spread{n: n, heat: map[string]int64{}, grants: map[string]*grant{}, leases: map[string]*lease{}}
}

// note looks at one in heatSample of the operations that others forward to this node.
func (s *spread) note(tasks []rpc.Task) {
	if s.n.opt.HotRate == 0 {
		return
	}
	k := uint64(len(tasks))
	after := s.served.Add(k)
	for range after/heatSample - (after-k)/heatSample {
		op := &tasks[rand.IntN(len(tasks))].Op // not every 64th: batches that are all alike may have the same key there
		if op.TS != 0 || len(op.Checks) != 1 {
			continue
		}
		name := string(op.Checks[0].AppendName(nil))
		s.heatMu.Lock()
		if _, ok := s.heat[name]; ok || len(s.heat) < maxHeat {
			s.heat[name]++
		}
		s.heatMu.Unlock()
	}
}

// run looks at what is hot until ctx is done.
func (s *spread) run(ctx context.Context) {
	for last := time.Now(); retry.Pause(ctx, spreadEvery); {
		s.endLeases()
		now := time.Now()
		s.look(ctx, now.Sub(last))
		last = now
	}
}

// look finds the keys that have become hot in the time since the last look, prolongs the leases of those that are, and ends the
// spreading of those that are no more.
func (s *spread) look(ctx context.Context, since time.Duration) {
	s.heatMu.Lock()
	heat := s.heat
	s.heat = make(map[string]int64)
	s.heatMu.Unlock()
	hot := int64(s.n.opt.HotRate * since.Seconds())
	t := s.n.table()
	for name, seen := range heat {
		if seen*heatSample >= hot && hot > 0 && t.Len() > 1 {
			s.begin(t, name)
		}
	}
	names, q := s.granted(t)
	if len(names) == 0 {
		return
	}
	ops := s.prolong(ctx, t, q)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, name := range names {
		g := s.grants[name]
		if 2*(ops[i]+heat[name]*heatSample) < hot {
			g.cooled++
		} else {
			g.cooled = 0
		}
	}
}

// granted returns what others may count for another while.
func (s *spread) granted(t *ring.Table) (names []string, q *SpreadQuestion) {
	q = &SpreadQuestion{By: s.n.self(), For: leaseTime}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, g := range s.grants {
		switch {
		case s.mine(t, &g.key) && g.cooled < coolAfter && !s.n.inRedis() && s.n.opt.Counter.Share(g.key.NS, g.key.Key, true) == nil:
			// It was shared already, unless the key has been with another owner since.
			q.Keys, names = append(q.Keys, g.key), append(names, name)
			g.until = time.Now().Add(spreadEvery + leaseTime) // a member may take as long to hear of it
		case time.Now().After(g.until.Add(s.n.opt.Counter.StaleAfter())):
			// No lease is left, and all that was counted under one is flushed.
			delete(s.grants, name)
			s.unshare(name, &g.key)
			s.n.opt.Logger.Info("a key is hot no more: its owner counts it alone", "key", string(g.key.Key))
		}
	}
	return names, q
}

// mine reports whether this node owns a key.
func (s *spread) mine(t *ring.Table, k *SpreadKey) bool {
	return t.Mine(s.n.opt.Placement.Of(k.NS, k.Key))
}

// begin lets others count a key from now on.
func (s *spread) begin(t *ring.Table, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grants[name] != nil || len(s.grants) >= maxSpread {
		return
	}
	ns, key, _ := strings.Cut(name, "\x00")
	g := &grant{key: SpreadKey{NS: []byte(ns), Key: []byte(key)}}
	if !s.mine(t, &g.key) || s.n.opt.Counter.Share(g.key.NS, g.key.Key, true) != nil {
		return
	}
	s.grants[name] = g
	s.n.opt.Logger.Info("a key is hot: every node counts it for now", "key", key)
}

// prolong tells every member which keys it may count, and returns how often they did so since they were last asked.
func (s *spread) prolong(ctx context.Context, t *ring.Table, q *SpreadQuestion) []int64 {
	ops := make([]int64, len(q.Keys))
	if len(q.Keys) == 0 {
		return ops
	}
	var mu sync.Mutex
	rpc.Broadcast(ctx, t, spreadEvery, func(ctx context.Context, m *ring.Member) {
		var a SpreadAnswer
		if s.n.opt.Peers.Ask(ctx, m, q, &a) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range min(len(ops), len(a.Ops)) {
			ops[i] += a.Ops[i]
		}
	})
	return ops
}

// unshare ends the sharing of a key that is neither granted nor leased any more. s.mu is held.
func (s *spread) unshare(name string, k *SpreadKey) {
	if s.grants[name] == nil && s.leases[name] == nil {
		_ = s.n.opt.Counter.Share(k.NS, k.Key, false) // it only ever fails to begin
	}
}

// over reports whether a lease has run out. A machine that was suspended has a monotonic clock that knows nothing of it.
func (l *lease) over(now time.Time) bool { return elapsed.Between(l.since, now) >= l.length }

// askedUntil is until when who asked something was waiting for the answer, now at the latest.
func askedUntil(ctx context.Context, now time.Time) time.Time {
	if by, ok := ctx.Deadline(); ok && by.Before(now) {
		return by
	}
	return now
}

// take takes leases, or prolongs them, and answers how often the keys were counted here since the last time. The owner counts the time of
// a lease from when it gave up waiting for the answer at the latest: so does this node, however long it was held up.
func (s *spread) take(ctx context.Context, q *SpreadQuestion) *SpreadAnswer {
	since := askedUntil(ctx, time.Now())
	a := &SpreadAnswer{Ops: make([]int64, len(q.Keys))}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, k := range q.Keys {
		name := string((&Check{NS: k.NS, Key: k.Key}).AppendName(nil))
		l := s.leases[name]
		if l == nil && len(s.leases) >= maxLeases || s.n.opt.Counter.Share(k.NS, k.Key, true) != nil {
			continue
		}
		if l == nil {
			l = &lease{key: k}
			s.leases[name] = l
			s.leased.Add(1)
		}
		a.Ops[i] = l.ops.Swap(0)
		l.owner, l.since, l.length = q.By.Name, since, min(q.For, leaseTime)
	}
	return a
}

// endLeases gives up the leases that have run out.
func (s *spread) endLeases() {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.n.table()
	for name, l := range s.leases {
		if l.over(time.Now()) || s.mine(t, &l.key) {
			delete(s.leases, name)
			s.leased.Add(-1)
			s.unshare(name, &l.key)
		}
	}
}

// counts reports whether this node may count an operation of another owner beside it.
func (s *spread) counts(op *Op, owner *ring.Member) bool {
	if s.leased.Load() == 0 || op.TS != 0 || len(op.Checks) != 1 {
		return false
	}
	c := &op.Checks[0]
	var b [384]byte
	name := c.AppendName(b[:0])
	s.mu.RLock()
	defer s.mu.RUnlock()
	l := s.leases[string(name)]
	if l == nil || l.owner != owner.Name || l.over(time.Now()) {
		return false
	}
	l.ops.Add(1)
	return true
}

// sizes returns how many keys of this node others count, and how many of others this one counts.
func (s *spread) sizes() (granted, leased int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.grants), len(s.leases)
}
