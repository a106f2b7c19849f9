package syncer

import "time"

// pendingLoad is a key that somebody waits to have loaded. It is in one place at a time: among
// those of the partition, or part of one round, which brings the key or returns it. A round that
// writes takes the pending loads of its keys along: what another beside it would bring of them, be
// it with what is written or without, is of no account then. It is guarded by the partition's lock.
type pendingLoad struct {
	ns, key   []byte
	hash      uint32
	waiters   int
	exclusive bool // it is to be loaded by a round that nothing overlaps
	done      bool
	err       error
	absence   absence
	next      *pendingLoad // of the same key, asked for while this one was part of a round
}

// absence is the knowledge that the store has nothing of a key. It is none any more once others
// have changed the partition, or if the key may have been counted here and dropped since.
type absence struct {
	known      bool
	generation uint32
	drops      uint64
}

// waited reports whether anybody still waits.
func (l *pendingLoad) waited() bool {
	for ; l != nil; l = l.next {
		if l.waiters > 0 {
			return true
		}
	}
	return false
}

// tell ends the wait for a key, all of them.
func (l *pendingLoad) tell(err error, a absence) {
	for ; l != nil; l = l.next {
		l.done, l.err, l.absence = true, err, a
	}
}

// pendingLoads is what a partition is to ask the store for. It is guarded by the partition's lock.
type pendingLoads struct {
	retry   backoff
	waiting map[string]*pendingLoad // by loadName; not part of a round yet
	// exclusive: some of them are to be loaded by a round that nothing overlaps.
	exclusive bool
	underWay  *roundUnderWay // beside the round that flushes
	voided    uint64         // how many times what was under way has become void
	probe     bool           // the store is to be asked, even for nothing
	lossSeen  bool           // a round that nothing overlaps is to find the loss once more
}

// roundUnderWay is a round that loads.
type roundUnderWay struct {
	round *Round
	// generation and voided are those of when the round was cut: if they have moved on, what it
	// brings is void.
	generation uint32
	voided     uint64
}

// loadName is what a pending load is found by.
func loadName(ns, key []byte) string { return string(ns) + "\x00" + string(key) }

// ask registers that somebody waits for a key.
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

// put puts a load among those that wait for a round.
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

// moveTo makes a load part of a round.
func (q *pendingLoads) moveTo(r *Round, name string) {
	if r.loads == nil {
		r.loads = map[string]*pendingLoad{}
	}
	r.loads[name] = q.waiting[name]
	delete(q.waiting, name)
}

// putBack returns the loads of a round that does not bring their keys. exclusive is how they are to
// be loaded now.
func (q *pendingLoads) putBack(r *Round, exclusive bool) {
	for name, l := range r.loads {
		l.exclusive = exclusive
		q.put(name, l)
	}
	q.exclusive = q.exclusive || exclusive && len(r.loads) > 0
	r.loads = nil
}

// join has a round bring back a key that it takes, if somebody waits for that.
func (q *pendingLoads) join(r *Round, k *KeyRound) {
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

// recall makes void what a round beside others brings of a key, because it may be changed
// meanwhile.
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
func (q *pendingLoads) recallKeys(r *Round) {
	if q.underWay == nil {
		return
	}
	for i := range r.Keys {
		q.recall(loadName(r.Keys[i].NS, r.Keys[i].Key))
	}
}

// begin notes that a round that loads is on its way.
func (q *pendingLoads) begin(r *Round, generation uint32) {
	q.probe = false
	q.underWay = &roundUnderWay{round: r, generation: generation, voided: q.voided}
}

// end notes that it is no more, and reports whether what it brings counts.
func (q *pendingLoads) end(generation uint32) (valid bool) {
	l := q.underWay
	q.underWay = nil
	return l.generation == generation && l.voided == q.voided
}

// void makes void what is under way: the partition has changed hands, or is about to.
func (q *pendingLoads) void() { q.voided++ }

// refuseAll ends the wait of everybody, and makes void what is under way.
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

// fail has the keys of a round asked for again after a while.
func (q *pendingLoads) fail(r *Round, now time.Time) {
	q.putBack(r, false)
	q.probe = true // until the store can be read again, whether somebody waits or not
	q.retry.fail(now)
}

// allowOverlap has keys that were to be loaded by a round which nothing overlaps loaded beside
// others all the same.
func (q *pendingLoads) allowOverlap() {
	for _, l := range q.waiting {
		l.exclusive = false
	}
	q.exclusive = false
}
