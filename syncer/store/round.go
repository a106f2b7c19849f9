package store

import (
	"cmp"

	"twotier.dev/twotier/leaparray"
)

// Bucket is one bucket of a key, with a number; or one of its values, with a time. A key has either
// only buckets or only values.
type Bucket struct {
	// Stretch is the time that the bucket counts, a millisecond for an event that keeps its time. A
	// round cut by another counter may have widths that are not in this one's ladder. For a value
	// it is [leaparray.ValueAt] its hash.
	leaparray.Stretch
	// N is a delta to add, or a count. For a value it is when it was last seen, in unix
	// milliseconds below 2^48, of which the store keeps the latest. A negative N in Adds deletes
	// the value, unless it was seen after -N.
	N int64
	// Stored is set by the store in a round's Adds of values: when the value was last seen, after
	// the round, or 0 if the key does not have it.
	Stored int64
}

// Compare orders buckets by width, and then by time.
func (b Bucket) Compare(with Bucket) int {
	return cmp.Or(cmp.Compare(b.Width, with.Width), cmp.Compare(b.Start, with.Start))
}

// WholeLog is the ContentLog of a key that nobody else changes in Quiet rounds.
const WholeLog = -1

// KeyRound is one key's part of a round. The buckets refer to the ladder of the key's namespace.
type KeyRound struct {
	// NS is empty for the default namespace.
	NS, Key []byte
	// Reset deletes the key before anything else in this part.
	Reset bool
	// Load asks for all buckets of the key, as they are at the end of the round.
	Load bool
	// New marks a key that the store is believed to have nothing of, which can make counting it
	// cheaper.
	New bool
	// TTL is the key's time to live, in milliseconds. The store sets it for a key that it did not
	// have or that it rewrites, and if Renew is set.
	TTL   int64
	Renew bool
	// Listed means that a new time to live is no reason for a Lister to list the key.
	Listed bool
	// Adds are added to the buckets. In a Republish they are the former counts of the buckets.
	Adds []Bucket
	// Content is all that the key has once it has counted the Adds, by width and then in the order
	// of time, if the counter knows that, and nil otherwise. If nobody has changed the partition
	// since Version, other than in Quiet rounds, the store writes what it needs of Content.
	// Otherwise it adds the Adds to the key's log, which it keeps apart from the rest, so that it
	// need not read anything. Values and New keys have no Content: what these have is the Adds, or
	// is not known.
	//
	// If Rewrite is set, the store writes all of Content: buckets of the key have folded or
	// expired, or it has a log. Otherwise Content is what the key had, without a log, and the Adds;
	// buckets of widths that the Adds don't have may be left out. ContentLog is how much of the log
	// Content includes: WholeLog, for which there must have been no Quiet rounds of others either,
	// or the LoadedLog that came with the last Loaded. The store keeps the rest of the log.
	Content    []Bucket
	Rewrite    bool
	ContentLog int

	// Read is set if the store has read the key: because of Load, or because it was not as the
	// counter believed, New or with Content. Loaded are its buckets then, with those of the log, in
	// the order of Content. One that holds something other than a number is reported as NoCount.
	// LoadedLog is the size of the log: the key should be rewritten with its next Content unless it
	// is 0.
	Read      bool
	Loaded    []Bucket
	LoadedLog int
	// Made is set if the round has made a key that was to exist: it was neither New nor Renew.
	Made bool
	// Err is why this key alone was refused. Nothing of its part was done.
	Err error
	// Forgotten does not concern a store: the key was reset after the round was cut, so its outcome
	// no longer matters.
	Forgotten bool
}

// Told is the store's state of a partition's data, as it reports it with a [Round]. The epoch names
// the data, and changes with a loss. Version and Quieted count the changes by all writers:
// changes that others must notice, and changes that they need not. LastChange names a change that
// is in no other data with the same number of changes.
type Told struct {
	Epoch, Version, Quieted uint64
	LastChange              string
}

