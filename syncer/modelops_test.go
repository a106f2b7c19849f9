package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer"
)

// truth holds the true counts of one key: by coarse buckets, and as a list of events.
type truth struct {
	buckets map[int64]int64 // by the start of the bucket of the coarsest level
	own     map[int64]int64 // counted by the first counter
	log     []event
	limits  []twotier.Limit // nil for keys that are added to
	taken   bool            // something was taken back: the list is not complete
	// asked is when the first counter was last asked for a limit that needs the key to be exact,
	// and how often it had been started by then.
	asked struct {
		at     int64
		starts int
	}
}

// ask records that a counter is asked for limits of a key.
func (w *world) ask(k *truth, limits []twotier.Limit) {
	for _, l := range limits {
		if l.Max <= int64(w.plan.exact) {
			k.asked.at, k.asked.starts = w.now(), w.starts
		}
	}
}

// log records that an event was counted. It is exact if a limit needed that and the counter
// certainly still has the key in memory.
func (w *world) log(k *truth, ts, n int64) {
	exact := k.asked.starts == w.starts && w.now() < k.asked.at+keptFor && w.plan.memory == 0
	k.log = append(k.log, event{ts: ts, n: n, exact: exact})
}

type event struct {
	ts, n int64
	exact bool // it certainly keeps its millisecond while it is among the newest
	// shaky is set when the store lost the event. lost is set once a shaky event has left every
	// window that ends now: memory may have forgotten it too, and only a late event could still ask
	// for it.
	shaky, lost bool
}

// keptFor is less time than a key stays in memory that has room for it, in milliseconds.
const keptFor = 1000

// lose makes the store lose everything, or go back in time. Earlier rounds may arrive afterwards,
// unless a key was reset since the last loss: an empty store can't tell that a part of an earlier
// restoration has what was reset.
func (w *world) lose() {
	if w.resets {
		w.faults.Deliver()
		w.resets = false
	}
	if w.image != nil && w.rnd.IntN(2) == 0 {
		w.store.Rewind(w.image)
	} else {
		w.store.Flush()
	}
	for _, k := range w.keys {
		for i := range k.log {
			k.log[i].shaky = true
		}
	}
}

// age marks the events that may have been forgotten by now.
func (w *world) age(k *truth) {
	for i := range k.log {
		e := &k.log[i]
		e.lost = e.lost || e.shaky && !w.alive(w.coarse(e.ts))
	}
}

func (w *world) truth(key string) *truth {
	k := w.keys[key]
	if k == nil {
		k = &truth{buckets: map[int64]int64{}, own: map[int64]int64{}}
		w.keys[key] = k
		if strings.HasPrefix(key, "limited") {
			for i, lv := range w.plan.levels {
				span := lv.Span().Milliseconds()
				k.limits = append(k.limits,
					twotier.Limit{Window: span - span/3*int64(len(key)%3), Max: 4 + 6*int64(i)})
			}
			if p := w.period(); p != nil {
				k.limits = append(k.limits, twotier.Limit{Period: p, Max: 4 + w.dates.Int64N(20)})
			}
		}
	}
	return k
}

func (w *world) pick() string {
	kind := "free"
	if w.rnd.IntN(2) == 0 {
		kind = "limited"
	}
	return w.key(kind)
}

// key draws a key of a kind. If keys are skewed, nine of ten are in the first partition.
func (w *world) key(kind string) string {
	skewed := w.plan.skewed && w.rnd.IntN(10) > 0
	for {
		key := fmt.Sprint(kind, w.rnd.IntN(w.plan.keys))
		if !skewed || w.partition(key) == 0 {
			return key
		}
	}
}

func (w *world) partition(key string) int {
	return twotier.Placement{Partitions: w.plan.parts}.Of(spaceOf(key), []byte(key))
}

// actor returns the counter that carries out the next operation.
func (w *world) actor() (c *syncer.Counter, own bool) {
	if w.two != nil && w.rnd.IntN(2) == 0 {
		return w.two, false
	}
	return w.c, true
}

