package simtest

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	sealing "twotier.dev/twotier/internal/holds"
)

// holds records the holds of clients, and the answers about them.
type holds struct {
	mu     sync.Mutex
	list   []*held
	marks  map[string]*held    // by the key of the mark of one of its keys
	leases map[string][]*lease // by the key that they are on
	losses map[string][]time.Time
	seen   map[string][]sighting
	quotas map[string]*quota
	sums   holdSums
}

// holdSums sums up the holds of schedules.
type holdSums struct{ made, settled, repeated, renewed, released int64 }

// held is a hold. Its id is known to all holders.
type held struct {
	id       string
	keys     []*heldKey
	attempts []*attempt
	lost     bool // the mark of one of its keys may be lost
	until    time.Time
	maker    string // the node that returned the id
	releases bool   // its end releases it, unless it was settled
	stored   bool   // Redis has acknowledged it
	forgot   bool   // its deadline may be lost
	over     bool   // it has ended, and was released if nothing else had come of it
}

// heldKey is one key of a hold, which counted n events.
type heldKey struct {
	key    string
	n      int64
	fixed  bool // settlements leave it as it is
	leased bool
	lo, hi int64 // bound what settlements have changed, as the ledger has it
	least  int64 // the least lo so far
}

// attempt is a settlement of a hold with an amount for each key, or a renewal, which changes none.
type attempt struct {
	asked, told    time.Time
	amounts        []int64
	void           bool // it was not sent
	renews         bool
	done, repeated bool // neither is set if the outcome is unknown
}

// lease is a place that a hold takes among the holds of a key.
type lease struct {
	asked, told time.Time // told is zero if it may not have been taken
	until       time.Time // by the clock of a node
	void        bool      // it was not taken
	degraded    bool
	of          *held // what returns it; nil if nothing does
}

// sighting is an answer that reports how many holds of a key are open.
type sighting struct {
	verdict
	open          int64
	allowed, took bool
}

const holdSecret = "what makes the ids of holds"

// sealer returns a sealer with the secret of all nodes.
func sealer() *sealing.Sealer {
	s := new(sealing.Sealer)
	s.SetSecret([]byte(holdSecret))
	return s
}

// makesHolds returns what a process needs to make and settle holds.
func (p *proc) makesHolds() *ask.Holds {
	h := &ask.Holds{Now: p.clock.Now, Tally: sealing.Tally{Now: p.clock.Now}}
	h.Sealer.SetSecret([]byte(holdSecret))
	return h
}

// pick returns one of the latest holds, which may have been settled, or nil if there is none.
func (s *holds) pick(rnd *rand.Rand) *held {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return nil
	}
	return s.list[max(0, len(s.list)-1-rnd.IntN(12))]
}

// expect records that an acquire is about to be sent that may take leases.
func (s *holds) expect(op *heldOp, asked time.Time) (list []*lease) {
	if op.Hold == "" || op.DryRun {
		return make([]*lease, len(op.Checks))
	}
	for _, c := range op.Checks {
		list = append(list, s.mayTake(c.Key, asked, op.lasts))
	}
	return list
}

// expectAgain records that a renewal is about to be sent.
func (s *holds) expectAgain(one *held, asked time.Time, lasts time.Duration) (list []*lease) {
	for _, k := range one.keys {
		if !k.leased {
			list = append(list, nil)
			continue
		}
		list = append(list, s.mayTake(k.key, asked, lasts))
	}
	return list
}

// mayTake records that a key may get a lease, if that is limited.
func (s *holds) mayTake(key string, asked time.Time, lasts time.Duration) *lease {
	if mostOpen(key) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &lease{asked: asked, until: asked.Add(late + lasts + lasts/64)}
	if s.leases == nil {
		s.leases = map[string][]*lease{}
	}
	s.leases[key] = append(s.leases[key], l)
	return l
}

// forget records that leases were not taken.
func (s *holds) forget(list []*lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range list {
		if l != nil && l.of == nil {
			l.void = true
		}
	}
}

// see records an answer about a key.
func (s *holds) see(key string, one sighting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[string][]sighting{}
	}
	s.seen[key] = append(s.seen[key], one)
}

