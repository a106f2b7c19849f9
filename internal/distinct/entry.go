package distinct

import (
	"errors"
	"math"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// entry is one key in memory. The lock of its shard guards it.
type entry struct {
	id        string // see twotier.Check.AppendName
	ns, key   []byte
	partition int
	space     space
	// values has the key's values. Its changed chunks are those that the store may lack, apart from
	// those in sent, which an exchange under way writes.
	values leaparray.Values
	sent   uint64
	pruned int64 // when old values were last forgotten, in unix milliseconds

	// version is the store's version merged last; loaded means that the entry has merged the store.
	version string
	loaded  bool
	// term is the partition's term in which the entry was last compared.
	term int64
	// seq counts changes. The store has the changes up to flushed, another node the changes up to
	// handed, see Engine.HandOver.
	seq, flushed, handed uint64
	since                time.Time // of the oldest unflushed change
	compared             time.Time // start of the last exchange that the store answered
	tried                time.Time // start of the last finished exchange
	used                 time.Time
	// busy is closed at the end of the exchange under way; nil if there is none. failed is the
	// error of the last exchange.
	busy   chan struct{}
	failed error
	bytes  int64
}

// entryCost is the rough memory cost of an entry without its name and values, in bytes.
const entryCost = 384

// dirty reports whether the entry has unflushed changes.
func (en *entry) dirty() bool { return en.seq > en.flushed }

// add adds hashes seen at a moment, 0 for the present, and reports whether that changed anything.
func (en *entry) add(hashes []uint64, ts, now int64) (changed bool) {
	en.makeRoom(len(hashes), now)
	if ts == 0 {
		ts = en.values.Present(now)
	}
	for _, h := range hashes {
		changed = en.values.See(h, ts, en.space.most) || changed
	}
	if changed {
		en.touch()
	}
	return changed
}

// touch counts a change.
func (en *entry) touch() {
	if !en.dirty() {
		en.since = time.Now()
	}
	en.seq++
}

// prune forgets the values that no window needs any more, every now and then.
func (en *entry) prune(now int64) {
	if span := en.space.Ladder.Span(); now-en.pruned > span/128 {
		en.values.Prune(now-span, en.space.most)
		en.pruned = now
	}
}

// makeRoom prunes before values are added that would be too many: values that have left every
// window must not turn a count into an estimate.
func (en *entry) makeRoom(more int, now int64) {
	if en.values.Len()+more > en.space.most {
		en.pruned = 0
	}
	en.prune(now)
}

// merge adds what another copy has, except what no window needs any more.
func (en *entry) merge(from *leaparray.Values, now int64) (changed bool) {
	from.Prune(now-en.space.Ladder.Span(), math.MaxInt)
	en.makeRoom(from.Len(), now)
	return en.values.Merge(from, en.space.most)
}

// count counts the values in a window that ends at a moment, 0 for the present, together with the
// hashes in more.
func (en *entry) count(window, at, now int64, more []uint64) Count {
	until := at
	if at == 0 || at >= now {
		at, until = now, 1<<62 // the node that added a value may have a clock ahead of ours
	}
	return Count{window, en.values.Count(at-window, until, more)}
}

// measure returns the memory used by the entry.
func (en *entry) measure() int64 { return int64(entryCost+3*len(en.id)) + en.values.Bytes() }

// newComparison returns an exchange that only compares.
func (en *entry) newComparison() *Exchange {
	return &Exchange{Partition: en.partition, NS: en.ns, Key: en.key, Expect: en.version,
		TTL: syncer.KeyTTL(en.space.Ladder), cut: time.Now()}
}

// newExchange returns an exchange with the unflushed changes of the entry, and the last change that
// it includes.
func (en *entry) newExchange(now int64, version string) (x *Exchange, seq uint64) {
	en.prune(now)
	x = en.newComparison()
	if en.dirty() {
		x.write(version, &en.values)
		en.sent = en.values.Changed()
		en.values.SetChanged(0)
	}
	return x, en.seq
}

// applyExchange processes the outcome of an exchange.
func (en *entry) applyExchange(x *Exchange, seq uint64, now int64) {
	en.tried = x.cut
	if !x.Matched() || x.Version == "" {
		en.values.SetChanged(en.values.Changed() | en.sent)
	}
	en.sent = 0
	switch {
	case errors.Is(x.Err, syncer.ErrLate):
		en.failed = nil // it will be compared again
		return
	case x.Err != nil:
		en.failed = x.Err
		return
	case !x.Matched():
		en.mergeFromStore(x, now)
	case x.Version != "":
		en.version = x.Version
		en.flushed = max(en.flushed, seq)
		en.since = x.cut // no older change is left
	}
	en.failed, en.loaded, en.compared = nil, true, x.cut
}

// mergeFromStore merges the whole key from the store, and finds what the store lacks.
func (en *entry) mergeFromStore(x *Exchange, now int64) {
	en.version = x.Found
	stored := x.stored()
	en.merge(&stored, now)
	stored.SetChanged(0)
	stored.Merge(&en.values, math.MaxInt)
	en.values.SetChanged(stored.Changed())
	switch clean := !en.dirty(); {
	case en.values.Changed() == 0:
		en.flushed = en.seq
	case clean:
		en.touch()
	}
}
