package simtest

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/companions"
	"twotier.dev/twotier/leaparray"
)

// values records the answers of clients about distinct values.
type values struct {
	mu     sync.Mutex
	keys   map[string]*seen
	serial int64
}

// seen records the values of one key since its last reset.
type seen struct {
	values map[uint64]*value // by hash
	ops    []*addition
	// void is the time until which requests may be void because of a reset. resets is the number of
	// resets in progress. told is set if every node learned of the last one.
	void   time.Time
	resets int
	told   bool
}

// mayBeVoid reports whether an answer may come from a node that has not learned of a reset: given
// before the reset was over, or without Redis if not every node learned of it.
func (s *seen) mayBeVoid(a *addition) bool {
	return s.unclear(a.asked) || a.degraded && !s.void.IsZero() && !s.told
}

// unclear reports whether a reset may have come after a request of that time.
func (s *seen) unclear(asked time.Time) bool { return s.resets > 0 || !asked.After(s.void) }

// value is one value of a key.
type value struct {
	name string
	// added is the time of the last acknowledged request, told the time of the first answer since
	// the value was lost, and lost the last time at which the value may have been lost.
	added, told, lost time.Time
	// open is how many operations may still add the value, settled when the last one of the others
	// was answered.
	open    int
	settled time.Time
}

// certain reports whether the key must have the value.
func (s *seen) certain(v *value) bool { return v.added.After(v.lost) && v.added.After(s.void) }

// addition is an operation that added values, or was meant to.
type addition struct {
	verdict
	hashes  []uint64  // of all values
	own     []uint64  // of the values that no other operation has
	seen    time.Time // when the values were seen, if not when the operation was asked for
	allowed bool
	refused bool // neither is set if the outcome is unknown, or it failed
}

// limitsOn returns the limits of a key with distinct values, if it has any.
func limitsOn(key string) []twotier.Limit {
	switch {
	case strings.HasPrefix(key, "few"):
		return []twotier.Limit{{Window: dayMS, Max: 12 + 20*int64(key[len(key)-1]-'0')}}
	case strings.HasPrefix(key, "steady"):
		return []twotier.Limit{{Window: 2500, Max: 4}, {Window: dayMS, Max: 150}}
	}
	return nil
}

// of calls fn with the record of a key.
func (l *values) of(key string, fn func(s *seen)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys == nil {
		l.keys = map[string]*seen{}
	}
	s := l.keys[key]
	if s == nil {
		s = &seen{values: map[uint64]*value{}}
		l.keys[key] = s
	}
	fn(s)
}

// names returns all keys.
func (l *values) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.keys))
}

// send records that values are about to be sent.
func (s *seen) send(hashes []uint64, names [][]byte) {
	for i, h := range hashes {
		if s.values[h] == nil {
			s.values[h] = &value{name: string(names[i])}
		}
		s.values[h].open++
	}
}

// settle records that an addition has been carried out, or never will be.
func (s *seen) settle(a *addition) {
	for _, h := range a.hashes {
		if v := s.values[h]; v != nil {
			v.open--
			v.settled = a.told
		}
	}
}

// reset records a reset that was acknowledged once every node knew of it. Earlier values are gone,
// except for those of operations that were not over. skew is the difference between clocks. An
// earlier reset of unknown outcome may still be carried out, perhaps without any node learning of
// it.
func (s *seen) reset(asked time.Time, skew time.Duration) {
	told := !s.unclear(asked)
	for h, v := range s.values {
		if v.open == 0 && v.settled.Before(asked.Add(-skew)) {
			delete(s.values, h)
		}
	}
	s.mayBeReset(time.Now().Add(skew))
	s.told = told
}

// mayBeReset records that a reset may be carried out until then.
func (s *seen) mayBeReset(until time.Time) {
	if until.After(s.void) {
		s.void = until
	}
	s.ops, s.told = nil, false
}

// take records the outcome of an addition.
func (s *seen) take(a *addition) {
	if s.unclear(a.asked) {
		return
	}
	s.ops = append(s.ops, a)
	late := !a.seen.IsZero() && !a.seen.After(s.void) // a reset comes after what was seen before it
	if !a.allowed || s.mayBeVoid(a) || late {
		return
	}
	for _, h := range a.hashes {
		v := s.values[h]
		if !s.certain(v) || a.told.Before(v.told) {
			v.told = a.told
		}
		if a.asked.After(v.added) {
			v.added = a.asked
		}
	}
}

// least returns the minimum number of values for a request of that time: the values acknowledged
// before that can't be lost.
func (s *seen) least(asked time.Time) (n int64) {
	for _, v := range s.values {
		if s.certain(v) && v.told.Before(asked) {
			n++
		}
	}
	return n
}

// most returns the maximum number of values.
func (s *seen) most() int64 { return int64(len(s.values)) }

// writeOffValues writes off the values that neither Redis nor a live process has for certain.
func (w *world) writeOffValues() {
	w.atomic.Lock()
	defer w.atomic.Unlock()
	w.writeOffValuesLocked(nil)
}

