package rounds

import (
	"bytes"
	"slices"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/store"
)

const (
	// maxBuckets bounds the buckets in a round. A store takes about a microsecond for each.
	maxBuckets = 8192
	// maxContents bounds the buckets in the contents of a round's keys, which take its memory.
	maxContents = 16 * maxBuckets
	// flushReads bounds the loads in a flushing round, which holds up others, and is sent again
	// unchanged until there is an answer.
	flushReads = 16 << 10
	// ReadsOfKey is the part of the time for a key that does not depend on its buckets.
	ReadsOfKey = 8
)

// Round is a round of this counter: the public half, which the store gets, and the counter's own.
type Round struct {
	store.Round
	Parts []Part // in the order of Keys

	Buckets  []store.Bucket // of all keys
	contents []store.Bucket // of the keys whose content is known
	names    []byte
	// ThroughTicket is the last ticket that is acknowledged along with the round.
	ThroughTicket uint64
	Most          int  // maximum number of its keys
	Reads         int  // most buckets that its answer can hold
	MostReads     int  // maximum of Reads
	Imported      bool // it was cut by another counter
	// OutcomeUnknown: the round was sent and got no answer. It may have been applied, or may still
	// be.
	OutcomeUnknown bool
	Loads          map[string]*PendingLoad
	Generation     uint32 // the partition's when the round was last sent, see StoreState.Generation
}

// Part is one key's part of a round.
type Part struct {
	*store.KeyRound // one of the round's Keys

	Ref  arena.Ref
	Hash uint32
	end  int // of this key's Adds in the round's buckets
	// Unparked: the round retries a parked key, which is off the list of parked keys meanwhile.
	Unparked bool
	content  [2]int // where the key's Content is in the round's contents
}

// Reset empties the round, keeping its memory. It then has room for most keys.
func (r *Round) Reset(partition int, writer string, most int) {
	*r = Round{Round: store.Round{Partition: partition, Writer: writer, Keys: r.Keys[:0]},
		Parts: r.Parts[:0], Buckets: r.Buckets[:0], contents: r.contents[:0],
		names: r.names[:0], Most: most, MostReads: flushReads}
}

// Full reports whether a round has reached its maximum size.
func (r *Round) Full() bool {
	return len(r.Keys) >= r.Most || len(r.Buckets) >= maxBuckets || r.Reads >= r.MostReads ||
		len(r.contents) >= maxContents
}

// ReadsOf returns how many reads a key with this ladder counts as.
func ReadsOf(l *leaparray.Ladder) int { return ReadsOfKey + l.MaxCells() }

// AddKey appends a key, reusing memory of an earlier use of the round. The result is valid until
// the next call.
func (r *Round) AddKey(ns, key []byte) *Part {
	if len(r.Keys) < cap(r.Keys) {
		r.Keys = r.Keys[:len(r.Keys)+1]
	} else {
		r.Keys = append(r.Keys, store.KeyRound{})
		r.pointParts()
	}
	k := &r.Keys[len(r.Keys)-1]
	*k = store.KeyRound{Loaded: k.Loaded[:0]}
	r.Parts = append(r.Parts, Part{KeyRound: k})
	// When names grows, it may move. Earlier views keep the old memory alive, which still holds the
	// same bytes.
	at := len(r.names)
	r.names = append(append(r.names, ns...), key...)
	k.NS = r.names[at : at+len(ns) : at+len(ns)]
	k.Key = r.names[at+len(ns) : len(r.names) : len(r.names)]
	return &r.Parts[len(r.Parts)-1]
}

// pointParts points the parts at their keys, which have moved.
func (r *Round) pointParts() {
	for i := range r.Parts {
		r.Parts[i].KeyRound = &r.Keys[i]
	}
}

