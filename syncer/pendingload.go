package syncer

import "time"

// pendingLoad is a key that operations wait to have loaded. It is in one place at a time: among the
// partition's waiting loads, or in one round, which either loads the key or puts it back. A writing
// round includes the pending loads of its keys. A load in flight next to it can't be used for them,
// because it may or may not return counts that are being written. A pendingLoad is guarded by the
// partition's lock.
type pendingLoad struct {
	ns, key   []byte
	hash      uint32
	waiters   int
	exclusive bool // only a round without overlap may load it
	done      bool
	err       error
	absence   absence
	next      *pendingLoad // for the same key, requested while this one was in a round
}

// absence records that the store has nothing of a key. It ends when others have changed the
// partition, or when the key may have been counted here and dropped since.
type absence struct {
	known      bool
	generation uint32
	drops      uint64
}

// waited reports whether any operation still waits.
func (l *pendingLoad) waited() bool {
	for ; l != nil; l = l.next {
		if l.waiters > 0 {
			return true
		}
	}
	return false
}

// tell ends the wait for a key, for all loads in the chain.
func (l *pendingLoad) tell(err error, a absence) {
	for ; l != nil; l = l.next {
		l.done, l.err, l.absence = true, err, a
	}
}

// pendingLoads holds the keys that a partition has to load. It is guarded by the partition's lock.
type pendingLoads struct {
	retry   backoff
	waiting map[string]*pendingLoad // by loadName; not in a round yet
	// exclusive: only a round without overlap may load some of them.
	exclusive bool
	underWay  *roundUnderWay // may overlap with a flushing round
	voided    uint64         // how often loads in flight were voided
	probe     bool           // ask the store even if no key is waited for
	lossSeen  bool           // a load saw a loss; a round without overlap must find it again
}

// roundUnderWay is a loading round in flight.
type roundUnderWay struct {
	round *round
	// generation and voided are the values from the cut of the round. If they have changed since,
	// its answer is void.
	generation uint32
	voided     uint64
}

// loadName returns the map key of a pending load.
func loadName(ns, key []byte) string { return string(ns) + "\x00" + string(key) }

// ask registers an operation that waits for a key.
func (q *pendingLoads) ask(hash uint32, ns, key []byte) *pendingLoad {
	name := loadName(ns, key)
	l := q.waiting[name]
	if l == nil {
		b := []byte(name)
		l = &pendingLoad{ns: b[:len(ns):len(ns)], key: b[len(ns)+1:], hash: hash}
		q.put(name, l)
	}
	l.waiters++
	return l
}

// put adds a load to the loads that wait for a round.
func (q *pendingLoads) put(name string, l *pendingLoad) {
	if q.waiting == nil {
		q.waiting = map[string]*pendingLoad{}
	}
	last := l
	for last.next != nil {
		last = last.next
	}
	last.next = q.waiting[name]
	q.waiting[name] = l
}

// moveTo moves a load into a round.
func (q *pendingLoads) moveTo(r *round, name string) {
	if r.loads == nil {
		r.loads = map[string]*pendingLoad{}
	}
	r.loads[name] = q.waiting[name]
	delete(q.waiting, name)
}

// putBack takes back the loads of a round that does not load their keys. exclusive reserves them
// for a round without overlap.
func (q *pendingLoads) putBack(r *round, exclusive bool) {
	for name, l := range r.loads {
		l.exclusive = exclusive
		q.put(name, l)
	}
	q.exclusive = q.exclusive || exclusive && len(r.loads) > 0
	r.loads = nil
}

// join makes a round load one of its keys if an operation waits for that.
func (q *pendingLoads) join(r *round, k *part) {
	if len(q.waiting) == 0 && q.underWay == nil {
		return
	}
	name := loadName(k.NS, k.Key)
	q.recall(name)
	if q.waiting[name] != nil {
		q.moveTo(r, name)
		k.Load = true
	}
}

// recall voids a key's part of a load in flight, because the key may change meanwhile.
func (q *pendingLoads) recall(name string) {
	if q.underWay == nil {
		return
	}
	if l := q.underWay.round.loads[name]; l != nil {
		delete(q.underWay.round.loads, name)
		q.put(name, l)
	}
}

// recallKeys is recall for all keys of a round.
func (q *pendingLoads) recallKeys(r *round) {
	if q.underWay == nil {
		return
	}
	for i := range r.parts {
		q.recall(loadName(r.parts[i].NS, r.parts[i].Key))
	}
}

// begin records that a loading round is in flight.
func (q *pendingLoads) begin(r *round, generation uint32) {
	q.probe = false
	q.underWay = &roundUnderWay{round: r, generation: generation, voided: q.voided}
}

// end records that the round is no longer in flight, and reports whether its answer is valid.
func (q *pendingLoads) end(generation uint32) (valid bool) {
	l := q.underWay
	q.underWay = nil
	return l.generation == generation && l.voided == q.voided
}

// void voids loads in flight, because the partition has changed hands or is about to.
func (q *pendingLoads) void() { q.voided++ }

// refuseAll ends all waits with an error, and voids loads in flight.
func (q *pendingLoads) refuseAll(err error) {
	if q.underWay != nil {
		q.putBack(q.underWay.round, false)
	}
	for name, l := range q.waiting {
		l.tell(err, absence{})
		delete(q.waiting, name)
	}
	q.void()
}

// postpone puts back the keys of a round that the store has not answered in time, to be requested
// again after a while.
func (q *pendingLoads) postpone(r *round, now time.Time) {
	q.putBack(r, false)
	q.retry.postpone(now)
}

// refuse puts back the keys of a round that the store refused as a whole: it can be reached, and
// may be loading its data.
func (q *pendingLoads) refuse(r *round, now time.Time) {
	q.putBack(r, false)
	q.retry.refuse(now)
}

// fail puts a round's keys back, to be requested again after a while.
func (q *pendingLoads) fail(r *round, now time.Time) {
	q.putBack(r, false)
	q.probe = true // keep asking until the store can be read again, even if nobody waits
	q.retry.fail(now)
}

// allowOverlap lets overlapping rounds load the keys that were reserved for a round without
// overlap.
func (q *pendingLoads) allowOverlap() {
	for _, l := range q.waiting {
		l.exclusive = false
	}
	q.exclusive = false
}
