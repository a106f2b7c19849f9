package mirror

import (
	"time"

	"twotier.dev/twotier/httpapi/client"
)

// Reason is why the old limiter and twotier differ.
type Reason string

// The reasons: the first three are about the comparison, the others about the old limiter. Their
// texts are below.
const (
	Lost             Reason = "lost"
	Unseen           Reason = "unseen"
	Banned           Reason = "banned"
	FixedWindow      Reason = "fixed-window"
	FirstEventWindow Reason = "first-event-window"
	WeightedWindow   Reason = "weighted-window"
	TokenBucket      Reason = "token-bucket"
	CountsRefused    Reason = "counts-refused"
	OtherLimit       Reason = "other-limit"
	Edge             Reason = "edge"
	Unexplained      Reason = "unexplained"
)

// The reasons by index. If several reasons explain a difference equally well, the first one is
// reported.
const (
	isLost = iota
	isUnseen
	isBanned
	isFixedWindow
	isFirstEventWindow
	isWeightedWindow
	isTokenBucket
	isCountsRefused
	isOtherLimit
	isEdge
	isUnexplained

	reasonCount = isUnexplained // of those that explain something
)

// reasons describe differences, and kinds of limiter after the word model.
var reasons = [...]struct {
	name        Reason
	text, model string
}{
	isLost: {name: Lost,
		text: "twotier lacks earlier events of the key, because of drops or errors"},
	isUnseen: {name: Unseen, text: "the old limiter has counts from before the mirror began " +
		"(twotier import), or a lower limit: ask again after a whole window"},
	isBanned: {name: Banned, text: "a rule of twotier bans the key"},
	isFixedWindow: {FixedWindow, "the old limiter counts in fixed windows: around the boundary " +
		"up to twice the limit passes", "with windows that begin at multiples of their length"},
	isFirstEventWindow: {FirstEventWindow, "the old limiter's window begins with the first event " +
		"and then starts again from 0 (INCR and EXPIRE): up to twice the limit passes",
		"with windows that begin with their first event"},
	isWeightedWindow: {WeightedWindow, "the old limiter estimates the sliding window from two " +
		"fixed ones", "that estimates the sliding window from two fixed ones"},
	isTokenBucket: {TokenBucket, "the old limiter refills continuously (token bucket, GCRA): " +
		"after a pause up to twice the limit passes within a window", "that refills continuously"},
	isCountsRefused: {CountsRefused, "the old limiter counts refused events, too; with " +
		"count_denied twotier does the same (--count-denied of the mirror)",
		"that counts refused requests"},
	isOtherLimit: {name: OtherLimit, text: "the old limiter has another limit"},
	isEdge: {name: Edge, text: "events at the edge of the window: different clocks, another " +
		"order of arrival, whole seconds in the old limiter, or buckets of twotier under a limit " +
		"above 64"},
	isUnexplained: {name: Unexplained,
		text: "none of the known kinds of limiters decides like this"},
}

// model describes the kind of limiter, after the word model.
func (r Reason) model() string {
	for i := range reasons {
		if reasons[i].name == r {
			return reasons[i].model
		}
	}
	return ""
}

// mask is a set of reasons by index.
type mask uint16

func (m mask) has(i int) bool { return m>>i&1 != 0 }

func (m *mask) set(i int, is bool) {
	if is {
		*m |= 1 << i
	}
}

// explain compares an observation with the predictions of the models, lets them count it, and
// returns which of them predicted the old limiter's verdict.
func (b *book) explain(o *observation) (why cause) {
	allowed := ^mask(0) // by each model
	modelled := false
	for i := range o.checks {
		c := &o.checks[i]
		k := b.key(c.Check, o.ts)
		for j := range c.limits {
			l := &c.limits[j]
			if !isModelled(l) {
				continue
			}
			modelled = true
			m := k.find(l.Window.Milliseconds(), l.Max, o.ts)
			m.move(o.ts)
			allows := m.predict(o.ts, c.needed())
			allows.set(isCountsRefused, k.sum(o.ts, m.window, false)+c.needed() <= m.max)
			allowed &= allows
			b.explainComparison(&why.reasons, o, k, c, l)
		}
	}
	b.addToModels(o)
	if !modelled {
		return why
	}
	why.limit = b.estimate(o)
	for i := isFixedWindow; i <= isCountsRefused; i++ {
		why.reasons.set(i, allowed.has(i) == o.old)
	}
	why.reasons.set(isBanned, o.banned && o.old && !o.twotier)
	why.reasons.set(isOtherLimit, why.limit != limitName{})
	b.judged++
	for i := range b.fits {
		if why.reasons.has(i) || o.old == o.twotier && (i < isFixedWindow || i > isCountsRefused) {
			b.fits[i]++
		}
	}
	return why
}

// needed returns the events that the limits must have room for.
func (c *check) needed() int64 { return max(1, c.N) }

// isModelled reports whether there are models of a limit: it has a sliding window.
func isModelled(l *client.LimitState) bool {
	return l.Window >= time.Millisecond && l.Period == "" && !l.Concurrent
}