// writeOffValuesLocked is writeOffValues while w.atomic is held. before are the values that Redis
// had before it lost data: of these, one that is pending no longer is once the reply to its writing
// arrives, and only deciders that stay restore it.
func (w *world) writeOffValuesLocked(before map[string]leaparray.ValueList) {
	known := map[string][]leaparray.ValuesView{}
	for _, p := range w.living() {
		p.counter.EachValues(func(_, key []byte, v leaparray.ValuesView) {
			if v.A, v.B = slices.Clone(v.A), slices.Clone(v.B); w.plan.kind == ruins {
				v.A = nil
			}
			known[string(key)] = append(known[string(key)], v)
		})
	}
	for _, key := range w.values.names() {
		stored, had := w.valuesOf(key), before[key]
		_, name := twotier.ValuesKey(nil, []byte(key))
		w.values.of(key, func(s *seen) {
			for h, v := range s.values {
				if stored.Seen(h) == 0 && !slices.ContainsFunc(known[string(name)],
					func(k leaparray.ValuesView) bool {
						return k.A.Seen(h) != 0 || k.B.Seen(h) != 0 && had.Seen(h) == 0
					}) {
					v.lost = time.Now()
				}
			}
		})
	}
}

// storedValues returns the values of each key in Redis. w.atomic is held.
func (w *world) storedValues() map[string]leaparray.ValueList {
	all := map[string]leaparray.ValueList{}
	for _, key := range w.values.names() {
		all[key] = w.valuesOf(key)
	}
	return all
}

// hash returns the hash of a value.
func (w *world) hash(value []byte) uint64 { return companions.HashValue(w.placement().Seed, value) }

// valuesOf returns the values of a key in Redis. w.atomic is held.
func (w *world) valuesOf(key string) leaparray.ValueList {
	return w.valuesIn(twotier.ValuesKey(nil, []byte(key)))
}

// valuesIn returns the values in Redis of a key that holds values. w.atomic is held.
func (w *world) valuesIn(ns, key []byte) (list leaparray.ValueList) {
	if twotier.IsValues(ns) {
		for _, b := range w.redis.Get(w.placement().Of(ns, key), ns, key) {
			list = list.With(b.ValueHash(), b.N)
		}
	}
	return list
}

// checkValues compares the answers of clients about distinct values with the values in Redis and at
// all nodes.
func (w *world) checkValues() {
	w.awaitResets()
	for _, key := range w.values.names() {
		w.values.of(key, func(s *seen) {
			w.checkStored(key, s)
			w.checkWhole(key, s)
			w.checkLimits(key, s)
		})
		w.checkCounts(key)
		if w.t.Failed() {
			w.t.Logf("%s:\n%s", key, w.journal.about(key))
			return
		}
	}
}

// awaitResets waits until no reset is in progress any more, and all nodes have learned of the last.
func (w *world) awaitResets() {
	var last time.Time
	for _, key := range w.values.names() {
		w.values.of(key, func(s *seen) {
			if s.void.After(last) {
				last = s.void
			}
		})
	}
	if !last.IsZero() {
		time.Sleep(time.Until(last) + 3*cmp.Or(w.plan.verify, time.Second))
	}
}

// checkStored checks that Redis has all values that it must have, and no others.
func (w *world) checkStored(key string, s *seen) {
	w.atomic.Lock()
	defer w.atomic.Unlock()
	stored, known := w.valuesOf(key), int64(0)
	for h, v := range s.values {
		has := stored.Seen(h) != 0
		switch {
		case !has && s.certain(v):
			w.t.Errorf("%s: Redis lacks %s, which was asked for at %s and acknowledged", key,
				v.name, v.added.Format("05.000"))
		case has:
			known++
		}
	}
	if n := int64(stored.Len()); n != known {
		w.t.Errorf("%s: Redis has %d values, of which %d were sent", key, n, known)
	}
}

// checkWhole checks that Redis has all or none of the values that only one operation added, and
// none if that was refused and no two nodes can have decided about the key.
func (w *world) checkWhole(key string, s *seen) {
	w.atomic.Lock()
	defer w.atomic.Unlock()
	stored := w.valuesOf(key)
	for _, a := range s.ops {
		n := 0
		for _, h := range a.own {
			if stored.Seen(h) != 0 {
				n++
			}
		}
		if n > 0 && n < len(a.own) || n > 0 && a.refused && w.plan.exact {
			w.t.Errorf("%s: Redis has %d of the %d values that node %s was asked for at %s "+
				"(refused: %v)", key, n, len(a.own), a.by, a.asked.Format("05.000"), a.refused)
		}
	}
}

// checkLimits checks that no window had more values than the limits allow, if every node could be
// reached all the time.
func (w *world) checkLimits(key string, s *seen) {
	if !w.plan.exact {
		return
	}
	for _, l := range limitsOn(key) {
		window := certain(l.Window, imprecision)
		for _, first := range s.ops {
			within := map[uint64]bool{}
			for _, a := range s.ops {
				if a.allowed && !a.asked.Before(first.asked) &&
					a.told.Before(first.asked.Add(window)) {
					for _, h := range a.hashes {
						within[h] = true
					}
				}
			}
			if int64(len(within)) > l.Max {
				w.t.Errorf("%s: %d values admitted within %d ms, the limit is %d", key,
					len(within), l.Window, l.Max)
				return
			}
		}
	}
}

// checkCounts checks that every node's count equals the count in Redis.
func (w *world) checkCounts(key string) {
	w.atomic.Lock()
	want := int64(w.valuesOf(key).Len())
	w.atomic.Unlock()
	for _, p := range w.alive() {
		op, from := newValueOp(key, nil, nil, dayMS), time.Now()
		if err := p.distinct(op); err != nil {
			w.t.Errorf("%s: node %s says after %v: %v; once more: %v", key, p.id, time.Since(from),
				err, p.distinct(op))
		} else if c := op.counts()[0]; c.Count != want || c.Error != 0 || op.res.Degraded {
			w.t.Errorf("%s: node %s counts %+v, Redis has %d", key, p.id, op.res, want)
		}
	}
}