// moment returns a time: mostly now, sometimes late, as late as the ladder allows, or a little
// early.
func (w *world) moment() (ts, is int64) {
	now := w.now()
	switch w.rnd.IntN(12) {
	case 0:
		ts = now - w.rnd.Int64N(w.ladder.Span())
	case 1:
		ts = now - w.rnd.Int64N(w.ladder.FineSpan())
	case 2:
		ts = now + w.rnd.Int64N(2000)
	default:
		return 0, now
	}
	return ts, ts
}

// do carries out an operation whose keys are in memory that is overwritten right afterwards (I10).
// It doesn't wait for the store forever. It reports whether the operation was carried out, even if
// it is unknown when the store will have it.
func (w *world) do(c *syncer.Counter, op *twotier.Op, keys []string, res *twotier.Result) bool {
	w.buf = w.buf[:0]
	for _, key := range keys {
		w.buf = append(w.buf, key...)
	}
	at := 0
	for i, key := range keys {
		op.Checks[i].Key = w.buf[at : at+len(key) : at+len(key)]
		at += len(key)
	}
	ctx, cancel := context.WithTimeout(context.Background(),
		time.Duration(1+w.rnd.IntN(2000))*time.Millisecond)
	defer cancel()
	began := w.now()
	err := c.Do(ctx, op, res)
	for i := range w.buf {
		w.buf[i] = 'X'
	}
	switch {
	case err == nil, errors.Is(err, twotier.ErrUnknownOutcome):
		w.used(c, keys, began)
		return true
	case errors.Is(err, twotier.ErrUnavailable):
	case errors.Is(err, twotier.ErrBehind) && w.plan.lag > 0:
		w.behind++
	case errors.Is(err, twotier.ErrOverload) && w.plan.memory > 0:
		w.full(4 << 10)
	case op.Kind != twotier.Add && op.TS != 0 && errors.As(err, new(*twotier.InvalidError)):
		// It is late, and out of a window's reach.
	default:
		w.t.Errorf("%+v: %v", op, err)
	}
	return false
}

// used checks that keys count as used since an operation began, whatever it did with them: keys in
// use are evicted last. A key that is only read may be evicted at once, but is not older.
func (w *world) used(c *syncer.Counter, keys []string, began int64) {
	for _, key := range keys {
		h := c.Held(nil, []byte(key))
		if most := (w.now()-began)/1000 + 3; h.Found && h.Idle > most {
			w.t.Errorf("%s was used just now, but is %d s old, at most %d wanted", key, h.Idle,
				most)
		}
	}
}

// record adds a count to the truth.
func (w *world) record(k *truth, own bool, ts, n int64) {
	k.buckets[w.coarse(ts)] += n
	if own {
		k.own[w.coarse(ts)] += n
	}
}

// amount returns a number that is mostly small, and sometimes close to the limit of a sparse
// bucket, a float64, or a few 64-bit buckets.
func (w *world) amount() int64 {
	if w.rnd.IntN(20) > 0 {
		return 1 + w.rnd.Int64N(5)
	}
	edges := []int64{1<<23 - 1, 1 << 23, 1<<24 + 1, 1 << 30, 1<<53 - 1, 1<<53 + 1, 1 << 58}
	return edges[w.rnd.IntN(len(edges))]
}

// add counts events of a free key.
func (w *world) add() {
	key := w.key("free")
	c, own := w.actor()
	ts, is := w.moment()
	w.addTo(c, own, key, ts, is, w.amount())
}

// burst counts up to twice as many events as keep their millisecond, without asking a limit, and
// asks the narrowest limit of their key when they leave its window.
func (w *world) burst() {
	key := w.key("limited")
	w.acquireOf(w.c, true, []string{key})
	for range 1 + w.rnd.IntN(4) {
		w.addTo(w.c, true, key, 0, w.now(), 1+w.rnd.Int64N(int64(w.plan.exact)/2+1))
		time.Sleep(time.Duration(w.rnd.IntN(40)) * time.Millisecond)
	}
	window, width := w.truth(key).limits[0].Window, w.ladder.Width(0)
	time.Sleep(time.Duration(window-w.rnd.Int64N(min(window, width)+1)) * time.Millisecond)
	for range 4 {
		w.acquireOf(w.c, true, []string{key})
		time.Sleep(time.Duration(w.rnd.Int64N(width/4+1)) * time.Millisecond)
	}
}

