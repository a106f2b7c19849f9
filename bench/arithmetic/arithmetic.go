package arithmetic

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"twotier.dev/twotier/leaparray"
)

// Window decides about one window of one key.
type Window interface {
	// Fits reports whether one more event at ts passes.
	Fits(ts int64) bool
	// Count counts an event at ts.
	Count(ts int64)
}

// Estimate is a window's answer about its events.
type Estimate struct {
	// Events is the estimate. If Bounded is set, Min and Max bound the truth.
	Events, Min, Max int64
	Bounded          bool
}

// Reader is a [Window] that also estimates the number of its events.
type Reader interface {
	Window
	// Read returns the number of events in the window that ends at ts, which is not before the
	// newest event.
	Read(ts int64) Estimate
}

// Method is one way of counting.
type Method struct {
	Name string
	// New returns an empty window of a length in milliseconds that may hold most events. If the
	// method only decides, it is not a Reader.
	New func(length, most int64) Window
}

// Others returns all methods except twotier's.
func Others() []Method {
	return []Method{
		{"sub-windows, last n", newLastN},
		{"two fixed windows, weighted", func(length, most int64) Window {
			return &weighted{fixed{length: length, most: most}}
		}},
		{"fixed window", func(length, most int64) Window {
			return &fixed{length: length, most: most}
		}},
		{"token bucket (GCRA)", func(length, most int64) Window {
			return &tokens{length: length, most: most}
		}},
	}
}

// Ladder returns twotier's method with a ladder, which must cover the windows. exact is the number
// of events that keep their millisecond.
func Ladder(name string, exact int, levels ...leaparray.Level) (Method, error) {
	l, err := leaparray.NewLadder(exact, levels...)
	if err != nil {
		return Method{}, fmt.Errorf("%s: %w", name, err)
	}
	return Method{name, func(length, most int64) Window {
		return &buckets{view: leaparray.View{Ladder: l}, length: length, most: most}
	}}, nil
}

// buckets is twotier's method.
type buckets struct {
	view         leaparray.View
	folded       int64 // when the cells were last folded
	length, most int64
}

// foldEvery is how often cells fold, in milliseconds.
const foldEvery = 1000

func (b *buckets) Count(ts int64) {
	if b.view.Now = ts; ts >= b.folded+foldEvery {
		b.view.Fold(leaparray.Heap{}, b.view.ExactFrom())
		b.folded = ts
	}
	b.view.Put(&b.view.A, leaparray.Heap{}, b.view.Cell(ts), 1)
}

func (b *buckets) Fits(ts int64) bool {
	b.view.Now = ts
	peak, ok := b.view.Peak(b.length, ts)
	return ok && peak < b.most
}

func (b *buckets) Read(ts int64) Estimate {
	b.view.Now = ts
	e, _ := b.view.Count(b.length, ts, true)
	return Estimate{Events: e.Count, Min: e.Lo, Max: e.Hi, Bounded: true}
}

// lastN sums as many sub-windows as fit into the window, including the unfinished current one, like
// most scripts over a Hash. They are as wide as the buckets from which twotier's default ladder
// decides about the window.
type lastN struct {
	width, number, most int64
	counts              map[int64]int64 // by index
}

func newLastN(length, most int64) Window {
	levels := leaparray.DefaultLevels()
	width := levels[slices.IndexFunc(levels, func(l leaparray.Level) bool {
		return l.Span().Milliseconds() >= length
	})].Width.Milliseconds()
	return &lastN{width: width, number: (length + width - 1) / width, most: most,
		counts: map[int64]int64{}}
}

func (w *lastN) Count(ts int64) {
	maps.DeleteFunc(w.counts, func(index, _ int64) bool { return index <= ts/w.width-w.number })
	w.counts[ts/w.width]++
}

func (w *lastN) Fits(ts int64) bool { return w.Read(ts).Events < w.most }

func (w *lastN) Read(ts int64) Estimate {
	sum, last := int64(0), ts/w.width
	for index := last - w.number + 1; index <= last; index++ {
		sum += w.counts[index]
	}
	return Estimate{Events: sum}
}

// fixed is a counter that starts again at zero with each calendar window.
type fixed struct {
	length, most int64
	index, held  int64 // of the calendar window
	before       int64 // the count of the previous one
}

// advance moves on to the calendar window of ts.
func (w *fixed) advance(ts int64) {
	switch index := ts / w.length; cmp.Compare(index, w.index+1) {
	case 1:
		w.index, w.held, w.before = index, 0, 0
	case 0:
		w.index, w.held, w.before = index, 0, w.held
	}
}

func (w *fixed) Count(ts int64) {
	w.advance(ts)
	w.held++
}

func (w *fixed) Fits(ts int64) bool { return w.Read(ts).Events < w.most }

func (w *fixed) Read(ts int64) Estimate {
	w.advance(ts)
	return Estimate{Events: w.held}
}

// weighted adds to the calendar window the share of the previous one that the sliding window still
// covers, as if its events had been spread evenly: two numbers for each rule.
type weighted struct{ fixed }

// sum returns the weighted sum, times the length.
func (w *weighted) sum(ts int64) int64 {
	w.advance(ts)
	return w.before*(w.length-ts%w.length) + w.held*w.length
}

func (w *weighted) Fits(ts int64) bool { return w.sum(ts)+w.length <= w.most*w.length }

func (w *weighted) Read(ts int64) Estimate {
	return Estimate{Events: (w.sum(ts) + w.length/2) / w.length}
}

// tokens is a bucket of as many tokens as the limit, which fills at the limit's mean rate. GCRA
// makes the same decisions. It keeps the time at which the bucket will be full, times the limit.
type tokens struct {
	length, most int64
	full         int64
}

func (w *tokens) Fits(ts int64) bool {
	return max(w.full, ts*w.most)+w.length <= (ts+w.length)*w.most
}

func (w *tokens) Count(ts int64) { w.full = max(w.full, ts*w.most) + w.length }
