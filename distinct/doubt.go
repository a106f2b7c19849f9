package distinct

import (
	"slices"
	"strconv"
)

// doubt is a reset of unknown outcome: the store has made it, or will make it late, or never. It
// makes a reset only while the key has the version that was expected, and no version comes twice.
// So once the key has another one, the reset was made, and its mark is there, or it never will be.
type doubt struct {
	mark, expect string
	n            int // how many the entry knew of, this one included
	// What is added from the change after seq on is younger than the reset. young has it apart.
	seq   uint64
	young *entry
}

// maxDoubts bounds the doubts of an entry. With more, the first one is forgotten: what was added
// meanwhile may then be void.
const maxDoubts = 8

// suspect takes in that a reset may have been made. The store is asked before the next answer; if
// it does not reply, values that are added are kept apart as well.
func (en *entry) suspect(r Reset) {
	known := func(d *doubt) bool { return d.mark == r.Mark }
	if r.Mark <= en.mark || slices.ContainsFunc(en.doubts, known) {
		return // it is known to be made, or a later one was made since
	}
	if len(en.doubts) == maxDoubts {
		en.doubts = slices.Delete(en.doubts, 0, 1)
	}
	en.suspected++
	en.doubts = append(en.doubts, &doubt{mark: r.Mark, expect: r.Expect, n: en.suspected,
		seq: en.seq, young: &entry{ladder: en.ladder}})
}

// fences reports whether an exchange has to write, even if there is nothing to write, because the
// store may have the version with which a reset in doubt would still be made.
func (en *entry) fences() bool {
	return slices.ContainsFunc(en.doubts, func(d *doubt) bool { return d.expect == en.version })
}

// resolve ends the doubts about resets for which the key has another version by now than they
// expect. Those that came to be known during the exchange remain: it may be of before.
func (en *entry) resolve(x *Exchange) {
	wrote := x.Matched() && x.Version != ""
	en.doubts = slices.DeleteFunc(en.doubts, func(d *doubt) bool {
		return d.n <= x.suspected && (wrote || d.expect != en.version)
	})
}

// keepYounger restores values to an entry that was cleared because of a reset: those that were
// added since the reset with that mark, or the next one, was suspected.
func (en *entry) keepYounger(mark string) {
	var next *doubt
	for _, d := range en.doubts {
		if d.mark >= mark && (next == nil || d.mark < next.mark) {
			next = d
		}
	}
	if next == nil || next.young.empty() {
		return
	}
	en.flushed, en.voided = next.seq, next.seq
	en.touch()
	for level := range en.ladder.Len() {
		for _, b := range next.young.levels[level] {
			set := b.set.Clone()
			en.levels[level] = append(en.levels[level], bucket{b.index, &set, en.seq})
		}
	}
}

// mergePending merges a bucket that another node has. It is kept apart as well if it is younger
// than a reset in doubt.
func (en *entry) mergePending(from *Pending, b *Bucket, now int64) {
	en.merge(b, false, now)
	for _, d := range en.doubts {
		if from.Born > 0 && from.Born >= markTime(d.mark) {
			d.young.merge(b, false, now)
			en.touch() // it is handed on, whether the store has it or not
		}
	}
}

// nextMark returns a mark that is later than all that are known.
func (en *entry) nextMark(now int64) string {
	last := en.mark
	for _, d := range en.doubts {
		last = max(last, d.mark)
	}
	if mark := newMark(now); mark > last {
		return mark
	}
	return last + "0" // by a clock that is behind, or within the same millisecond
}

// markTime returns the time in a mark, or 0 if it has none.
func markTime(mark string) int64 {
	ms, err := strconv.ParseInt(mark[:min(13, len(mark))], 10, 64)
	if err != nil {
		return 0
	}
	return ms
}