// add records a hold that an acquire has made, and checks its id.
func (s *holds) add(w *world, op *heldOp, id string, v verdict, leases []*lease) {
	one := &held{id: id, maker: v.by, releases: op.OnExpiry == "release",
		stored: op.Ack == "redis"}
	for _, c := range op.Checks {
		_, fixed := quotaOf(c.Key)
		one.keys = append(one.keys, &heldKey{key: c.Key, n: c.N, fixed: fixed})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sums.made++
	s.addLocked(w, one, op.lasts, v, leases)
}

// renewed records the hold that takes the place of another one.
func (s *holds) renewed(w *world, old *held, id string, lasts time.Duration, v verdict,
	leases []*lease) {
	one := &held{id: id, maker: v.by, releases: old.releases}
	for _, k := range old.keys {
		one.keys = append(one.keys, &heldKey{key: k.key, n: k.n, fixed: k.fixed})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sums.renewed++
	s.addLocked(w, one, lasts, v, leases)
}

func (s *holds) addLocked(w *world, one *held, lasts time.Duration, v verdict, leases []*lease) {
	h, err := sealer().Open(one.id)
	if err != nil || len(h.Checks) != len(one.keys) {
		w.t.Errorf("node %s makes the hold %+v of %d keys: %v", v.by, h, len(one.keys), err)
		return
	}
	until := time.UnixMilli(h.Until)
	one.until = until
	if h.Release != one.releases {
		w.t.Errorf("node %s makes a hold that is released: %v", v.by, h.Release)
	}
	if until.Before(v.asked.Add(lasts-w.plan.apart())) ||
		until.After(v.told.Add(lasts+lasts/64+w.plan.apart())) {
		w.t.Errorf("%s: node %s makes a hold until %v at %v, want %v", one.keys[0].key, v.by, until,
			v.told, lasts)
	}
	none := make([]int64, len(h.Checks))
	marks := h.Settle(0, none, func(*sealing.Check) []twotier.Limit { return nil })
	for i := range h.Checks {
		c := &h.Checks[i]
		if string(c.Key) != one.keys[i].key || c.N != one.keys[i].n {
			w.t.Errorf("node %s makes a hold of %+v, want %+v", v.by, *c, *one.keys[i])
		}
		if s.marks == nil {
			s.marks = map[string]*held{}
		}
		one.keys[i].leased = c.Leased
		s.marks[string(marks.Ops[i].Checks[1].Key)] = one
		if l := leases[i]; l != nil && c.Leased {
			l.told, l.until, l.degraded, l.of = v.told, until, v.degraded, one
		} else if (l != nil || c.Leased) && (l == nil || !l.void) {
			w.t.Errorf("%s: node %s takes a lease: %v", c.Key, v.by, c.Leased)
		}
	}
	s.list = append(s.list, one)
	one.book(w)
}

// begin records that a settlement or renewal is about to be sent, and the returned function what
// came of it.
func (s *holds) begin(w *world, one *held, amounts []int64, renews bool) (
	end func(p *proc, what string, err error, done, repeated bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &attempt{asked: time.Now(), amounts: amounts, renews: renews}
	one.attempts = append(one.attempts, a)
	one.book(w)
	return func(p *proc, what string, err error, done, repeated bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		a.told, a.void, a.done, a.repeated = time.Now(), err != nil, done, repeated
		for _, k := range one.keys {
			w.journal.note("client: %s held %d at %s, %s asked at %s: done %v, repeated %v, %v "+
				"(%s)", k.key, k.n, p.id, what, a.asked.Format("05.000"), done, repeated, err,
				one.id[:min(8, len(one.id))])
		}
		switch {
		case done && repeated:
			s.sums.repeated++
		case done:
			s.sums.settled++
		}
		one.check(w)
		one.book(w)
	}
}

// check checks that a hold is not settled more often than it has keys, nor repeated without a
// first time.
func (h *held) check(w *world) {
	if h.lost || w.isDivided() {
		return
	}
	settled, repeated, unknown := 0, false, false
	for _, a := range h.attempts {
		switch {
		case a.void:
		case !a.done:
			unknown = true
		case a.repeated:
			repeated = true
		default:
			settled++
		}
	}
	key := h.keys[0].key
	if settled > len(h.keys) || repeated && settled == 0 && !unknown {
		w.t.Errorf("%s: node settles a hold %d times, repeated: %v", key, settled, repeated)
		w.t.Logf("%s:\n%s", key, w.journal.about(key))
	}
}

// changes bounds what settlements and the release have changed of a key: one of them was carried
// out, or none was if none is known to be done. sees is set if an owner sees all that it may take
// back, and once if two owners can't both settle the hold.
func (h *held) changes(i int, sees, once bool) (lo, hi int64) {
	var may []int64
	done := false
	for _, a := range h.attempts {
		d := a.amounts[i] - h.keys[i].n
		switch {
		case a.void:
			continue
		case a.done && !a.repeated && once && (len(h.keys) == 1 || a.renews):
			return h.seen(d, d, sees)
		case !a.done || !a.repeated:
			may = append(may, d)
		}
		done = done || a.done
	}
	if h.releases {
		may, done = append(may, -h.keys[i].n), done || h.over && !h.forgot
	}
	if !done || len(may) == 0 || !once {
		may = append(may, 0)
	}
	if once {
		return h.seen(slices.Min(may), slices.Max(may), sees)
	}
	for _, d := range may {
		lo, hi = lo+min(0, d), hi+max(0, d)
	}
	return h.seen(lo, hi, sees)
}

// seen bounds the change if less may be taken back.
func (h *held) seen(lo, hi int64, sees bool) (_, _ int64) {
	if !sees {
		hi = max(hi, 0)
	}
	return lo, hi
}

// book makes the ledger follow what settlements may have changed.
func (h *held) book(w *world) {
	for i, k := range h.keys {
		lo, hi := h.changes(i, w.plan.exact, !h.lost && !w.isDivided())
		w.ledger.of(k.key, func(a *account) {
			a.acknowledged += lo - k.lo
			a.more += hi - lo - (k.hi - k.lo)
			a.taken += max(0, k.least-lo)
		})
		k.lo, k.hi, k.least = lo, hi, min(k.least, lo)
	}
}

// lose records that counts of a companion may be gone, or that only a suspended process has them.
func (s *holds) lose(w *world, ns, key []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.marks[string(key)]; one != nil {
		one.lost = true
		one.book(w)
	} else if twotier.Companion(ns) == twotier.LeaseNamespace {
		s.loseLeases(string(key[1:]))
	}
}

func (s *holds) loseLeases(key string) {
	if s.losses == nil {
		s.losses = map[string][]time.Time{}
	}
	s.losses[key] = append(s.losses[key], time.Now())
}

// isDivided reports whether two nodes may each take itself for the owner of a key.
func (w *world) isDivided() bool { return w.plan.parts() || w.divided.Load() }

// divide records that a node does not learn who owns what.
func (s *holds) divide(w *world) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.divided.Store(true)
	for _, one := range s.list {
		one.book(w)
	}
}

// loseAll records that Redis has lost the counts of all companions.
func (s *holds) loseAll(w *world) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.marks {
		one.lost = true
		one.book(w)
	}
	for key := range s.leases {
		s.loseLeases(key)
	}
}
