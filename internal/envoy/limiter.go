package envoy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/trace"
	"twotier.dev/twotier/internal/verdicts"
	"twotier.dev/twotier/internal/warning"
	"twotier.dev/twotier/leaparray"
)

// Domains resolves the names of domains.
type Domains interface {
	// Domain returns the domain of that name in force, or nil if there is none, and the version of
	// its rules. known is false while the domains are unknown.
	Domain(name string) (d *rules.Domain, version int64, known bool)
}

// Warnings records probable misconfigurations.
type Warnings interface {
	Observe(code warning.Code, at string)
}

// maxDescriptors bounds the descriptors of a request.
const maxDescriptors = 1024

// Limiter decides requests of Envoy.
type Limiter struct {
	// Warnings records requests for domains that no rule defines, and limits of requests that can't
	// be judged as they are. Optional; set it before the first request.
	Warnings Warnings
	// Ladders bound the windows of limits in requests. Without it, a window that its namespace does
	// not cover is an error. Set it before the first request.
	Ladders Ladders

	service  ask.Service
	domains  Domains
	verdicts *verdicts.Counters
}

// NewLimiter returns a limiter that counts in service. Counters, which may be nil, count and record
// its verdicts.
func NewLimiter(service ask.Service, domains Domains, counters *verdicts.Counters) *Limiter {
	return &Limiter{service: service, domains: domains, verdicts: counters}
}

// ShouldRateLimit decides one request. A nil grant allows everything. Its errors are of type
// *[request.Failure].
func (l *Limiter) ShouldRateLimit(ctx context.Context, g *twotier.Grant,
	r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	return l.decide(ctx, g, r, verdicts.GRPC)
}

// decide is ShouldRateLimit for a request that arrived at the given listener.
func (l *Limiter) decide(ctx context.Context, g *twotier.Grant, r *ratelimitv3.RateLimitRequest,
	endpoint string) (*ratelimitv3.RateLimitResponse, error) {
	of := trace.From(ctx)
	arrival := verdicts.Arrival{Endpoint: endpoint, Began: time.Now(), Trace: of,
		Span: of.Recorded()}
	switch {
	case r.GetDomain() == "":
		return nil, invalidError("domain: missing")
	case len(r.GetDescriptors()) == 0:
		return nil, invalidError("descriptors: want at least one")
	case len(r.GetDescriptors()) > maxDescriptors:
		return nil, invalidError("descriptors: want at most %d", maxDescriptors)
	}
	d := decision{request: r, items: make([]item, len(r.GetDescriptors()))}
	domain, version, known := l.domains.Domain(r.GetDomain())
	if !known {
		return nil, request.RulesUnknownFailure()
	}
	if domain == nil && l.Warnings != nil {
		l.Warnings.Observe(warning.UnknownDomain, "domain "+r.GetDomain())
	}
	if domain != nil {
		d.match(l, domain)
		if f := ask.CheckGrant(g, twotier.RoleCount, d.namespace); f != nil {
			f.Field = "" // requests of Envoy spell their fields differently
			return nil, f
		}
		if arrival.Span != nil {
			arrival.Span.Set(trace.OperationsAttr(len(d.items)),
				trace.NamespaceAttr(cmp.Or(domain.Namespace, twotier.DefaultNamespace)))
		}
		if err := d.execute(ctx, l.service); err != nil {
			return nil, err
		}
		d.version = version
		if l.verdicts != nil {
			d.countVerdicts(l.verdicts, &arrival)
		}
	}
	return d.response(), nil
}

// invalidError returns the error for a request that can't be decided.
func invalidError(format string, args ...any) error {
	return &request.Failure{Kind: request.Invalid, Detail: fmt.Sprintf(format, args...)}
}

// errorOfOp converts the error of an operation.
func errorOfOp(err error, op *twotier.Op) error {
	f := request.FailureOfOp(err, op, true)
	return &f
}

// execute decides: first on descriptors without hits, then on the rest.
func (d *decision) execute(ctx context.Context, service ask.Service) error {
	held, err := d.compareWithLimits(ctx, service, func(it *item) bool { return it.hits == 0 })
	if err != nil {
		return err
	}
	if held && !d.charges() {
		_, err = d.compareWithLimits(ctx, service, func(it *item) bool { return it.hits > 0 })
	} else {
		err = d.acquire(ctx, service)
	}
	if err != nil {
		return err
	}
	return d.subtractHits(ctx, service)
}

