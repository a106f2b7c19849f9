package rounds

// PendingLoad is a key that operations wait to have loaded. It is in one place at a time: among the
// partition's waiting loads, or in one round, which either loads the key or puts it back. A writing
// round includes the pending loads of its keys. A load in flight next to it can't be used for them,
// because it may or may not return counts that are being written. The partition's lock
// guards it.
type PendingLoad struct {
	NS, Key   []byte
	Hash      uint32
	Waiters   int
	Exclusive bool // only a round without overlap may load it
	Done      bool
	Err       error
	Absence   Absence
	next      *PendingLoad // for the same key, requested while this one was in a round
}

// Absence records that the store has nothing of a key. It ends when others have changed the
// partition, or when the key may have been counted here and dropped since.
type Absence struct {
	Known      bool
	Generation uint32
	Drops      uint64
}

// HasWaiters reports whether any operation still waits.
func (l *PendingLoad) HasWaiters() bool {
	for ; l != nil; l = l.next {
		if l.Waiters > 0 {
			return true
		}
	}
	return false
}

// Finish ends the wait for a key, for all loads in the chain.
func (l *PendingLoad) Finish(err error, a Absence) {
	for ; l != nil; l = l.next {
		l.Done, l.Err, l.Absence = true, err, a
	}
}

// PendingLoads holds the keys that a partition has to load. It is guarded by the partition's lock.
type PendingLoads struct {
	Retry   Backoff
	Waiting map[string]*PendingLoad // by LoadName; not in a round yet
	// Exclusive: only a round without overlap may load some of them.
	Exclusive bool
	UnderWay  *roundUnderWay // may overlap with a flushing round
	voided    uint64         // how often loads in flight were voided
	Probe     bool           // ask the store even if no key is waited for
}

// roundUnderWay is a loading round in flight.
type roundUnderWay struct {
	Round *Round
	// generation and voided are the values from the cut of the round. If they have changed since,
	// its answer is void.
	generation uint32
	voided     uint64
}

// LoadName returns the map key of a pending load.
func LoadName(ns, key []byte) string { return string(ns) + "\x00" + string(key) }

// Request registers an operation that waits for a key.
func (q *PendingLoads) Request(hash uint32, ns, key []byte) *PendingLoad {
	name := LoadName(ns, key)
	l := q.Waiting[name]
	if l == nil {
		b := []byte(name)
		l = &PendingLoad{NS: b[:len(ns):len(ns)], Key: b[len(ns)+1:], Hash: hash}
		q.put(name, l)
	}
	l.Waiters++
	return l
}

// put adds a load to the loads that wait for a round.
func (q *PendingLoads) put(name string, l *PendingLoad) {
	if q.Waiting == nil {
		q.Waiting = map[string]*PendingLoad{}
	}
	last := l
	for last.next != nil {
		last = last.next
	}
	last.next = q.Waiting[name]
	q.Waiting[name] = l
}

// MoveTo moves a load into a round.
func (q *PendingLoads) MoveTo(r *Round, name string) {
	if r.Loads == nil {
		r.Loads = map[string]*PendingLoad{}
	}
	r.Loads[name] = q.Waiting[name]
	delete(q.Waiting, name)
}

// PutBack takes back the loads of a round that does not load their keys. exclusive reserves them
// for a round without overlap.
func (q *PendingLoads) PutBack(r *Round, exclusive bool) {
	for name, l := range r.Loads {
		l.Exclusive = exclusive
		q.put(name, l)
	}
	q.Exclusive = q.Exclusive || exclusive && len(r.Loads) > 0
	r.Loads = nil
}

// Join makes a round load one of its keys if an operation waits for that.
func (q *PendingLoads) Join(r *Round, k *Part) {
	if len(q.Waiting) == 0 && q.UnderWay == nil {
		return
	}
	name := LoadName(k.NS, k.Key)
	q.VoidKey(name)
	if q.Waiting[name] != nil {
		q.MoveTo(r, name)
		k.Load = true
	}
}

// VoidKey voids a key's part of a load in flight, because the key may change meanwhile.
func (q *PendingLoads) VoidKey(name string) {
	if q.UnderWay == nil {
		return
	}
	if l := q.UnderWay.Round.Loads[name]; l != nil {
		delete(q.UnderWay.Round.Loads, name)
		q.put(name, l)
	}
}

// VoidKeys is VoidKey for all keys of a round.
func (q *PendingLoads) VoidKeys(r *Round) {
	if q.UnderWay == nil {
		return
	}
	for i := range r.Parts {
		q.VoidKey(LoadName(r.Parts[i].NS, r.Parts[i].Key))
	}
}

// Begin records that a loading round is in flight.
func (q *PendingLoads) Begin(r *Round, generation uint32) {
	q.Probe = false
	q.UnderWay = &roundUnderWay{Round: r, generation: generation, voided: q.voided}
}

// End records that the round is no longer in flight, and reports whether its answer is valid.
func (q *PendingLoads) End(generation uint32) (valid bool) {
	l := q.UnderWay
	q.UnderWay = nil
	return l.generation == generation && l.voided == q.voided
}

// VoidAll voids loads in flight, because the partition has changed hands or is about to.
func (q *PendingLoads) VoidAll() { q.voided++ }

// RefuseAll ends all waits with an error, and voids loads in flight.
func (q *PendingLoads) RefuseAll(err error) {
	if q.UnderWay != nil {
		q.PutBack(q.UnderWay.Round, false)
	}
	for name, l := range q.Waiting {
		l.Finish(err, Absence{})
		delete(q.Waiting, name)
	}
	q.VoidAll()
}

// AllowOverlap lets overlapping rounds load the keys that were reserved for a round without
// overlap.
func (q *PendingLoads) AllowOverlap() {
	for _, l := range q.Waiting {
		l.Exclusive = false
	}
	q.Exclusive = false
}
