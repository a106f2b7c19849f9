package mirror

import (
	"cmp"
	"container/list"
	"slices"
	"strings"

	"twotier.dev/twotier/httpapi/client"
)

const (
	// maxKeys is the number of keys with models. The least recently used ones are forgotten.
	maxKeys = 4096
	// maxDiffering is the number of keys that differ in the report. When there are more, keys with
	// few differences are left out.
	maxDiffering = 1000
	// maxRanges is the number of different limits for which the old limit is estimated.
	maxRanges = 256
)

// book is the comparison so far.
type book struct {
	counted     Report // without lists
	began       int64  // the earliest time of a verdict, or counted.Since
	countDenied bool
	lastDrop    int64 // when a verdict was dropped last, 0 if never
	strips      map[string]*strip

	judged  uint64 // verdicts that models predict
	fits    [reasonCount]uint64
	causes  map[cause]uint64 // differences
	ranges  map[limitName]*span
	keys    map[string]*list.Element
	recent  *list.List // of *key, the most recently used first
	forgets bool       // keys have been forgotten
	differ  map[string]*difference
}

// limitName identifies a limit in all keys.
type limitName struct {
	rule        string
	window, max int64
}

// cause is what explains a difference: reasons, and the limit for OtherLimit.
type cause struct {
	reasons mask
	limit   limitName
}

// span bounds the old limiter's number for a limit: it has allowed up to allowed events in the
// window, and refused this many.
type span struct {
	allowed, refused int64
	refusals         uint64
}

// explains reports whether another number explains every verdict of the old limiter.
func (s *span) explains(most int64) bool {
	return s.refusals > 0 && s.allowed >= 1 && s.allowed < s.refused &&
		(most < s.allowed || most >= s.refused)
}

func newBook(now int64, countDenied bool) *book {
	return &book{counted: Report{Since: now}, began: now, countDenied: countDenied,
		causes: map[cause]uint64{}, ranges: map[limitName]*span{},
		keys: map[string]*list.Element{}, recent: list.New(),
		differ: map[string]*difference{}, strips: map[string]*strip{}}
}

// nameOf returns the name of a check's key that is unique in all namespaces.
func nameOf(c *client.Check) string { return c.Namespace + "\x00" + c.Key }

// key returns the memory of a check's key.
func (b *book) key(c *client.Check, ts int64) *key {
	name := nameOf(c)
	if e, ok := b.keys[name]; ok {
		b.recent.MoveToFront(e)
		return e.Value.(*key)
	}
	if b.recent.Len() == maxKeys {
		oldest := b.recent.Back()
		delete(b.keys, b.recent.Remove(oldest).(*key).name)
		b.forgets = true
	}
	k := &key{name: strings.Clone(name)}
	if b.forgets {
		k.since = ts
	}
	b.keys[k.name] = b.recent.PushFront(k)
	return k
}

// recordError accounts for a verdict about which twotier has not answered.
func (b *book) recordError(v *Verdict, err error) {
	b.counted.Errors++
	b.counted.LastError = clipReason(err)
	for i := range v.Checks {
		b.key(&v.Checks[i], v.At).lost = v.At
	}
}

// record compares a verdict with twotier's answer.
func (b *book) record(v *Verdict, answer *client.AcquireAnswer) {
	b.began = min(b.began, v.At)
	o := observe(v, answer, v.Allowed || b.countDenied)
	why := b.explain(&o)
	b.counted.Compared++
	switch {
	case o.old == o.twotier:
		b.counted.Agreed++
		return
	case o.old:
		b.counted.Stricter++
	default:
		b.counted.Looser++
	}
	b.causes[why]++
	b.recordDifference(&o, why)
}

// observation is a verdict with twotier's answer to the same question.
type observation struct {
	ts           int64
	old, twotier bool // allowed
	counted      bool // by the old limiter
	included     bool // twotier's counts include these events
	banned       bool
	retry        int64 // milliseconds until twotier allows
	checks       []check
}

// check is one key of an observation. Limits of rules in shadow are like any other: a mirror asks
// for their decision.
type check struct {
	*client.Check
	limits []client.LimitState
}

func observe(v *Verdict, a *client.AcquireAnswer, counted bool) observation {
	o := observation{ts: v.At, old: v.Allowed, twotier: a.Allowed, counted: counted,
		included: counted || a.Allowed, banned: len(a.Bans) > 0, retry: a.RetryAfter.Milliseconds()}
	for i := range v.Checks {
		c := check{Check: &v.Checks[i], limits: a.Limits}
		if len(v.Checks) > 1 {
			c.limits = a.Checks[i].Limits
		}
		for j := range c.limits {
			o.twotier = o.twotier && !c.limits[j].Refused
		}
		o.checks = append(o.checks, c)
	}
	return o
}

// strip counts the calls whose keys a mapping shortens by a prefix.
type strip struct {
	StripReport

	matched bool // one of the keys began with it
}

// RecordUnknown accounts for a call of a script with this SHA-1 that may be a verdict.
func (m *Mirror) RecordUnknown(sha string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.book.counted.UnknownCalls++
	m.book.counted.LastUnknown = sha
}

// RecordStrip accounts for a call whose key should begin with a prefix, and whether it does.
func (m *Mirror) RecordStrip(prefix, key string, matched bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.book.strips[prefix]
	if s == nil {
		s = &strip{StripReport: StripReport{Strip: prefix, Example: key}}
		m.book.strips[prefix] = s
	}
	s.Calls++
	s.matched = s.matched || matched
}

// unmatchedStrips lists the prefixes that no key begins with.
func (b *book) unmatchedStrips() (list []StripReport) {
	for _, s := range b.strips {
		if !s.matched {
			list = append(list, s.StripReport)
		}
	}
	slices.SortFunc(list, func(x, y StripReport) int { return cmp.Compare(x.Strip, y.Strip) })
	return list
}