// charges reports whether a descriptor's limit makes the request count in any case.
func (d *decision) charges() bool {
	return slices.ContainsFunc(d.items, func(it item) bool {
		return it.limit != nil && it.limit.Charge && it.hits > 0
	})
}

// compareWithLimits compares some descriptors with their limits, each by itself, and reports
// whether any is over its limit. A descriptor without hits waits for room for one.
func (d *decision) compareWithLimits(ctx context.Context, service ask.Service,
	which func(*item) bool) (over bool, err error) {
	var ops []twotier.Op
	items := d.selectItems(which, func(it *item) {
		ops = append(ops, twotier.Op{Kind: twotier.Acquire, DryRun: true,
			Checks: it.appendChecks(nil, d.namespace, max(1, it.hits))})
	})
	if len(ops) == 0 {
		return false, nil
	}
	results := make([]twotier.Result, len(ops))
	service.DoAll(ctx, ops, results)
	for i, it := range items {
		if err := results[i].Err; err != nil {
			return false, errorOfOp(err, &ops[i])
		}
		it.recordResult(results[i].Checks)
		if results[i].Allowed {
			it.count -= max(1, it.hits)
		}
		it.over = it.count+max(1, it.hits) > int64(it.limit.Max)
		over = over || it.over && !it.limit.Shadow
	}
	return over, nil
}

// acquire counts all descriptors with hits if all of them are within their limits, or if one of
// them charges.
func (d *decision) acquire(ctx context.Context, service ask.Service) error {
	op := twotier.Op{Kind: twotier.Acquire, Charge: d.charges()}
	items := d.selectItems(func(it *item) bool { return it.hits > 0 }, func(it *item) {
		op.Checks = it.appendChecks(op.Checks, d.namespace, it.hits)
	})
	if len(items) == 0 {
		return nil
	}
	if len(op.Checks) > request.MaxChecks {
		return d.acquireInParts(ctx, service, items, &op)
	}
	var res twotier.Result
	if err := service.Do(ctx, &op, &res); err != nil {
		return errorOfOp(err, &op)
	}
	d.counted = op.Counts(&res)
	d.recordResults(items, &res)
	return nil
}

// acquireInParts is acquire for descriptors that have more checks than one operation may have.
// Unless it charges, it compares all of them before it counts any. A descriptor whose hits alone
// take several checks is then over its limit, because its parts might not pass together.
func (d *decision) acquireInParts(ctx context.Context, service ask.Service, items []*item,
	whole *twotier.Op) error {
	if whole.Charge {
		return d.doParts(ctx, service, items, whole)
	}
	over, err := d.compareWithLimits(ctx, service, func(it *item) bool { return it.hits > 0 })
	if err != nil {
		return err
	}
	for _, it := range items {
		if it.checks > 1 && !it.limit.Shadow {
			it.over, over = true, true
		}
	}
	if over {
		return nil
	}
	return d.doParts(ctx, service, items, whole)
}

// doParts counts the checks of an operation in several ones. An error of one leaves the request
// partly executed if another one has counted.
func (d *decision) doParts(ctx context.Context, service ask.Service, items []*item,
	whole *twotier.Op) error {
	var ops []twotier.Op
	var parts [][]*item // parallel to ops
	checks := whole.Checks
	for _, it := range items {
		last := len(ops) - 1
		if last < 0 || len(ops[last].Checks)+it.checks > request.MaxChecks {
			ops = append(ops, twotier.Op{Kind: twotier.Acquire, Charge: whole.Charge})
			parts = append(parts, nil)
			last++
		}
		ops[last].Checks = append(ops[last].Checks, checks[:it.checks]...)
		parts[last], checks = append(parts[last], it), checks[it.checks:]
	}
	results := make([]twotier.Result, len(ops))
	service.DoAll(ctx, ops, results)
	var errs []error
	for i := range ops {
		if err := results[i].Err; err != nil {
			errs = append(errs, errorOfOp(err, &ops[i]))
			continue
		}
		d.counted = d.counted || ops[i].Counts(&results[i])
		d.recordResults(parts[i], &results[i])
	}
	return errorOfParts(errs, d.counted)
}