// addTo counts n events of a key at a moment.
func (w *world) addTo(c *syncer.Counter, own bool, key string, ts, is, n int64) {
	k := w.truth(key)
	op := twotier.Op{Kind: twotier.Add, TS: ts, Checks: []twotier.Check{{N: n}}}
	var res twotier.Result
	if w.rnd.IntN(6) == 0 && w.two == nil && !w.plan.rewinds && k.limits == nil {
		w.takeBack(key, k, &op)
		return
	}
	if w.do(c, &op, []string{key}, &res) {
		w.record(k, own, is, n)
		w.log(k, is, n)
	}
}

// bounce counts an event and takes it back. That must change neither the counts of others nor the
// memory of the past.
func (w *world) bounce() {
	if w.two != nil || w.plan.memory > 0 || w.plan.rewinds {
		return
	}
	key, now := w.key("limited"), w.now()
	k := w.truth(key)
	op := twotier.Op{Kind: twotier.Add, TS: now, Checks: []twotier.Check{{N: 1}}}
	if !w.do(w.c, &op, []string{key}, new(twotier.Result)) {
		return
	}
	op.Checks[0].N = -1
	if w.now() == now && w.do(w.c, &op, []string{key}, new(twotier.Result)) {
		return
	}
	w.record(k, true, now, 1)
	w.log(k, now, 1)
}

func (w *world) acquire() {
	c, own := w.actor()
	var keys []string
	for range 1 + w.rnd.IntN(3)*w.rnd.IntN(2) {
		key := w.key("limited")
		if len(keys) > 0 && w.rnd.IntN(3) == 0 {
			key = keys[0]
		}
		keys = append(keys, key)
	}
	w.acquireOf(c, own, keys)
}

func (w *world) acquireOf(c *syncer.Counter, own bool, keys []string) {
	ts, is := w.moment()
	op := twotier.Op{Kind: twotier.Acquire, TS: ts, CountDenied: w.rnd.IntN(20) == 0,
		Charge: w.rnd.IntN(20) == 0, DryRun: w.rnd.IntN(20) == 0}
	for _, key := range keys {
		op.Checks = append(op.Checks, w.check(key))
	}
	if w.two != nil {
		op.CountDenied, op.Charge = false, false
	}
	if w.two == nil && w.rnd.IntN(8) == 0 {
		op.Reserve, op.DryRun = "id", false
	}
	var res twotier.Result
	if !w.do(c, &op, keys, &res) {
		return
	}
	for i, key := range keys {
		k := w.truth(key)
		alive := func(e event) bool { return e.ts > w.now()-w.ladder.Span() }
		if slices.ContainsFunc(k.log, alive) && !res.Degraded { // else it may have no entry
			w.ask(k, op.Checks[i].Limits)
		}
	}
	op.TS = is
	// Otherwise an operation out of reach was let through.
	if w.two == nil && !(res.Degraded && w.plan.onCold == syncer.OnColdAllow) {
		w.judge(&op, keys, &res)
	}
	if !op.Counts(&res) || op.Reserve != "" && !(res.Allowed && w.confirm(c, &op, keys)) {
		return
	}
	for i, key := range keys {
		if op.Checks[i].N == 0 {
			continue
		}
		k := w.truth(key)
		w.record(k, own, is, op.Checks[i].N)
		w.ask(k, op.Checks[i].Limits)
		w.log(k, is, op.Checks[i].N)
	}
}

// check draws a check of a key: all of its limits or one of them, so that checks of the same key
// may have different ones, and either spelling of its namespace.
func (w *world) check(key string) twotier.Check {
	c := twotier.Check{N: 1 + w.rnd.Int64N(2), Limits: w.truth(key).limits}
	if w.rnd.IntN(10) == 0 {
		c.N = 0 // asks for room for one
	}
	if w.rnd.IntN(4) == 0 {
		i := w.rnd.IntN(len(c.Limits))
		c.Limits = c.Limits[i : i+1]
	}
	if w.rnd.IntN(4) == 0 {
		c.NS = []byte(twotier.DefaultNamespace)
	}
	return c
}

