package envoy

import (
	"fmt"
	"strings"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/verdicts"
)

// decision is the state of deciding one request.
type decision struct {
	request   *ratelimitv3.RateLimitRequest
	namespace []byte
	items     []item // parallel to the descriptors of the request
	version   int64  // of the rules, which the domain is of
	counted   bool   // the descriptors with hits were counted
	refusal   decisions.RefusalID
}

// item is one descriptor of a request.
type item struct {
	// limit is nil if the descriptor has none, or another descriptor's limit replaces it.
	limit  *rules.DescriptorLimit
	key    []byte
	hits   int64
	checks int // how many checks of an operation are for it
	// The result: the count, whether it is over the limit, and how long to wait in milliseconds.
	count, wait int64
	over        bool
}

// match finds the limit of every descriptor.
func (d *decision) match(l *Limiter, domain *rules.Domain) {
	d.namespace = []byte(domain.Namespace)
	replaced := map[string]bool{}
	for i, descriptor := range d.request.GetDescriptors() {
		it := &d.items[i]
		it.match(l, domain, descriptor)
		it.setHits(d.request, descriptor)
		if it.limit != nil {
			for _, name := range it.limit.Replaces {
				replaced[name] = true
			}
		}
	}
	for i := range d.items {
		if l := d.items[i].limit; l != nil && l.Name != "" && replaced[l.Name] {
			d.items[i].limit = nil
		}
	}
}

// match finds the limit of one descriptor: its own limit override, or the limit of the domain.
func (it *item) match(l *Limiter, domain *rules.Domain, descriptor *commonv3.RateLimitDescriptor) {
	entries := make([]rules.Entry, len(descriptor.GetEntries()))
	for i, e := range descriptor.GetEntries() {
		entries[i] = rules.Entry{Key: e.GetKey(), Value: e.GetValue()}
	}
	it.limit = l.override(domain, descriptor)
	if it.limit == nil {
		it.limit, entries = domain.Find(entries)
	}
	it.key = keyOf(entries)
}

// setHits sets how many hits a descriptor adds: its own number, else the request's, else one.
// Numbers above its limit are capped at the limit plus one.
func (it *item) setHits(r *ratelimitv3.RateLimitRequest, d *commonv3.RateLimitDescriptor) {
	hits := uint64(max(1, r.GetHitsAddend()))
	if own := d.GetHitsAddend(); own != nil {
		hits = own.GetValue()
	}
	most := uint64(request.MaxN)
	if it.limit != nil {
		most = max(most, uint64(it.limit.Max)+1)
	}
	it.hits = int64(min(hits, most))
	if d.GetIsNegativeHits() {
		it.hits = -it.hits
	}
}

// keyOf returns the key under which a descriptor is counted, such as message_type=marketing|to=206.
// Different descriptors have different keys.
func keyOf(entries []rules.Entry) []byte {
	var b []byte
	for i, e := range entries {
		if i > 0 {
			b = append(b, '|')
		}
		b = appendEscaped(b, e.Key)
		if e.Value != "" {
			b = appendEscaped(append(b, '='), e.Value)
		}
	}
	return request.KeyOf(b)
}

// appendEscaped appends a text and escapes, as in URLs, the separators of entries and the
// characters that keys can't have.
func appendEscaped(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == 0x7f || strings.IndexByte("%=|", c) >= 0 {
			b = fmt.Appendf(b, "%%%02X", c)
		} else {
			b = append(b, c)
		}
	}
	return b
}

// selectItems calls do for the chosen descriptors that have a limit other than unlimited, and
// returns them.
func (d *decision) selectItems(which func(*item) bool, do func(*item)) (chosen []*item) {
	for i := range d.items {
		it := &d.items[i]
		if it.limit != nil && !it.limit.Unlimited && which(it) {
			chosen = append(chosen, it)
			do(it)
		}
	}
	return chosen
}

// countVerdicts counts one decision, with the verdicts on the descriptors that have hits, as those
// of rules on an acquire.
func (d *decision) countVerdicts(to *verdicts.Counters, of *verdicts.Arrival) {
	var run verdicts.Run
	run.Begin(to, of)
	items := d.selectItems(func(it *item) bool { return it.hits > 0 }, func(*item) {})
	for i, it := range items {
		if i == 0 {
			run.BeginDecision()
		}
		rule, limit := it.limit.Rule(string(d.namespace)), it.limit.Compared(int64(it.limit.Max))
		s := verdicts.Subject{NS: d.namespace, Key: it.key, N: it.hits, RetryAfter: it.wait,
			Limits: []twotier.LimitResult{{Window: limit.Window, Period: limit.Period,
				Count: it.count, Max: limit.Max, Refused: it.over}}}
		if !d.counted {
			s.Beyond = it.hits
		}
		run.CountRuled(&s, verdicts.Origin{Rule: &rule, Max: limit.Max, First: true,
			Version: d.version})
	}
	d.refusal = run.RefusalID()
	run.End(time.Since(of.Began))
}

// appendChecks appends the checks that ask the counter about n hits: several if n exceeds the bound
// of one check. In shadow mode nothing refuses a descriptor.
func (it *item) appendChecks(checks []twotier.Check, namespace []byte, n int64) []twotier.Check {
	most := int64(it.limit.Max)
	if it.limit.Shadow {
		most = twotier.Unlimited
	}
	before := len(checks)
	for n != 0 {
		part := max(-request.MaxN, min(n, request.MaxN))
		checks = append(checks, twotier.Check{NS: namespace, Key: it.key, N: part,
			Limits: []twotier.Limit{it.limit.Compared(most)}})
		n -= part
	}
	it.checks = len(checks) - before
	return checks
}

// recordResult records the result of an acquire from the checks of the descriptor.
func (it *item) recordResult(checks []twotier.CheckResult) {
	it.count = checks[0].Limits[0].Count
	for i := range checks {
		it.over = it.over || checks[i].Refused
		it.wait = max(it.wait, checks[i].RetryAfter)
	}
	if it.hits > int64(it.limit.Max) {
		it.wait = 0 // never, although each of the checks may pass
	}
}
