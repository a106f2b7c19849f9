package distinct

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"twotier.dev/twotier/internal/sketch"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// entry is one key in memory. The lock of its shard guards it.
type entry struct {
	id        string // see twotier.Check.AppendName
	ns, key   []byte
	partition int
	ladder    *scale
	levels    [leaparray.MaxLevels][]bucket
	// gone are buckets that the store may have and that no window needs any more.
	gone []Bucket

	// version is the store's version merged last; loaded means that the entry has merged the store.
	version string
	loaded  bool
	// doubts are resets of unknown outcome, suspected is the number of doubts so far.
	doubts    []*doubt
	suspected int
	// mark is the mark of the last known reset. Marks grow with time. Until the store is merged,
	// born is the time of the first value: no earlier reset voids the entry.
	mark string
	born int64
	// term is the partition's term in which the entry was last compared, or made.
	term int64
	// seq counts changes. The store has the changes up to flushed, another node the changes up to
	// handed, see Engine.HandOver.
	seq, flushed, handed uint64
	voided               uint64    // the last change voided by a reset
	since                time.Time // of the oldest unflushed change
	compared             time.Time // start of the last exchange that the store answered
	tried                time.Time // start of the last finished exchange
	used                 time.Time
	// busy is closed at the end of the exchange under way; nil if there is none. failed is the
	// error of the last exchange.
	busy   chan struct{}
	failed error
	bytes  int64

	answers answers
	// weighed is the part of bytes used by answers; still means that the buckets have not changed
	// since the last answer, and that memory has room to cache the next one.
	weighed int64
	still   bool
}

// bucket is one bucket of a level.
type bucket struct {
	index   int64
	set     *sketch.Set
	changed uint64 // entry.seq of the last change
}

// Rough memory costs of the parts of an entry, in bytes.
const (
	entryCost  = 512
	bucketCost = 96
)

// dirty reports whether the entry has unflushed changes.
func (en *entry) dirty() bool { return en.seq > en.flushed }

// owes reports whether the entry has to be exchanged: to flush changes, or to resolve a doubt.
func (en *entry) owes() bool { return en.dirty() || len(en.doubts) > 0 }

// find returns the position of a bucket on its level, and whether it exists. Most lookups are for
// the newest bucket.
func (en *entry) find(level int, index int64) (at int, found bool) {
	list := en.levels[level]
	if n := len(list); n == 0 || list[n-1].index < index {
		return n, false
	}
	return slices.BinarySearchFunc(list, index, func(b bucket, index int64) int {
		return int(min(1, max(-1, b.index-index)))
	})
}

// bucketAt returns a bucket, and creates it if necessary.
func (en *entry) bucketAt(level int, index int64) *bucket {
	i, found := en.find(level, index)
	if !found {
		b := bucket{index: index, set: new(sketch.Set)}
		en.levels[level] = slices.Insert(en.levels[level], i, b)
	}
	return &en.levels[level][i]
}

// add adds hashes seen at a moment, and reports whether that changed anything.
func (en *entry) add(hashes []uint64, ts, now int64) (changed bool) {
	if en.born != 0 && en.empty() {
		en.born = now
	}
	for level := range en.ladder.Len() {
		index := en.ladder.index(level, ts)
		if index < en.ladder.oldest(level, now) {
			continue
		}
		b, some := en.bucketAt(level, index), false
		for _, h := range hashes {
			some = b.set.Add(h) || some
		}
		if some {
			en.markChanged(b)
			en.clearAnswers()
			changed = true
		}
	}
	for _, d := range en.doubts {
		if d.young.add(hashes, ts, now) && !changed {
			en.touch() // it was there, but from before the reset
			changed = true
		}
	}
	return changed
}

// markChanged records an unflushed change of a bucket.
func (en *entry) markChanged(b *bucket) {
	en.touch()
	b.changed = en.seq
}

// touch counts a change.
func (en *entry) touch() {
	if !en.dirty() {
		en.since = time.Now()
	}
	en.seq++
}

