package bans

import (
	"cmp"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/metrics"
)

// Bounds of the remembered bans, and of the rules whose bans are counted.
const (
	maxBans  = 16 << 10
	maxRules = 4096
)

// named is a rule and its namespace.
type named struct{ ns, rule string }

// Log remembers bans until they end, and counts started bans. The zero value is empty. It is safe
// for concurrent use.
type Log struct {
	metrics.Unchecked

	mu      sync.Mutex
	until   map[twotier.Banned]int64
	started map[named]int64
}

// Record records the bans in the result of an operation at a time.
func (l *Log) Record(op *twotier.Op, res *twotier.Result, now int64) {
	if len(res.Bans) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until == nil {
		l.until, l.started = map[twotier.Banned]int64{}, map[named]int64{}
	}
	for _, b := range res.Bans {
		c := &op.Checks[b.Check]
		ns := cmp.Or(string(c.NS), twotier.DefaultNamespace)
		l.addBan(twotier.Banned{NS: ns, Rule: b.Rule, Key: string(c.Key)}, b.Until, now)
		of := named{ns, b.Rule}
		if _, known := l.started[of]; b.Started && (known || len(l.started) < maxRules) {
			l.started[of]++
		}
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

// List returns up to limit bans whose last known end is after now, the ones that end last first. A
// non-empty ns or name selects the bans of that namespace or rule.
func (l *Log) List(ns, name string, limit int, now int64) []twotier.Banned {
	l.mu.Lock()
	defer l.mu.Unlock()
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
		return cmp.Or(cmp.Compare(l.until[b], l.until[a]), compareNames(a, b))
	})
	return list[:min(limit, len(list))]
}

// compareNames orders bans by their names.
func compareNames(a, b twotier.Banned) int {
	return cmp.Or(cmp.Compare(a.NS, b.NS), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key))
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
		started(n, of.ns, of.rule)
	}
}
