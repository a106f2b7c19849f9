package distinct

import (
	"slices"
	"strconv"
)

// doubt is a reset of unknown outcome: the store has made it, will make it late, or never will. It
// makes a reset only while the key has the expected version, and no version comes twice. So once
// the key has another version, either the reset was made and its mark is there, or it never will be
// made.
type doubt struct {
	mark, expect string
	n            int // the entry's doubts so far, including this one
	// Values added after change seq are younger than the reset. young holds a separate copy of
	// them.
	seq   uint64
	young *entry
}

// maxDoubts bounds the doubts of an entry. Beyond it, the oldest is forgotten: values added since
// then may be void.
const maxDoubts = 8

// addDoubt records a reset that may have been made. The store is asked before the next answer;
// until it replies, added values are also kept separately.
func (en *entry) addDoubt(r Reset) {
	known := func(d *doubt) bool { return d.mark == r.Mark }
	if r.Mark <= en.mark || slices.ContainsFunc(en.doubts, known) {
		return // the store has made it, or a later one, or it is in doubt already
	}
	if len(en.doubts) == maxDoubts {
		en.doubts = slices.Delete(en.doubts, 0, 1)
	}
	en.suspected++
	en.doubts = append(en.doubts, &doubt{mark: r.Mark, expect: r.Expect, n: en.suspected,
		seq: en.seq, young: &entry{ladder: en.ladder}})
}

// listDoubts returns the resets of unknown outcome.
func (en *entry) listDoubts() (list []Reset) {
	for _, d := range en.doubts {
		list = append(list, Reset{Mark: d.mark, Doubt: true, Expect: d.expect})
	}
	return list
}

// needsFence reports whether an exchange has to write even without changes, because the store may
// have the version at which a reset in doubt would still succeed.
func (en *entry) needsFence() bool {
	return slices.ContainsFunc(en.doubts, func(d *doubt) bool { return d.expect == en.version })
}

// resolveDoubts ends the doubts about resets that expect a version the key no longer has. Doubts
// that arose during the exchange remain, because its reply may predate them.
func (en *entry) resolveDoubts(x *Exchange) {
	wrote := x.Matched() && x.Version != ""
	en.doubts = slices.DeleteFunc(en.doubts, func(d *doubt) bool {
		return d.n <= x.suspected && (wrote || d.expect != en.version)
	})
}

// keepYounger restores values to an entry that a reset has cleared: the ones added since that
// reset, or the next later one, was suspected.
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

// mergePending merges another node's bucket. If the bucket is younger than a reset in doubt, it is
// kept separately as well.
func (en *entry) mergePending(from *Pending, b *Bucket, now int64) {
	en.merge(b, false, now)
	for _, d := range en.doubts {
		if from.Born > 0 && from.Born >= markTime(d.mark) {
			d.young.merge(b, false, now)
			en.touch() // pass it on, even if the store has it
		}
	}
}

// nextMark returns a mark later than all known ones.
func (en *entry) nextMark(now int64) string {
	last := en.mark
	for _, d := range en.doubts {
		last = max(last, d.mark)
	}
	if mark := newMark(now); mark > last {
		return mark
	}
	return last + "0" // our clock is behind, or it is the same millisecond
}

// markTime returns the time in a mark, or 0 if it has none.
func markTime(mark string) int64 {
	ms, err := strconv.ParseInt(mark[:min(13, len(mark))], 10, 64)
	if err != nil {
		return 0
	}
	return ms
}