// merge merges a bucket of the store, if stored is set, or of another node. Buckets of a different
// ladder go into every level that has a bucket containing theirs.
func (en *entry) merge(from *Bucket, stored bool, now int64) {
	set, err := sketch.Decode(from.Data)
	if err != nil || from.Width < 1 {
		return // written by another program, or by a later version of this one
	}
	if level := slices.Index(en.ladder.width[:], from.Width); level >= 0 {
		en.mergeAt(level, en.ladder.index(level, from.Start), &set, from, stored, now)
		return
	}
	for level := range en.ladder.Len() {
		if index, ok := en.ladder.bucketContaining(level, from.Stretch); ok {
			en.mergeAt(level, index, &set, from, false, now)
		}
	}
	last := en.ladder.Len() - 1
	if stored && from.End() <= en.ladder.oldest(last, now)*en.ladder.Width(last) {
		en.gone = append(en.gone, Bucket{Stretch: from.Stretch})
	}
}

// mergeAt merges the values of from into one bucket. If stored is set, that is the same bucket.
func (en *entry) mergeAt(level int, index int64, set *sketch.Set, from *Bucket, stored bool,
	now int64) {
	if index < en.ladder.oldest(level, now) {
		if stored {
			en.gone = append(en.gone, Bucket{Stretch: from.Stretch})
		}
		return
	}
	b := en.bucketAt(level, index)
	grown := b.set.Merge(set)
	if grown {
		en.clearAnswers()
	}
	switch {
	case !stored && grown:
		en.markChanged(b)
	case stored && bytes.Equal(b.set.Append(nil), from.Data):
		b.changed = 0
	case stored:
		en.markChanged(b) // the store lacks some of its values
	}
}

// encodeBucket returns a bucket in the form that is sent.
func (en *entry) encodeBucket(level int, b *bucket) Bucket {
	e := en.ladder.bucket(level, b.index)
	e.Data = b.set.Append(nil)
	return e
}

// prune forgets the buckets that no window needs any more.
func (en *entry) prune(now int64) {
	for level := range en.ladder.Len() {
		list, least, n := en.levels[level], en.ladder.oldest(level, now), 0
		for n < len(list) && list[n].index < least {
			if en.version != "" {
				en.gone = append(en.gone, en.ladder.bucket(level, list[n].index))
			}
			n++
		}
		if n > 0 {
			en.levels[level] = slices.Delete(list, 0, n)
			en.clearAnswers()
		}
	}
	for _, d := range en.doubts {
		d.young.prune(now)
	}
}

// empty reports whether the entry has no buckets left.
func (en *entry) empty() bool {
	for level := range en.ladder.Len() {
		if len(en.levels[level]) > 0 {
			return false
		}
	}
	return true
}

// measure returns the memory used by the entry.
func (en *entry) measure() int64 {
	n := int64(entryCost+3*len(en.id)+40*len(en.gone)) + en.answers.bytes
	for level := range en.ladder.Len() {
		n += int64(bucketCost * cap(en.levels[level]))
		for i := range en.levels[level] {
			n += en.levels[level][i].set.Bytes()
		}
	}
	for _, d := range en.doubts {
		n += d.young.measure()
	}
	return n
}

// newComparison returns an exchange that only compares.
func (en *entry) newComparison() *Exchange {
	return &Exchange{Partition: en.partition, NS: en.ns, Key: en.key, Expect: en.version,
		Mark: en.mark, TTL: syncer.KeyTTL(en.ladder.Ladder), cut: time.Now(),
		suspected: en.suspected}
}

// newExchange returns an exchange with the unflushed changes of the entry, and the last change that
// it includes.
func (en *entry) newExchange(now int64, version string) (x *Exchange, seq uint64) {
	en.prune(now)
	x = en.newComparison()
	if !en.dirty() && !en.needsFence() {
		return x, en.seq
	}
	x.Version = version
	for level := range en.ladder.Len() {
		for i := range en.levels[level] {
			if b := &en.levels[level][i]; b.changed > en.flushed {
				x.Sets = append(x.Sets, en.encodeBucket(level, b))
			}
		}
	}
	x.Deletes, en.gone = en.gone, nil
	return x, en.seq
}

