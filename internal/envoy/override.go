package envoy

import (
	"fmt"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/warning"
	"twotier.dev/twotier/leaparray"
)

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
