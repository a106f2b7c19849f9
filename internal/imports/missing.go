package imports

import (
	"context"
	"sort"
	"time"

	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/leaparray"
)

// findMissing finds the events that the marks of some keys lack.
func (m *Import) findMissing(ctx context.Context, part []keyPlan) error {
	probes := make([]Probe, len(part))
	for i := range part {
		probes[i] = Probe{part[i].Mark, part[i].events[0].TS}
	}
	marked, err := m.server.Marked(ctx, m.span, probes)
	if err != nil {
		return err
	}
	for i := range part {
		k := &part[i]
		k.marked, k.missing = marked[i], k.events
		if k.marked == 0 {
			continue
		}
		if k.isTotal && k.since == 0 {
			k.missing = newest(k.events, k.marked)
			continue
		}
		if err := m.compare(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// skew is how far the server's clock may be behind this machine's: as far as the server accepts
// events ahead of its clock.
const skew = leaparray.MaxAhead

// compare compares the events of a key with its mark, once they have passed at the server: a series
// has nothing that lies ahead.
func (m *Import) compare(ctx context.Context, k *keyPlan) error {
	last := time.UnixMilli(k.events[len(k.events)-1].TS)
	if err := wait(ctx, time.Until(last.Add(skew))); err != nil {
		return err
	}
	first := k.events[0].TS
	if k.isTotal {
		first = k.since
	}
	age := time.Since(time.UnixMilli(first)) + edge
	buckets, err := m.server.Series(ctx, k.Mark, min(m.span, age.Milliseconds()))
	if k.isTotal {
		k.missing = newest(k.events, markedSince(buckets, k.since, k.events[0].TS))
	} else {
		k.missing = missing(k.events, buckets)
	}
	return err
}

// markedSince returns the number of events in the buckets after a time, and in the one that has at.
func markedSince(buckets []Bucket, after, at int64) (n int64) {
	for i := range buckets {
		if b := &buckets[i]; b.Start > after || b.Start <= at && at < b.Start+b.Width {
			n += b.N
		}
	}
	return n
}

// wait waits for a time, if it is positive.
func wait(ctx context.Context, d time.Duration) error {
	if d > 0 {
		retry.Pause(ctx, d)
	}
	return ctx.Err()
}

// missing returns the events that a mark lacks, in order. Its buckets are in order, and both are.
//
// A bucket with more events than its mark lacks the newest of them, because imports go from old to
// new. If an event came late, another one may have been counted in its place, so that other buckets
// have too many: they make up for it. Only buckets that begin after the first event do: an event
// that the source has forgotten is older, because it forgets the oldest first. All events before
// the first bucket are taken to be marked.
func missing(events []Event, buckets []Bucket) (list []Event) {
	if len(events) == 0 || len(buckets) == 0 {
		return events
	}
	within := func(b *Bucket) []Event {
		return events[firstAt(events, b.Start):firstAt(events, b.Start+b.Width)]
	}
	surplus := int64(0)
	for i := range buckets {
		if b := &buckets[i]; b.Start > events[0].TS {
			surplus += max(0, b.N-total(within(b)))
		}
	}
	end := firstAt(events, buckets[0].Start)
	for i := range buckets {
		b := &buckets[i]
		list = append(list, events[end:max(end, firstAt(events, b.Start))]...) // in no bucket
		here := within(b)
		repaid := min(surplus, max(0, total(here)-b.N))
		surplus -= repaid
		list = append(list, newest(here, b.N+repaid)...)
		end = firstAt(events, b.Start+b.Width)
	}
	return append(list, events[end:]...)
}

// firstAt returns the position of the first event at a time or later.
func firstAt(events []Event, ts int64) int {
	return sort.Search(len(events), func(i int) bool { return events[i].TS >= ts })
}

// newest returns the events without the oldest n.
func newest(events []Event, n int64) []Event {
	for i, e := range events {
		if e.N > n {
			rest := append([]Event{{e.TS, e.N - n}}, events[i+1:]...)
			return rest
		}
		n -= e.N
	}
	return nil
}