// recordResults records the result of an acquire, whose checks are those of the descriptors.
func (d *decision) recordResults(items []*item, res *twotier.Result) {
	at := 0
	for _, it := range items {
		it.recordResult(res.Checks[at : at+it.checks])
		at += it.checks
		if it.limit.Shadow {
			it.over = it.count > int64(it.limit.Max) ||
				!d.counted && it.count+it.hits > int64(it.limit.Max)
		}
	}
}

// subtractHits takes negative hits back. The rest of the request is decided already, so an error
// now leaves the request partly executed.
func (d *decision) subtractHits(ctx context.Context, service ask.Service) error {
	var ops []twotier.Op
	var items []*item // parallel to ops
	d.selectItems(func(it *item) bool { return it.hits < 0 }, func(it *item) {
		for _, c := range it.appendChecks(nil, d.namespace, it.hits) {
			ops = append(ops, twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{c}})
			items = append(items, it)
		}
	})
	if len(ops) == 0 {
		return nil
	}
	results := make([]twotier.Result, len(ops))
	service.DoAll(ctx, ops, results)
	var errs []error
	partly := d.counted
	for i, it := range items {
		if err := results[i].Err; err != nil {
			errs = append(errs, errorOfOp(err, &ops[i]))
			continue
		}
		it.count, partly = results[i].Checks[0].Limits[0].Hi, true
	}
	return errorOfParts(errs, partly)
}

// errorOfParts returns the error of a request some of whose operations have failed: the first of
// their errors or, if another operation was or may have been carried out, an unknown outcome.
func errorOfParts(errs []error, partly bool) error {
	if len(errs) == 0 {
		return nil
	}
	for _, err := range errs {
		f, ok := errors.AsType[*request.Failure](err)
		partly = partly || ok && f.Kind == request.Unknown
	}
	if !partly {
		return errs[0]
	}
	return &request.Failure{Kind: request.Unknown, Detail: fmt.Sprintf(
		"a part of the request was, or may have been, carried out: %v", errs[0])}
}

// Ladders resolves the ladders of namespaces.
type Ladders interface {
	// Of returns the ladder of a namespace.
	Of(namespace string) *leaparray.Ladder
}

// override returns the limit that a descriptor carries, or nil if it carries none that can be
// judged. It never causes an error, after which Envoy would pass the request: a limit longer than
// the ladder is judged in the longest unit that the ladder covers, and an unknown unit leaves the
// descriptor to the domain.
func (l *Limiter) override(domain *rules.Domain,
	descriptor *commonv3.RateLimitDescriptor) *rules.DescriptorLimit {
	own := descriptor.GetLimit()
	if own == nil {
		return nil
	}
	asked, err := rules.ParseUnit(own.GetUnit().String())
	unit, covered := l.coveredUnit(domain.Namespace, asked)
	switch {
	case err != nil || !covered || len(descriptor.GetEntries()) == 0:
		l.observeOverride(warning.OverrideIgnored, domain, own)
		return nil
	case unit != asked:
		l.observeOverride(warning.OverrideShortened, domain, own)
	}
	return &rules.DescriptorLimit{Max: own.GetRequestsPerUnit(), Unit: unit, Multiplier: 1,
		Shadow: domain.Shadow}
}

// coveredUnit returns the longest unit, up to the given one, that the ladder of a namespace covers.
func (l *Limiter) coveredUnit(namespace string, unit rules.Unit) (_ rules.Unit, covered bool) {
	if l.Ladders == nil {
		return unit, true
	}
	span := l.Ladders.Of(namespace).Span()
	for unit > rules.Second && unit.Milliseconds() > span {
		unit--
	}
	return unit, unit.Milliseconds() <= span
}

// observeOverride records a warning about a limit of a request.
func (l *Limiter) observeOverride(code warning.Code, domain *rules.Domain,
	own *commonv3.RateLimitDescriptor_RateLimitOverride) {
	if l.Warnings != nil {
		l.Warnings.Observe(code, fmt.Sprintf("namespace %s, unit %v", domain.Namespace,
			own.GetUnit()))
	}
}
