package syncer

import "twotier.dev/twotier/internal/arena"

// round is a round of this counter: the public half, which the store gets, and the counter's own.
type round struct {
	Round
	parts []part // in the order of Keys

	buckets []Bucket // of all keys
	known   []int64  // the store's counts of these buckets as known at the cut; may be shorter
	names   []byte
	// throughTicket is the last ticket that is acknowledged along with the round.
	throughTicket uint64
	most          int  // maximum number of its keys
	reads         int  // most buckets that its answer can hold
	mostReads     int  // maximum of reads
	imported      bool // it was cut by another counter
	// outcomeUnknown: the round was sent and got no answer. It may have been applied, or may still
	// be.
	outcomeUnknown bool
	loads          map[string]*pendingLoad
	generation     uint32 // the partition's when the round was last sent, see storeState
}

// part is one key's part of a round.
type part struct {
	*KeyRound // one of the round's Keys

	ref  arena.Ref
	hash uint32
	adds int // where this key's Adds end in the round's buckets
	// unparked: the round retries a parked key, which is off the list of parked keys meanwhile.
	unparked bool
	// compared: the known counts of the Adds are still part of the synced counts.
	compared bool
	known    []int64 // of the Adds; empty if they are not known
}

// knownAt returns the store's count of one of the Adds, as known at the cut.
func (k *part) knownAt(i int) int64 {
	if i < len(k.known) {
		return k.known[i]
	}
	return 0
}

// reset empties the round, keeping its memory.
func (r *round) reset() {
	*r = round{Round: Round{Keys: r.Keys[:0]}, parts: r.parts[:0], buckets: r.buckets[:0],
		known: r.known[:0], names: r.names[:0]}
}

// addKey appends a key, reusing memory of an earlier use of the round. The result is valid until
// the next call.
func (r *round) addKey(ns, key []byte) *part {
	if len(r.Keys) < cap(r.Keys) {
		r.Keys = r.Keys[:len(r.Keys)+1]
	} else {
		r.Keys = append(r.Keys, KeyRound{})
		r.pointParts()
	}
	k := &r.Keys[len(r.Keys)-1]
	*k = KeyRound{Loaded: k.Loaded[:0]}
	r.parts = append(r.parts, part{KeyRound: k})
	// When names grows, it may move. Earlier views keep the old memory alive, which still holds the
	// same bytes.
	at := len(r.names)
	r.names = append(append(r.names, ns...), key...)
	k.NS = r.names[at : at+len(ns) : at+len(ns)]
	k.Key = r.names[at+len(ns) : len(r.names) : len(r.names)]
	return &r.parts[len(r.parts)-1]
}

// pointParts points the parts at their keys, which have moved.
func (r *round) pointParts() {
	for i := range r.parts {
		r.parts[i].KeyRound = &r.Keys[i]
	}
}

// addBucket appends a bucket to the key added last. known is the store's count as known now.
func (r *round) addBucket(b Bucket, known int64) {
	r.buckets, r.known = append(r.buckets, b), append(r.known, known)
}

// seal points every key at its buckets, which no longer move, and reports whether the round changes
// anything.
func (r *round) seal() (changes bool) {
	at := 0
	for i := range r.parts {
		k := &r.parts[i]
		k.Adds = r.buckets[at:k.adds:k.adds]
		if len(r.known) == len(r.buckets) {
			k.known = r.known[at:k.adds:k.adds]
		}
		at = k.adds
		changes = changes || k.Reset || k.Renew
	}
	return changes || len(r.buckets) > 0
}

// adopt returns a round that another counter has cut.
func adopt(r *Round) *round {
	own := &round{Round: *r, parts: make([]part, len(r.Keys))}
	own.pointParts()
	return own
}
