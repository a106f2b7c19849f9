package main

import (
	"context"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/decisionlog"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/otlp"
	"twotier.dev/twotier/internal/version"
	"twotier.dev/twotier/internal/webhook"
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

// addOutput adds an output and its metrics.
func (s *server) addOutput(web *httpapi.Options, o outlet) {
	web.Collectors = append(web.Collectors, o.queue)
	s.outputs = append(s.outputs, o)
}

// openOutputs starts the outputs.
func (s *server) openOutputs() {
	for _, o := range s.outputs {
		o.queue.Open()
	}
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
func (s *server) addDecisions(web *httpapi.Options, opt *node.Options, stdout io.Writer) error {
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
	s.addOutput(web, outlet{queue: lines, reopen: lines.Reopen, lost: "not everything was written"})
	opt.Sinks = append(opt.Sinks, lines)
	return nil
}

// addNotifier makes the notifier of warnings, if configured.
func (s *server) addNotifier(web *httpapi.Options, opt *node.Options) error {
	if s.cfg.NotifyURL == "" {
		return nil
	}
	notifier, err := webhook.New(webhook.Options{URL: s.cfg.NotifyURL, Node: s.cfg.Node,
		Version: version.String(), Logger: s.log})
	if err != nil {
		return err
	}
	s.addOutput(web, outlet{queue: notifier, lost: "not every notification was sent",
		patient: true})
	opt.Sinks = append(opt.Sinks, notifier)
	return nil
}

// addSpans makes the exporter of spans, if configured.
func (s *server) addSpans(ctx context.Context, web *httpapi.Options) error {
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
	s.addOutput(web, outlet{queue: spans, lost: "not every span was sent"})
	web.Tracer = spans
	return nil
}
