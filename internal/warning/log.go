package warning

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier/internal/metrics"
)

// Bounds of the warnings that requests can add to a [Log].
const (
	// MaxObserved is the largest number of places that a Log keeps for each code.
	MaxObserved = 16
	// forget is how long a warning stays listed after the last request that triggered it.
	forget = time.Hour
	// maxAt bounds the text of a place, in bytes.
	maxAt = 128
)

// Log holds the warnings of a node, and logs each one when it is new. Make it with [NewLog].
type Log struct {
	metrics.Unchecked

	logger *slog.Logger
	now    func() time.Time

	mu       sync.RWMutex
	found    map[string][]Warning // by source
	observed map[place]*atomic.Int64
	places   map[Code]int
}

// place identifies a warning triggered by requests.
type place struct {
	code Code
	at   string
}

// NewLog returns a log without warnings. now is the clock that ages observations.
func NewLog(logger *slog.Logger, now func() time.Time) *Log {
	return &Log{logger: logger, now: now, found: map[string][]Warning{},
		observed: map[place]*atomic.Int64{}, places: map[Code]int{}}
}

// The sources of warnings that no request triggers.
const (
	Settings = "settings"
	Rules    = "rules"
	Files    = "files"
	Nodes    = "nodes"
	Members  = "members"
)

// Replace replaces the warnings of a source with list. It logs the new ones.
func (l *Log) Replace(source string, list []Warning) {
	for before := l.Show(source, list); len(list) > 0; list = list[1:] {
		if !slices.Contains(before, list[0]) {
			l.log(list[0])
		}
	}
}

// Show is Replace for warnings that are in the log already. It returns the previous ones.
func (l *Log) Show(source string, list []Warning) (before []Warning) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, l.found[source] = l.found[source], list
	return before
}

// Of returns the warnings of a source.
func (l *Log) Of(source string) []Warning {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.found[source]
}

// Observe records a warning triggered by a request. After the first time it costs a look-up and
// does not allocate. Beyond [MaxObserved] places of a code, further places are dropped.
func (l *Log) Observe(code Code, at string) {
	if len(at) > maxAt {
		at = strings.ToValidUTF8(at[:maxAt], "")
	}
	now := l.now().Unix()
	l.mu.RLock()
	last := l.observed[place{code, at}]
	l.mu.RUnlock()
	switch {
	case last == nil:
		if l.add(place{code, strings.Clone(at)}, now) {
			l.log(Observed(code, at))
		}
	case last.Load() != now:
		last.Store(now)
	}
}

// add adds an observation and reports whether it is new. If there is no room, it replaces an
// outdated one.
func (l *Log) add(p place, now int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.observed[p] != nil {
		return false
	}
	if l.places[p.code] == MaxObserved && !l.forgetLocked(p.code, now) {
		return false
	}
	last := new(atomic.Int64)
	last.Store(now)
	l.observed[p] = last
	l.places[p.code]++
	return true
}

// forgetLocked drops the observations of a code that are too old to be listed, and reports whether
// there were any.
func (l *Log) forgetLocked(code Code, now int64) (dropped bool) {
	for p, last := range l.observed {
		if p.code == code && old(last, now) {
			delete(l.observed, p)
			l.places[code]--
			dropped = true
		}
	}
	return dropped
}

// old reports whether an observation is no longer listed.
func old(last *atomic.Int64, now int64) bool {
	return now-last.Load() > int64(forget/time.Second)
}

func (l *Log) log(w Warning) {
	l.logger.Warn(w.Reason, "warning", w.Code, "at", w.At, "instead", w.Instead)
}

// List returns the warnings of all sources, and the warnings that requests have triggered within
// the last hour. Sources, codes and places are sorted.
func (l *Log) List() []Warning {
	now := l.now().Unix()
	l.mu.RLock()
	defer l.mu.RUnlock()
	list := []Warning{}
	for p, last := range l.observed {
		if !old(last, now) {
			list = append(list, Observed(p.code, p.at))
		}
	}
	slices.SortFunc(list, func(a, b Warning) int { return strings.Compare(a.String(), b.String()) })
	sources := make([]string, 0, len(l.found))
	for source := range l.found {
		sources = append(sources, source)
	}
	slices.Sort(sources)
	for _, source := range sources {
		list = append(list, l.found[source]...)
	}
	return list
}

// Collect implements [prometheus.Collector]. A code without warnings has no series.
func (l *Log) Collect(ch chan<- prometheus.Metric) {
	count := map[Code]int64{}
	for _, w := range l.List() {
		count[w.Code]++
	}
	warnings := metrics.Sink(ch).Gauges("twotier_warnings", "Settings, rules and kinds of "+
		"requests that probably do not do what was intended, by code.", "code")
	for code, n := range count {
		warnings(n, string(code))
	}
}