// confirm confirms or undoes the reservation of some keys. It reports whether the reservation was
// counted.
func (w *world) confirm(c *syncer.Counter, op *twotier.Op, keys []string) bool {
	op.Ack = twotier.AckMemory
	for i, key := range keys {
		op.Checks[i].Key = []byte(key)
	}
	if w.rnd.IntN(3) == 0 {
		c.Undo(op)
		return false
	}
	err := c.Confirm(context.Background(), op)
	if err != nil && !(errors.Is(err, twotier.ErrOverload) && w.plan.memory > 0) {
		w.t.Errorf("confirm: %v", err)
	}
	return err == nil
}

// judge compares a decision with the list of events. An admission must leave no true window
// overfull (I6). A refusal must not have had room even with a bucket to spare at each blurred edge;
// with a limit no larger than the number of exact events, no edge is blurred (I17).
func (w *world) judge(op *twotier.Op, keys []string, res *twotier.Result) {
	counts := map[string]int64{}
	for i, key := range keys {
		counts[key] += op.Checks[i].N
	}
	defer func() { w.figures(op, keys, res, counts) }()
	for i, key := range keys {
		k, n := w.truth(key), max(1, counts[key])
		w.age(k)
		for _, lr := range res.Checks[i].Limits {
			if fullest := k.fullestOf(&lr, op.TS, 0, false) + n; res.Allowed && fullest > lr.Max {
				w.t.Errorf("%s at %d: admitted %d of %d in %d ms or %v: %+v %v", key, op.TS,
					fullest, lr.Max, lr.Window, lr.Period, res, k.log)
			}
			spare := k.blur(op.TS) * lr.BucketMS
			if w.exact(k, &lr, op.TS) {
				spare = 0
			}
			if lr.Refused && k.fullestOf(&lr, op.TS, spare, true)+n <= lr.Max {
				w.t.Errorf("%s at %d: refused with room for %d: %+v %+v", key, op.TS, n, lr, k.log)
			}
		}
		refused := false
		for _, lr := range res.Checks[i].Limits {
			refused = refused || lr.Refused
		}
		if res.Checks[i].Refused != refused && !res.Degraded {
			w.t.Errorf("%s: refused by nothing: %+v", key, res)
		}
	}
}

// exact reports whether a limit of a key is decided exactly at a moment: unless no limit as large
// was asked of it, or the store has lost some of it, or so many events are later that the window's
// events no longer keep their milliseconds.
func (w *world) exact(k *truth, limit *twotier.LimitResult, at int64) bool {
	if limit.Max > int64(w.plan.exact) || w.two != nil {
		return false
	}
	of := twotier.Limit{Window: limit.Window, Period: limit.Period}
	first := at - of.WindowAt(at) + 1
	if newer, _ := k.between(first, math.MaxInt64, math.MaxInt64); k.blur(at) > 1 &&
		newer >= int64(w.plan.exact) {
		return false
	}
	for _, e := range k.log {
		if e.shaky || !e.exact {
			return false
		}
	}
	return true
}

// figures compares the figures of an admission, or a reservation, with the list of events. They
// include the operation's counts of each key.
func (w *world) figures(op *twotier.Op, keys []string, res *twotier.Result,
	counts map[string]int64) {
	if !res.Allowed {
		return
	}
	for i, key := range keys {
		k, n := w.truth(key), counts[key]
		for _, lr := range res.Checks[i].Limits {
			least := k.fullestOf(&lr, op.TS, 0, false) + n
			most := k.fullestOf(&lr, op.TS, k.blur(op.TS)*lr.BucketMS, true) + n
			if lr.Hi < least || lr.Lo > most {
				w.t.Errorf("%s at %d: the answer says %+v, there are %d to %d: %+v", key, op.TS,
					lr, least, most, k.log)
			}
		}
	}
}

// blur returns how many edges of a window that contains the moment may lie within a bucket with
// events on both sides: the older one and, for an event that is not the newest, the younger one.
func (k *truth) blur(ts int64) int64 {
	for _, e := range k.log {
		if e.ts > ts {
			return 2
		}
	}
	return 1
}

