package imports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/leaparray"
)

// Event is a number of events at a time in unix milliseconds.
type Event struct{ TS, N int64 }

// Units lists the units of time that a source may use.
func Units() []string { return []string{"auto", "s", "ms", "us", "ns"} }

// perSecond returns how many of a unit a second has.
func perSecond(unit string) float64 {
	switch unit {
	case "ms":
		return 1e3
	case "us":
		return 1e6
	case "ns":
		return 1e9
	}
	return 1
}

// The plausible times, in unix seconds: 2001 to 2100. Their ranges in different units don't
// overlap.
const (
	plausibleFrom = 1e9
	plausibleTo   = 4.2e9
)

// unitOf returns the unit in which a number is a plausible time, or "".
func unitOf(x float64) string {
	for _, unit := range Units()[1:] {
		if s := x / perSecond(unit); s >= plausibleFrom && s < plausibleTo {
			return unit
		}
	}
	return ""
}

// milliseconds returns a number in a unit, or in the unit in which it is plausible, as unix
// milliseconds.
func milliseconds(x float64, unit string) (int64, error) {
	if unit == "" || unit == "auto" {
		if unit = unitOf(x); unit == "" {
			return 0, fmt.Errorf("%s is no time in s, ms, us or ns", formatNumber(x))
		}
	}
	ms := x / perSecond(unit) * 1000
	if !(ms >= 1 && ms < math.MaxInt64/4) {
		return 0, fmt.Errorf("%s %s is no time after 1970", formatNumber(x), unit)
	}
	if unit == "s" || unit == "ms" {
		return int64(math.Round(ms)), nil
	}
	return int64(ms), nil
}

func formatNumber(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

func parseNumber(text string) (float64, error) {
	x, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("%.40q is not a number", text)
	}
	return x, nil
}

// errIsTime is the error of a number that is a time. No limiter counts to 1e9.
var errIsTime = errors.New("is a time, not a number of events")

// parseCount parses a number of events.
func parseCount(text string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	switch {
	case err != nil || n < 0:
		return 0, fmt.Errorf("%.40q is not a number of events", text)
	case unitOf(float64(n)) != "":
		return 0, fmt.Errorf("%d %w", n, errIsTime)
	}
	return n, nil
}

// merge sorts events by time and joins events of one millisecond. It changes the list.
func merge(events []Event) []Event {
	slices.SortFunc(events, func(a, b Event) int { return cmp.Compare(a.TS, b.TS) })
	kept := events[:0]
	for _, e := range events {
		if last := len(kept) - 1; last >= 0 && kept[last].TS == e.TS {
			kept[last].N += e.N
		} else {
			kept = append(kept, e)
		}
	}
	return kept
}

// maxSpread is the largest number of times over which events are spread.
const maxSpread = 64

// spread returns n events at even distances between two times.
func spread(n, from, to int64) (events []Event) {
	times := min(n, maxSpread)
	for i := range times {
		events = append(events, Event{from + (2*i+1)*(to-from)/(2*times),
			n*(i+1)/times - n*i/times})
	}
	return merge(events)
}

func total(events []Event) (n int64) {
	for _, e := range events {
		n += e.N
	}
	return n
}

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
			return append([]Event{{e.TS, e.N - n}}, events[i+1:]...)
		}
		n -= e.N
	}
	return nil
}
