package refusallog

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
)

// Reason is the cause of a refusal.
type Reason uint8

// The reasons for refusals.
const (
	// Limit is a limit on events.
	Limit Reason = iota
	// Ban is a ban that was in force before the request.
	Ban
	// Distinct is a limit on different values.
	Distinct
	// Concurrent is a limit on open leases.
	Concurrent
	// Cold means that the counts of the key were unknown, and that on-cold is deny.
	Cold
)

// reasons are the names of the reasons, in their order.
var reasons = [...]string{"limit", "ban", "distinct", "concurrent", "cold"}

// String returns "limit", "ban", "distinct", "concurrent" or "cold".
func (r Reason) String() string { return reasons[r] }

// reasonOf returns the reason of a decision that refused.
func reasonOf(d *decisions.Decision) Reason {
	switch {
	case d.Ban != nil && !d.Ban.Started:
		return Ban
	case !slices.ContainsFunc(d.Limits, func(l twotier.LimitResult) bool { return l.Refused }):
		if d.Lease != nil {
			return Concurrent
		}
		return Cold
	case d.Distinct:
		return Distinct
	}
	return Limit
}

// Refusal describes a recorded refusal.
type Refusal struct {
	ID string `json:"id"`
	// At is the time of the latest of Times equal refusals, and FirstAt that of the first, in unix
	// milliseconds.
	At      int64  `json:"at"`
	FirstAt int64  `json:"first_at"`
	Times   int64  `json:"times"`
	Node    string `json:"node"`
	Door    string `json:"door"`
	NS      string `json:"ns"`
	Key     string `json:"key"`
	Rule    string `json:"rule"`
	Reason  string `json:"reason"`
	// Window, Count and Limit are of the first limit that refused. Lent is how many events other
	// nodes could have counted in addition.
	Window string `json:"window,omitempty"`
	Count  int64  `json:"count"`
	Limit  int64  `json:"limit"`
	Lent   int64  `json:"lent,omitempty"`
	// N is the number of events or values that the latest request asked for. Equal refusals have
	// numbers of the same number of bits.
	N int64 `json:"n"`
	// RetryAfter is in milliseconds, -1 for never.
	RetryAfter int64 `json:"retry_after_ms"`
	// Until is the end of a ban.
	Until   int64 `json:"until,omitempty"`
	Version int64 `json:"rules_version,omitempty"`
	// Limits lists all limits of the rule, or of the request, that judged.
	Limits []Judged `json:"limits,omitempty"`
}

// Judged is a limit that judged a refused request.
type Judged struct {
	// Window is a duration or a calendar period.
	Window  string `json:"window"`
	Limit   int64  `json:"limit"`
	Count   int64  `json:"count"`
	Refused bool   `json:"refused,omitempty"`
}

// describe returns the refusal in an entry of a node's log.
func (e *entry) describe(node string) Refusal {
	r := Refusal{At: e.last, FirstAt: e.first, Times: e.times, Node: node, Door: e.door,
		NS: string(e.text[:e.nsLen]), Key: string(e.text[e.nsLen:]), Rule: e.rule,
		Reason: e.reason.String(), N: e.n, RetryAfter: e.retryAfter, Until: e.until,
		Version: e.version}
	named := false
	for i := range e.limits {
		l := &e.limits[i]
		window := twotier.FormatWindow(l.Window, l.Period)
		r.Limits = append(r.Limits, Judged{Window: window, Limit: l.Max, Count: l.Count,
			Refused: l.Refused})
		if l.Refused && !named && (e.reason == Limit || e.reason == Distinct) {
			named = true
			r.Window, r.Count, r.Limit = window, l.Count, l.Max
			r.Lent = max(0, l.Hi-l.Count)
		}
	}
	if e.reason == Concurrent {
		r.Count, r.Limit = e.open, e.most
	}
	return r
}

// ErrNotFound means that no refusal with an id can be found. The error that wraps it is the reason.
var ErrNotFound = errors.New("there is no such refusal")

var (
	errForm = fmt.Errorf("%w: an id is the name of a node, a dot, and letters and digits",
		ErrNotFound)
	errUnknown = fmt.Errorf("%w: the node has recorded none with this id since it was started",
		ErrNotFound)
	errForgotten = fmt.Errorf("%w: it is older than an hour, or the node had to make room for "+
		"newer ones", ErrNotFound)
)

// checkBits is the number of bits by which ids of other processes are recognized.
const checkBits = 20

// id returns the id of the record with a number.
func (l *Log) id(number uint64) decisions.RefusalID {
	return decisions.RefusalID{Prefix: l.prefix, Number: number<<checkBits | l.check(number)}
}

// check returns the bits that recognize a number of this process.
func (l *Log) check(number uint64) uint64 {
	return (number ^ l.mark) * 0x9e3779b97f4a7c15 >> (64 - checkBits)
}

// NodeOf returns the name of the node that has made an id.
func NodeOf(id string) (node string, err error) {
	dot := strings.LastIndexByte(id, '.')
	if dot <= 0 {
		return "", errForm
	}
	if _, err := strconv.ParseUint(id[dot+1:], 36, 64); err != nil {
		return "", errForm
	}
	if node, err = url.PathUnescape(id[:dot]); err != nil {
		return "", errForm
	}
	return node, nil
}

// Find returns the refusal with an id of this log. The error wraps [ErrNotFound].
func (l *Log) Find(id string) (Refusal, error) {
	if _, err := NodeOf(id); err != nil {
		return Refusal{}, err
	}
	text, _ := strings.CutPrefix(id, l.prefix)
	marked, err := strconv.ParseUint(text, 36, 64)
	number := marked >> checkBits
	if err != nil || marked&(1<<checkBits-1) != l.check(number) {
		return Refusal{}, errUnknown
	}
	s := &l.shards[number%shardCount]
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.entryOf(number / shardCount)
	if one == nil || l.now()-one.last >= Kept {
		return Refusal{}, errForgotten
	}
	r := one.describe(l.node)
	r.ID = id
	return r, nil
}

// Newer orders refusals, the newest first.
func Newer(a, b Refusal) int {
	return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(b.FirstAt, a.FirstAt),
		cmp.Compare(a.ID, b.ID))
}