// fullestOf returns the largest number of events that a limit compares at a moment, if its edges
// are so many milliseconds farther out.
func (k *truth) fullestOf(limit *twotier.LimitResult, ts, spare int64, lost bool) (sum int64) {
	if limit.Period == nil {
		return k.fullest(limit.Window+spare, ts, lost)
	}
	start, end := limit.Period.Around(ts)
	for _, e := range k.log {
		if e.ts >= start-spare && e.ts < end+spare && (lost || !e.lost) {
			sum += e.n
		}
	}
	return sum
}

// fullest returns the largest number of events in any window of this length that contains the
// moment, with or without lost ones.
func (k *truth) fullest(window, ts int64, lost bool) (most int64) {
	ends := []int64{ts}
	for _, e := range k.log {
		if e.ts > ts && e.ts < ts+window {
			ends = append(ends, e.ts)
		}
	}
	for _, end := range ends {
		sum := int64(0)
		for _, e := range k.log {
			if e.ts > end-window && e.ts <= end && (lost || !e.lost) {
				sum += e.n
			}
		}
		most = max(most, sum)
	}
	return most
}

func (w *world) forget() {
	if w.two != nil || w.plan.rewinds {
		return
	}
	key := w.pick()
	if w.reset(key) {
		k := w.truth(key)
		clear(k.buckets)
		clear(k.own)
		k.log, k.taken = nil, false
	}
}

// reset resets a key, and reports whether it was reset, or will be.
func (w *world) reset(key string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	w.resets = true
	switch err := w.c.ResetKey(ctx, spaceOf(key), []byte(key)); {
	case err == nil, errors.Is(err, twotier.ErrUnknownOutcome):
		return true
	case errors.Is(err, twotier.ErrOverload) && w.plan.memory > 0:
	default:
		w.t.Error(err)
	}
	return false
}

// verify compares memory's counts of a key with the true ones (I1), and the running sums with the
// actual sums (I7).
func (w *world) verify(key string) {
	k := w.truth(key)
	h := w.c.Held(nil, []byte(key))
	sum := w.nest(h.Synced)
	for b, n := range w.nest(h.Pending) {
		sum[b] += n
	}
	switch {
	case !h.Found:
	case w.two != nil:
		for b, n := range sum {
			if w.alive(b) && (n < k.own[b] && h.Warm || n > k.buckets[b]) {
				w.t.Errorf("%s: bucket %v shows %d, counted here %d, in all %d", key, b, n,
					k.own[b], k.buckets[b])
			}
		}
	case h.Warm:
		w.same("in memory", key, k.buckets, sum)
	}
	s := w.c.Stats()
	w.peak = max(w.peak, s.MemoryBytes)
	if found, kept := w.c.PendingFound(); found != kept {
		w.t.Errorf("%d buckets are pending, Stats says %d", found, kept)
	}
	if s.EvictedTotal > 0 {
		w.full(40 << 10)
	}
	if most := 3*s.MaxMemory + int64(w.plan.parts)<<15 +
		int64(8*16*w.ladder.MaxWords()); w.plan.memory > 0 && s.MemoryBytes > most {
		w.t.Errorf("%d bytes of memory, at most %d wanted", s.MemoryBytes, most)
	}
}

// reclaimed checks that the reserve for small partitions is free again once the store has
// everything and no operation needs it: the largest partition has given up its part of the reserve.
func (w *world) reclaimed() {
	if !w.plan.skewed {
		return
	}
	time.Sleep(30 * time.Second)
	for i, c := range w.counters() {
		if n := c.ReserveUsed(); n > 0 {
			w.t.Errorf("counter %d: %d bytes of the reserve are in use: %+v", i, n, c.Stats())
		}
	}
}

// full checks that memory was used up, give or take slack, except for the reserve: nothing is
// evicted or refused before that.
func (w *world) full(slack int64) {
	s := w.c.Stats()
	w.peak = max(w.peak, s.MemoryBytes)
	if w.peak < s.MaxMemory-s.MaxMemory/32-slack {
		w.t.Errorf("%d keys evicted or one refused when never more than %d of %d bytes were in use",
			s.EvictedTotal, w.peak, s.MaxMemory)
	}
}
