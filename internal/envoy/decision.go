package envoy

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/ratefield"
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
		run.CountRuled(&s, &verdicts.Ruled{Rule: &rule, Version: d.version,
			Limits: []twotier.RuleLimit{{Max: limit.Max}}})
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

// Short forms of the names in Envoy's API.
const (
	ok        = ratelimitv3.RateLimitResponse_OK
	overLimit = ratelimitv3.RateLimitResponse_OVER_LIMIT
)

// response returns the answer: OVER_LIMIT if any descriptor is over its limit.
func (d *decision) response() *ratelimitv3.RateLimitResponse {
	r := &ratelimitv3.RateLimitResponse{OverallCode: ok}
	for i := range d.items {
		if d.items[i].refused() {
			r.OverallCode = overLimit
		}
		r.Statuses = append(r.Statuses, d.items[i].status())
	}
	r.ResponseHeadersToAdd = d.responseHeaders()
	r.DynamicMetadata = d.quotaMetadata()
	return r
}

// quotaMetadata returns the state of the limits in quota mode, as envoyproxy/ratelimit does: the
// descriptors that are over such a limit. It is nil if the request has no such limit.
func (d *decision) quotaMetadata() *structpb.Struct {
	var over []*structpb.Value
	found := false
	for i := range d.items {
		it := &d.items[i]
		if it.limit == nil || !it.limit.Quota {
			continue
		}
		found = true
		if it.overQuota() {
			over = append(over, structpb.NewNumberValue(float64(i)))
		}
	}
	if !found {
		return nil
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		"quotaModeEnabled":    structpb.NewBoolValue(true),
		"quotaModeViolations": structpb.NewListValue(&structpb.ListValue{Values: over})}}
}

// overQuota reports whether the descriptor is over a limit in quota mode.
func (it *item) overQuota() bool { return it.over && it.hits >= 0 && it.limit.Quota }

// refused reports whether the descriptor blocks its request.
func (it *item) refused() bool {
	return it.limit != nil && it.over && it.hits >= 0 && !it.limit.Shadow
}

// remaining returns how many more hits the limit allows, as every endpoint does. For a refused
// request that is less than its hits.
func (it *item) remaining() uint32 {
	return uint32(max(0, int64(it.limit.Max)-it.count))
}

// waitMS returns how many milliseconds pass until there is room for the hits of a refused
// descriptor or, for a descriptor without hits at its limit, for one hit. It is 0 if there is room,
// or never will be.
func (it *item) waitMS() int64 {
	if it.refused() || it.hits == 0 && it.remaining() == 0 {
		return max(0, it.wait)
	}
	return 0
}

// resetMS returns how many milliseconds pass until there is room again or, if there is room, until
// all current hits have expired.
func (it *item) resetMS() int64 {
	_, left := it.window()
	return cmp.Or(it.waitMS(), left)
}

// window returns the length of the limit's window and how much of it is left: all of a sliding
// window, or the time until the end of a calendar period. Both are in milliseconds.
func (it *item) window() (length, left int64) {
	if it.limit.Calendar == nil {
		return it.limit.Window(), it.limit.Window()
	}
	now := time.Now().UnixMilli()
	start, end := it.limit.Calendar.Around(now)
	return end - start, end - now
}

// status returns the part of the answer about one descriptor.
func (it *item) status() *ratelimitv3.RateLimitResponse_DescriptorStatus {
	s := &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: ok}
	switch {
	case it.limit == nil:
		return s
	case it.limit.Unlimited:
		s.LimitRemaining = math.MaxUint32
		return s
	case it.refused() || it.overQuota():
		s.Code = overLimit
	}
	s.CurrentLimit = envoyLimit(it.limit)
	s.LimitRemaining = it.remaining()
	s.DurationUntilReset = durationpb.New(time.Duration(it.resetMS()) * time.Millisecond)
	return s
}

// envoyLimit converts a limit to Envoy's API.
func envoyLimit(l *rules.DescriptorLimit) *ratelimitv3.RateLimitResponse_RateLimit {
	limit := &ratelimitv3.RateLimitResponse_RateLimit{Name: l.Name, RequestsPerUnit: l.Max,
		Unit: ratelimitv3.RateLimitResponse_RateLimit_Unit(
			ratelimitv3.RateLimitResponse_RateLimit_Unit_value[l.Unit.String()])}
	if l.Multiplier > 1 {
		limit.UnitMultiplier = wrapperspb.UInt32(l.Multiplier)
	}
	return limit
}

// responseHeaders returns the headers of the response to the client: RateLimit-Limit,
// RateLimit-Remaining and RateLimit-Reset of the descriptor that is closest to its limit, as
// envoyproxy/ratelimit sends them, and the headers of draft-ietf-httpapi-ratelimit-headers-11,
// which list every descriptor. Descriptors in shadow mode are not shown.
func (d *decision) responseHeaders() []*corev3.HeaderValue {
	var closest *item
	var fields ratefield.Fields
	wait := int64(0)
	for i := range d.items {
		it := &d.items[i]
		if it.limit == nil || it.limit.Unlimited || it.limit.Shadow {
			continue
		}
		if closest == nil || it.refused() && !closest.refused() ||
			it.refused() == closest.refused() && it.remaining() < closest.remaining() {
			closest = it
		}
		length, left := it.window()
		shows := ratefield.Limit{
			Name: it.policyName(i, d.request.GetDescriptors()[i].GetEntries()),
			Max:  int64(it.limit.Max), Window: length,
			Remaining: int64(it.remaining()), Wait: it.waitMS()}
		if it.limit.Calendar != nil {
			shows.Wait = left
		}
		fields.Add(&shows)
		wait = max(wait, it.waitMS())
	}
	if closest == nil {
		return nil
	}
	list := []*corev3.HeaderValue{
		{Key: "RateLimit-Limit", Value: strconv.FormatUint(uint64(closest.limit.Max), 10)},
		{Key: "RateLimit-Remaining", Value: strconv.FormatUint(uint64(closest.remaining()), 10)},
		{Key: "RateLimit-Reset", Value: formatSeconds(closest.resetMS())},
		{Key: "RateLimit-Policy", Value: fields.Policy()},
		{Key: "RateLimit", Value: fields.State()},
	}
	if wait > 0 {
		list = append(list, &corev3.HeaderValue{Key: "Retry-After", Value: formatSeconds(wait)})
	}
	if !d.refusal.IsZero() {
		list = append(list, &corev3.HeaderValue{Key: "Twotier-Refusal", Value: d.refusal.String()})
	}
	return list
}

// formatSeconds writes milliseconds as seconds, rounded up.
func formatSeconds(ms int64) string { return strconv.FormatInt(ratefield.Seconds(ms), 10) }

// policyName returns the name of descriptor i's limit in headers: the limit's name, or the keys of
// the descriptor. Values are not shown to clients.
func (it *item) policyName(i int, entries []*commonv3.RateLimitDescriptor_Entry) string {
	name := it.limit.Name
	if name == "" {
		keys := make([]string, len(entries))
		for j, e := range entries {
			keys[j] = e.GetKey()
		}
		name = strings.Join(keys, ".")
	}
	if i > 0 {
		return fmt.Sprintf("%s#%d", name, i)
	}
	return name
}
