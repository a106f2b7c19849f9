package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/bans"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/refusallog"
	"twotier.dev/twotier/internal/topkeys"
	"twotier.dev/twotier/internal/verdicts"
)

// newSinks makes and registers everything that receives the decisions of this node's endpoints.
func (n *Node) newSinks() {
	now := n.opt.Clock.Now
	n.refusalLog = refusallog.New(n.opt.ID, now)
	n.denied = topkeys.NewRefused(twotier.Refused, now)
	n.shadowed = topkeys.NewRefused(twotier.ShadowRefused, now)
	n.bans = bans.New(now)
	own := []decisions.Sink{n.refusalLog, n.denied, n.shadowed, n.bans}
	n.verdicts = verdicts.New(append(own, n.opt.Sinks...)...)
}

// Verdicts returns the counters that this node's endpoints pass their decisions to.
func (n *Node) Verdicts() *verdicts.Counters { return n.verdicts }

// Collectors returns the metrics of decisions.
func (n *Node) Collectors() []prometheus.Collector {
	return []prometheus.Collector{n.verdicts, n.bans}
}