// AddContent appends the content of the key added last: the cells that add appends, by width and
// then in the order of time, and those of the same stretch summed. It returns the result, which may
// move until Seal.
func (r *Round) AddContent(k *Part, add func(to []store.Bucket) []store.Bucket) []store.Bucket {
	first := len(r.contents)
	r.contents = add(r.contents)
	list := r.contents[first:]
	if !slices.IsSortedFunc(list, store.Bucket.Compare) {
		slices.SortFunc(list, store.Bucket.Compare)
	}
	sums := list[:0]
	for i := 0; i < len(list); {
		sum, counts := list[i], list[i].N != 0
		for i++; i < len(list) && list[i].Stretch == sum.Stretch; i++ {
			sum.N, counts = sum.N+list[i].N, counts || list[i].N != 0
		}
		if sum.N != 0 || !counts { // or it is a mark
			sums = append(sums, sum)
		}
	}
	r.contents = r.contents[:first+len(sums)]
	k.content = [2]int{first, len(r.contents)}
	return sums
}

// DropContent takes the content of the key added last back.
func (r *Round) DropContent(k *Part) {
	r.contents, k.content = r.contents[:k.content[0]], [2]int{}
}

// Seal points every key at its buckets, which no longer move, and reports whether the round changes
// anything.
func (r *Round) Seal() (changes bool) {
	at := 0
	for i := range r.Parts {
		k := &r.Parts[i]
		k.Adds = r.Buckets[at:k.end:k.end]
		at = k.end
		if from, to := k.content[0], k.content[1]; to > from {
			k.Content = r.contents[from:to:to]
		}
		changes = changes || k.Reset || k.Renew
	}
	return changes || len(r.Buckets) > 0
}

// Adopt returns a round that another counter has cut.
func Adopt(r *store.Round) *Round {
	own := &Round{Round: *r, Parts: make([]Part, len(r.Keys))}
	own.pointParts()
	return own
}

// MarkForgotten marks a key's part of a round as forgotten.
func (r *Round) MarkForgotten(at arena.Ref, hash uint32, e keys.Entry) {
	for i := range r.Parts {
		if k := &r.Parts[i]; k.Ref == at || k.Ref == 0 && k.Hash == hash && e.IsOf(k.NS, k.Key) {
			k.Forgotten = true
		}
	}
}

// AnyHasKey reports whether any of the rounds has a part for a key.
func AnyHasKey(rounds []*Round, hash uint32, ns, key []byte) bool {
	return slices.ContainsFunc(rounds, func(r *Round) bool {
		return r.part(hash, ns, key) != nil
	})
}

// part returns a round's part for a key, or nil if there is none.
func (r *Round) part(hash uint32, ns, key []byte) *Part {
	for i := range r.Parts {
		k := &r.Parts[i]
		if (k.Ref != 0 || k.Hash == hash) && bytes.Equal(k.Key, key) && bytes.Equal(k.NS, ns) {
			return k
		}
	}
	return nil
}

// LoadOf returns the pending load of a key in a round, or nil if no operation waits for it.
func (r *Round) LoadOf(k *Part) *PendingLoad {
	if len(r.Loads) == 0 {
		return nil
	}
	return r.Loads[LoadName(k.NS, k.Key)]
}

// AppendBuckets appends buckets to the round's buckets and makes the key's Adds end there.
func (k *Part) AppendBuckets(r *Round, more []store.Bucket) {
	r.Buckets = append(r.Buckets, more...)
	k.end = len(r.Buckets)
}

// Copy returns a copy of a round with everything that another counter needs to send it. It leaves
// out loads, because the other counter loads keys on demand. Expired buckets are deleted because of
// the ladder.
func (r *Round) Copy() *store.Round {
	c := &store.Round{Partition: r.Partition, Now: r.Now, Writer: r.Writer, Seq: r.Seq,
		Nonce: r.Nonce, Acked: r.Acked, Keys: make([]store.KeyRound, len(r.Keys))}
	for i := range r.Keys {
		k := &r.Keys[i]
		c.Keys[i] = store.KeyRound{
			NS: slices.Clone(k.NS), Key: slices.Clone(k.Key), Reset: k.Reset, Renew: k.Renew,
			Forgotten: k.Forgotten, Adds: slices.Clone(k.Adds),
		}
	}
	return c
}