// LaterOf returns t, or the later of t and o if both are of the same data.
func (t Told) LaterOf(o Told) Told {
	if t.Epoch == o.Epoch {
		if o.Version+o.Quieted > t.Version+t.Quieted {
			t.LastChange = o.LastChange
		}
		t.Version, t.Quieted = max(t.Version, o.Version), max(t.Quieted, o.Quieted)
	}
	return t
}

// Told returns the state that the round expects of the store or, once it is answered, the state
// that the store has reported with it.
func (r *Round) Told() Told { return Told{r.Epoch, r.Version, r.Quieted, r.LastChange} }

// Expect sets the state that the round expects of the store.
func (r *Round) Expect(t Told) {
	r.Epoch, r.Version, r.Quieted, r.LastChange = t.Epoch, t.Version, t.Quieted, t.LastChange
}

// Round is one exchange with the store about one partition: deltas to count, keys to read, or both.
type Round struct {
	Partition int
	// Now is when the round was cut, in unix milliseconds.
	Now int64
	// Writer identifies the process incarnation that counts.
	Writer string
	// Seq numbers the rounds of a writer and partition that change something, from 1; 0 only reads.
	Seq uint64
	// Nonce is drawn when the round is cut. It distinguishes the round from one with the same
	// writer and sequence that another process has cut: a copy of this one, or one with the same
	// configured name.
	Nonce uint64
	// Acked is the highest sequence that the store has acknowledged in this epoch.
	Acked uint64
	// Epoch identifies the partition's data as last reported by the store; 0 if this writer has no
	// report yet. In that case a store that has nothing of the partition draws an epoch, even if
	// the round only reads. Version and Quieted are the last reported numbers of changes by all
	// writers: changes that others must notice, and changes that they need not. The answer sets all
	// three to their current values, this round included.
	Epoch, Version, Quieted uint64
	// LastChange identifies the last round with a sequence, by any writer, in the store's data, as
	// reported along with these; "" if there is none. Only the store can interpret it. Data without
	// that round was lost, however many changes have come in its place since.
	LastChange string
	// Quiet means that no counter with these keys in memory relies on Version to notice changes of
	// them. Such a round increments Quieted instead.
	Quiet bool
	// Republish restores counts after a loss: Adds hold the buckets' counts in an earlier epoch.
	// For as long as its epoch lasts, the store records how much of each bucket was restored and
	// only adds the missing part. So the sum is right, regardless of the order of restorations and
	// of counts added since. In an epoch that began with the remains after a loss, the counts found
	// in a bucket are taken as restored. A key that was reset in this epoch stays as it is. Loaded
	// reports the resulting buckets, of keys without values. The parts of a restoration have
	// sequences like other rounds, which reveals the loss of some of them even if others made as
	// many changes instead. Values merge as in any round, and need no record.
	Republish bool
	// After is the epoch in which the republished counts were known. If Epoch is not higher, the
	// store draws a new one that is, so that all counters notice the loss.
	After uint64
	// ReadOnly marks a round that only loads keys, and whose writer knows no data or data of this
	// Epoch. Then the store need not check Acked or draw an epoch, which can make the round
	// cheaper. Version and Quieted include all changes in the loaded counts.
	ReadOnly bool
	// Aside marks a round, with Seq 0, that may be in flight together with another round of the
	// partition. Its sender ignores the results for keys that the other round changes. Its Acked
	// may be from before the other round was answered.
	Aside bool
	// Keys are the round's parts, carried out in this order. A key is counted in at most one of
	// them. The store sets the results of the parts in place, and keeps the list as it is.
	Keys []KeyRound

	// Err is nil, wraps ErrNotApplied, or leaves the outcome unknown. It wraps ErrLate if the store
	// can be reached.
	Err error
	// Lost is set if the store has lost data.
	Lost bool
	// Used is set if the store has applied another round with this writer and sequence but a
	// different Nonce; this one was then certainly not applied. Later is set if it has applied
	// later rounds.
	Used, Later bool
	// First is set if the store had nothing of the partition before this round. A store that can't
	// find out leaves it unset.
	First bool
}
