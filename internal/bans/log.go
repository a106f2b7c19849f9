package bans

import (
	"cmp"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/metrics"
)

// Bounds of the remembered bans, and of the rules whose bans are counted.
const (
	maxBans  = 16 << 10
	maxRules = 4096
)

// Log remembers bans until they end, and counts started bans. It is safe for concurrent use.
type Log struct {
	metrics.Unchecked

	now func() int64

	mu      sync.Mutex
	until   map[twotier.Banned]int64
	started map[twotier.Banned]int64 // by namespace and rule
}

// New returns an empty log. now returns unix milliseconds.
func New(now func() int64) *Log {
	return &Log{now: now, until: map[twotier.Banned]int64{}, started: map[twotier.Banned]int64{}}
}

// Receives implements [decisions.Sink]: bans refuse.
func (*Log) Receives(v twotier.Verdict) bool { return v == twotier.Refused }

// Record records the ban that a decision started or that refused it, if there is one.
func (l *Log) Record(d *decisions.Decision) {
	if d.Ban == nil {
		return
	}
	of := twotier.Banned{NS: cmp.Or(string(d.NS), twotier.DefaultNamespace), Rule: d.Ban.Rule}
	ban := of
	ban.Key = string(d.Key)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addBan(ban, d.Ban.Until, l.now())
	if _, known := l.started[of]; d.Ban.Started && (known || len(l.started) < maxRules) {
		l.started[of]++
	}
}

// addBan records a ban. If there are too many, it forgets one of a few sampled bans, preferably
// one that has ended: searching all for an ended one would hold up others while bans start faster
// than they end.
func (l *Log) addBan(b twotier.Banned, until, now int64) {
	if _, known := l.until[b]; !known && len(l.until) >= maxBans {
		looked := 0
		for old, end := range l.until {
			if looked++; end <= now || looked == 8 {
				delete(l.until, old)
				break
			}
		}
	}
	l.until[b] = until
}

// List returns up to limit bans whose last known end is in the future, the ones that end last
// first. A non-empty ns or name selects the bans of that namespace or rule.
func (l *Log) List(ns, name string, limit int) []twotier.Banned {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	var list []twotier.Banned
	for b, until := range l.until {
		switch {
		case until <= now:
			delete(l.until, b)
		case (ns == "" || b.NS == ns) && (name == "" || b.Rule == name):
			list = append(list, b)
		}
	}
	slices.SortFunc(list, func(a, b twotier.Banned) int {
		return cmp.Or(cmp.Compare(l.until[b], l.until[a]), cmp.Compare(a.NS, b.NS),
			cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key))
	})
	return list[:min(limit, len(list))]
}

// Union merges lists into up to limit bans, without duplicates. It keeps the order of each list.
func Union(limit int, lists ...[]twotier.Banned) (all []twotier.Banned) {
	seen := map[twotier.Banned]bool{}
	for at := 0; ; at++ {
		more := false
		for _, list := range lists {
			if at >= len(list) {
				continue
			}
			if more = true; !seen[list[at]] && len(all) < limit {
				seen[list[at]] = true
				all = append(all, list[at])
			}
		}
		if !more || len(all) == limit {
			return all
		}
	}
}

// Collect implements [prometheus.Collector].
func (l *Log) Collect(ch chan<- prometheus.Metric) {
	started := metrics.Sink(ch).Totals("twotier_bans_total",
		"Bans that acquires which this node was asked for have started, by namespace and rule.",
		"ns", "rule")
	l.mu.Lock()
	defer l.mu.Unlock()
	for of, n := range l.started {
		started(n, of.NS, of.Rule)
	}
}