// explainComparison adds the reasons that are not about the kind of the old limiter.
func (b *book) explainComparison(m *mask, o *observation, k *key, c *check,
	l *client.LimitState) {
	if o.old == o.twotier {
		return
	}
	window := l.Window.Milliseconds()
	near := tolerance(window)
	if o.old {
		m.set(isEdge, l.Refused && o.retry > 0 && o.retry <= near)
		return
	}
	lost := max(k.lost, b.lastDrop)
	m.set(isLost, lost > 0 && o.ts-lost < window)
	m.set(isUnseen, o.ts-max(k.since, b.began) < window)
	m.set(isEdge, k.sum(o.ts, window+near, true)+c.needed() > l.Max)
}

// addToModels lets the models count an observation as the old limiter did.
func (b *book) addToModels(o *observation) {
	for i := range o.checks {
		c := &o.checks[i]
		k := b.key(c.Check, o.ts)
		for j := range c.limits {
			if l := &c.limits[j]; o.counted && isModelled(l) {
				k.find(l.Window.Milliseconds(), l.Max, o.ts).add(o.ts, c.N)
			}
		}
		k.remember(event{o.ts, int32(c.N), o.counted})
	}
}

// estimate narrows the old limiter's number for the only limit of an observation, and returns its
// name, or none if there are several.
func (b *book) estimate(o *observation) (name limitName) {
	if len(o.checks) != 1 || len(o.checks[0].limits) != 1 {
		return name
	}
	c := &o.checks[0]
	l := &c.limits[0]
	name = limitName{l.Rule, l.Window.Milliseconds(), l.Max}
	s := b.ranges[name]
	if s == nil {
		if len(b.ranges) == maxRanges {
			return limitName{}
		}
		s = &span{}
		b.ranges[name] = s
	}
	total := l.Count // with this observation's events
	if !o.included {
		total += c.N
	}
	if o.old {
		s.allowed = max(s.allowed, total)
		return name
	}
	if s.refusals == 0 || total < s.refused {
		s.refused = total
	}
	s.refusals++
	return name
}

// event is one decision of the old limiter about a key.
type event struct {
	ts      int64
	n       int32
	counted bool
}

// maxEvents is the number of events of a key that are remembered.
const maxEvents = 256

// models holds what each kind of limiter would remember about a limit of a key, after the events
// that the old limiter has really counted. Times and windows are in milliseconds.
type models struct {
	window, max int64

	slot, count, previous int64 // fixed windows, by the clock
	start, first          int64 // of the window that began with its first event, and its count

	tokens float64 // of a bucket that was full at first
	filled int64   // when they were that many
}

// move lets time pass. Time that goes back stands still.
func (m *models) move(ts int64) {
	if slot := ts / m.window; slot > m.slot {
		m.previous = 0
		if slot == m.slot+1 {
			m.previous = m.count
		}
		m.slot, m.count = slot, 0
	}
	if ts > m.filled {
		gained := float64(ts-m.filled) * float64(m.max) / float64(m.window)
		m.tokens = min(float64(m.max), m.tokens+gained)
		m.filled = ts
	}
	if ts-m.start >= m.window {
		m.first = 0
	}
}

// predict returns which kinds of limiters allow n events at the time of the last move.
func (m *models) predict(ts, n int64) (allowed mask) {
	elapsed := float64(max(0, ts-m.slot*m.window)) / float64(m.window)
	estimate := float64(m.previous)*(1-elapsed) + float64(m.count)
	const rounding = 1e-6
	allowed.set(isFixedWindow, m.count+n <= m.max)
	allowed.set(isFirstEventWindow, m.first+n <= m.max)
	allowed.set(isWeightedWindow, estimate+float64(n) <= float64(m.max)+rounding)
	allowed.set(isTokenBucket, float64(n) <= m.tokens+rounding)
	return allowed
}

// add counts n events at the time of the last move.
func (m *models) add(ts, n int64) {
	if m.first == 0 && n > 0 {
		m.start = ts
	}
	m.count += n
	m.first += n
	m.tokens = max(0, m.tokens-float64(n))
}

// key is the memory of the models about one key.
type key struct {
	name   string
	since  int64 // when it was remembered again after other keys took its place, or 0
	lost   int64 // when an event of it was lost last, or 0
	limits []models
	events []event // the last ones, oldest first
}

func (k *key) find(window, most, ts int64) *models {
	for i := range k.limits {
		if m := &k.limits[i]; m.window == window && m.max == most {
			return m
		}
	}
	if len(k.limits) == maxLimits {
		k.limits = k.limits[:0]
	}
	k.limits = append(k.limits, models{window: window, max: most, slot: ts / window,
		start: ts - window, tokens: float64(most), filled: ts})
	return &k.limits[len(k.limits)-1]
}

// maxLimits bounds the limits of one key that have models.
const maxLimits = 32

func (k *key) remember(e event) {
	if len(k.events) == maxEvents {
		k.events = append(k.events[:0], k.events[maxEvents/2:]...)
	}
	k.events = append(k.events, e)
}

// sum returns the events of a window that ends at ts, only the counted ones if so asked.
func (k *key) sum(ts, window int64, counted bool) (n int64) {
	for _, e := range k.events {
		if e.ts > ts-window && e.ts <= ts && (e.counted || !counted) {
			n += int64(e.n)
		}
	}
	return n
}

// tolerance returns how far from the edge of a window an event is at the edge.
func tolerance(window int64) int64 { return min(max(window/32, 50), 15*60*1000) }