// applyExchange processes the outcome of an exchange.
func (en *entry) applyExchange(x *Exchange, seq uint64, now int64) {
	en.tried = x.cut
	switch {
	case errors.Is(x.Err, syncer.ErrLate):
		en.failed = nil // it will be compared again
		en.gone = append(en.gone, x.Deletes...)
		return
	case x.Err != nil:
		en.failed = x.Err
		en.gone = append(en.gone, x.Deletes...)
		return
	case x.Matched() && en.mark > x.Mark: // the exchange predates a reset known by now
		en.failed = nil
		return
	case x.Matched():
		if x.Version != "" {
			en.version = x.Version
			en.flushed = max(en.flushed, seq)
			en.since = x.cut // no older change is left
		}
	default:
		en.mergeFromStore(x, now)
	}
	en.failed, en.loaded, en.compared = nil, true, x.cut
	en.resolveDoubts(x)
}

// mergeFromStore merges the whole key from the store, and finds the changes that the store lacks.
func (en *entry) mergeFromStore(x *Exchange, now int64) {
	en.learnMark(x.FoundMark, now)
	en.born = 0
	en.version, en.gone = x.Found, nil
	clean := !en.dirty()
	for level := range en.ladder.Len() {
		for i := range en.levels[level] {
			en.levels[level][i].changed = max(1, en.levels[level][i].changed)
		}
	}
	if en.flushed = 0; clean {
		en.since = time.Now()
	}
	for i := range x.Buckets {
		if b := &x.Buckets[i]; x.FoundMark == en.mark {
			en.merge(b, true, now)
		} else { // the store has lost the reset that voided the bucket
			en.gone = append(en.gone, Bucket{Stretch: b.Stretch})
		}
	}
	en.prune(now)
	for level := range en.ladder.Len() {
		for i := range en.levels[level] {
			if en.levels[level][i].changed > 0 {
				en.seq = max(en.voided+1, en.seq) // this change is younger than a reset
				return
			}
		}
	}
	en.flushed = en.seq
}

// learnMark records the mark of a reset that may be later than the entry's last one. If the reset
// voids the entry, only values known to be younger stay, and the store is read anew: after losing
// the reset, the store may have the very version that was read before, and that version is void,
// too.
func (en *entry) learnMark(mark string, now int64) {
	if isVoid(en.mark, en.born, mark) {
		en.clear()
		// No earlier reset voids values added from now on.
		en.version, en.loaded, en.born = "", false, now
		en.keepYounger(mark)
	}
	if mark > en.mark {
		en.mark = mark
		en.doubts = slices.DeleteFunc(en.doubts, func(d *doubt) bool { return d.mark <= mark })
	}
}

// newMark returns the mark of a reset at a time, in Unix milliseconds.
func newMark(now int64) string { return fmt.Sprintf("%013d.%s", now, rand.Text()[:6]) }

// isVoid reports whether a reset with the given mark voids values first added at born, 0 if
// unknown, by a node whose latest known reset was known.
func isVoid(known string, born int64, mark string) bool {
	return mark > known && mark >= fmt.Sprintf("%013d", born+1)
}

// clear forgets all buckets, because of a reset.
func (en *entry) clear() {
	en.levels, en.gone = [leaparray.MaxLevels][]bucket{}, nil
	en.clearAnswers()
	en.flushed, en.voided = en.seq, en.seq
}

// pending returns the unflushed buckets.
func (en *entry) pending() (list []Bucket) {
	if !en.dirty() {
		return nil
	}
	for level := range en.ladder.Len() {
		for i := range en.levels[level] {
			if b := &en.levels[level][i]; b.changed > en.flushed {
				list = append(list, en.encodeBucket(level, b))
			}
		}
	}
	return list
}
