package warning

import (
	"fmt"
	"log/slog"
	"maps"
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
	for _, source := range slices.Sorted(maps.Keys(l.found)) {
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

// Code names a kind of warning.
type Code string

// The codes of all warnings.
const (
	CoarseWindow         Code = "coarse-window"
	SharedCounts         Code = "shared-counts"
	NeverRefuses         Code = "never-refuses"
	DeadWildcard         Code = "dead-wildcard"
	OverrideNeverMatches Code = "override-never-matches"
	SecretKey            Code = "secret-key"
	NoKeySource          Code = "no-key-source"
	UnknownDomain        Code = "unknown-domain"
	OverrideShortened    Code = "override-shortened"
	OverrideIgnored      Code = "override-ignored"
	UnknownVariable      Code = "unknown-variable"
	NoEffect             Code = "no-effect"
	RefusesNothing       Code = "refuses-nothing"
	TrustsEverybody      Code = "trusts-everybody"
	ForwardedUntrusted   Code = "forwarded-untrusted"
	ForwardedMissing     Code = "forwarded-missing"
	ForwardedMalformed   Code = "forwarded-malformed"
	FileUnusable         Code = "file-unusable"
	JoinsItself          Code = "joins-itself"
	UnmetNode            Code = "unmet-node"
	ZonesDiffer          Code = "zones-differ"
)

// Warning is a setting, a rule or a kind of request that probably does not work as intended.
type Warning struct {
	Code Code `json:"code"`
	// At is the place: FILE:LINE:COLUMN, a flag, a variable, or a common trait of the requests.
	At string `json:"at"`
	// Reason is the actual effect, and Instead the suggested spelling.
	Reason  string `json:"reason"`
	Instead string `json:"instead"`
}

// String returns the warning on one line.
func (w Warning) String() string {
	return fmt.Sprintf("%s: %s: %s; instead: %s", w.At, w.Code, w.Reason, w.Instead)
}

// Observed returns the warning of that code for requests.
func Observed(code Code, at string) Warning {
	reason, instead := observed(code)
	return Warning{Code: code, At: at, Reason: reason, Instead: instead}
}

// observed returns the text of a warning that only requests trigger.
func observed(code Code) (reason, instead string) {
	switch code {
	case CoarseWindow:
		return "requests limit a window of fewer than ten buckets: an event counts for up to a " +
				"bucket too long, so steady traffic below the limit is refused",
			"ask for a window of ten buckets or more, or give the namespace a ladder with a " +
				"finer level"
	case SecretKey:
		return "the value is in Redis, /v1/top and the decision log as it is, and it may be a " +
				"credential",
			"leave plain: out, so that the value is hashed"
	case NoKeySource:
		return "requests have none of these sources: all such requests share one key",
			"have the proxy forward what the key names, and add ip as the last source"
	case UnknownDomain:
		return "Envoy asks for a domain that no rule has, so nothing limits its requests",
			"give the document of rules this domain, or Envoy's filter one that the document has"
	case OverrideShortened:
		return "Envoy sends limits with a unit longer than the ladder of the namespace: they are " +
				"judged in the longest unit that it covers, so more passes than was meant",
			"extend the ladder of the namespace: a month takes `1h x 768`, a year `6h x 1488`"
	case OverrideIgnored:
		return "Envoy sends limits with a unit that is unknown or shorter than the ladder can " +
				"cover, or without entries: the limits of the rules apply in their place",
			"correct the override in Envoy, and give the domain a limit for these descriptors"
	case ForwardedUntrusted:
		return "requests from this address carry X-Forwarded-For, which is not read because the " +
				"address is not in --trusted-proxies: all clients behind it share one key",
			"add the address of the proxy to --trusted-proxies"
	case ForwardedMissing:
		return "requests from this trusted proxy have no X-Forwarded-For: all clients behind it " +
				"share its address as their key",
			"have the proxy send X-Forwarded-For (Forwarded and X-Real-IP are not read)"
	case ForwardedMalformed:
		return "X-Forwarded-For of this proxy ends in something that is no IP address: all " +
				"clients behind it share its address as their key",
			"have the proxy append the address that it was called from"
	}
	return "", ""
}
