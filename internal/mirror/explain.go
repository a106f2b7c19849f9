package mirror

import (
	"time"

	"twotier.dev/twotier/httpapi/client"
)

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
