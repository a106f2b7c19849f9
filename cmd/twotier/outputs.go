package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/decisionlog"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/lint"
	"twotier.dev/twotier/internal/otlp"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/version"
	"twotier.dev/twotier/internal/warning"
	"twotier.dev/twotier/internal/webhook"
	"twotier.dev/twotier/internal/zones"
	"twotier.dev/twotier/ring"
)

// outputTimeout is the time limit for writing the last decisions and spans.
const outputTimeout = time.Second

// outlet is a queue of decisions, notifications or spans.
type outlet struct {
	queue interface {
		prometheus.Collector
		Open()
		Close(ctx context.Context) error
	}
	reopen func() // nil if there is nothing to do
	// lost is logged if not everything was sent, which does not fail the stop.
	lost string
	// patient is set if sending the rest may take as long as the last flush.
	patient bool
}

// closeOutputs ends the outputs. A patient one has until ctx ends.
func (s *server) closeOutputs(ctx context.Context) {
	for _, o := range s.outputs {
		by := ctx
		if !o.patient {
			var cancel context.CancelFunc
			by, cancel = context.WithTimeout(context.Background(), outputTimeout)
			defer cancel()
		}
		if err := o.queue.Close(by); err != nil {
			s.log.Warn(o.lost, "error", err)
		}
	}
}

// addDecisions makes the log of decisions, if configured.
func (s *server) addDecisions(stdout io.Writer) error {
	if s.cfg.Decisions == "" {
		return nil
	}
	to := decisionlog.Options{Path: s.cfg.Decisions, Node: s.cfg.Node,
		Shares: s.cfg.DecisionsSample, Logger: s.log}
	if s.cfg.Decisions == config.Stdout {
		to.Path, to.Writer = "", stdout
	}
	lines, err := decisionlog.New(to)
	if err != nil {
		return err
	}
	s.outputs = append(s.outputs,
		outlet{queue: lines, reopen: lines.Reopen, lost: "not everything was written"})
	s.sinks = append(s.sinks, lines)
	return nil
}

// addNotifier makes the notifier of warnings, if configured.
func (s *server) addNotifier() error {
	if s.cfg.NotifyURL == "" {
		return nil
	}
	notifier, err := webhook.New(webhook.Options{URL: s.cfg.NotifyURL, Node: s.cfg.Node,
		Version: version.String(), Logger: s.log})
	if err != nil {
		return err
	}
	s.outputs = append(s.outputs,
		outlet{queue: notifier, lost: "not every notification was sent", patient: true})
	s.sinks = append(s.sinks, notifier)
	return nil
}

// addSpans makes the exporter of spans, if configured.
func (s *server) addSpans(ctx context.Context) error {
	if s.cfg.OTLPIgnored != nil {
		s.log.Warn("the environment names a collector that can't be used: it gets no spans",
			"error", s.cfg.OTLPIgnored)
	}
	if s.cfg.OTLPEndpoint == "" {
		return nil
	}
	spans, err := otlp.New(ctx, otlp.Options{Endpoint: s.cfg.OTLPEndpoint, Service: "twotier",
		Node: s.cfg.Node, Version: version.String(), Logger: s.log})
	if err != nil {
		return err
	}
	s.outputs = append(s.outputs, outlet{queue: spans, lost: "not every span was sent"})
	s.tracer = spans
	return nil
}

// warnOfZones replaces the warnings about members whose time-zone data is another release.
func (s *server) warnOfZones() {
	s.zonesMu.Lock() // so that the last table decides
	defer s.zonesMu.Unlock()
	t := s.ring.Table()
	members := make([]ring.Member, t.Len())
	for i := range members {
		members[i] = *t.Member(i)
	}
	s.warnings.Replace(warning.Members, lintZones(zones.Version(), members))
}

// lintZones returns a warning for each release of time-zone data other than this node's that
// members have, in the order of the releases. Members that announce none are left out.
func lintZones(own string, members []ring.Member) (list []warning.Warning) {
	of := map[string][]string{}
	for _, m := range members {
		if m.Zones != "" && m.Zones != own {
			of[m.Zones] = append(of[m.Zones], m.ID)
		}
	}
	for _, version := range slices.Sorted(maps.Keys(of)) {
		slices.Sort(of[version])
		list = append(list, warning.Warning{Code: warning.ZonesDiffer,
			At: "nodes " + strings.Join(of[version], ", "),
			Reason: fmt.Sprintf("they have time zones of release %s, this node of %s: calendar "+
				"windows may begin at other times there", version, own),
			Instead: "update the older zone data or program, and start its node again"})
	}
	return list
}

// coarseWindows warns of limits of requests that have refused over a coarse window.
type coarseWindows struct{ to *warning.Log }

// Receives implements [decisions.Sink].
func (coarseWindows) Receives(v twotier.Verdict) bool { return v == twotier.Refused }

// Record implements [decisions.Sink].
func (c coarseWindows) Record(d *decisions.Decision) {
	for i := range d.Limits {
		l := &d.Limits[i]
		window := l.Window
		if l.Period != nil {
			window = l.Period.Longest()
		}
		if d.Rule == nil && l.Refused && l.Max > 0 && window < lint.FewBuckets*l.BucketMS {
			c.to.Observe(warning.CoarseWindow, fmt.Sprintf("limits over %s in namespace %s",
				twotier.FormatWindow(window, l.Period),
				cmp.Or(string(d.NS), twotier.DefaultNamespace)))
		}
	}
}

// lintConfig returns the warnings about settings and the rules that they name, or an error if the
// rules are wrong.
func lintConfig(cfg *config.Config) ([]warning.Warning, error) {
	list := lint.Settings(cfg)
	doc, err := rulesOf(cfg)
	if doc == nil || err != nil {
		return list, err
	}
	ladders, err := lint.LaddersOf(cfg)
	if err != nil {
		return list, err
	}
	return append(list, lint.Rules(doc, ladders)...), ladders.CheckWindows(doc)
}

// rulesOf returns the document of rules that settings name, or nil if they name none.
func rulesOf(cfg *config.Config) (*rules.Document, error) {
	switch {
	case cfg.RuleList != nil:
		return rules.ReadList(cfg.File, cfg.RuleList)
	case cfg.Rules == "":
		return nil, nil
	}
	text, err := os.ReadFile(cfg.Rules)
	if err != nil {
		return nil, fmt.Errorf("--rules: %w", err)
	}
	return rules.Read(cfg.Rules, text)
}

// printConfig prints settings to stdout, and the mistakes in them and in their rules to stderr. The
// rules may be in a file of another machine, where the settings are for.
func printConfig(cfg *config.Config, stdout, stderr io.Writer) error {
	list, err := lintConfig(cfg)
	for _, w := range list {
		fmt.Fprintln(stderr, "warning:", w)
	}
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(stderr, "the rules are not checked:", err)
		err = nil
	}
	return errors.Join(cfg.Print(stdout), err)
}
