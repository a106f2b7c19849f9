package main

import (
	"context"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/linelog"
	"twotier.dev/twotier/internal/version"
	"twotier.dev/twotier/internal/webhook"
)

// outputTimeout is the time limit for writing the last decisions and spans.
const outputTimeout = time.Second

// outlet is a part that writes or sends in the background: decisions, notifications or spans.
type outlet struct {
	open, reopen func() // nil if there is nothing to do
	// close sends the rest. If it is patient, it has as long as the last flush.
	close   func(ctx context.Context) error
	patient bool
	// lost is logged if close fails, which does not fail the stop.
	lost string
}

// addOutput adds an output and its metrics.
func (s *server) addOutput(web *httpapi.Options, metrics prometheus.Collector, o outlet) {
	web.Collectors = append(web.Collectors, metrics)
	s.outputs = append(s.outputs, o)
}

// openOutputs starts the outputs.
func (s *server) openOutputs() {
	for _, o := range s.outputs {
		if o.open != nil {
			o.open()
		}
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
		if err := o.close(by); err != nil {
			s.log.Warn(o.lost, "error", err)
		}
	}
}

// addDecisions makes the stream of decisions and its metrics, if configured.
func (s *server) addDecisions(web *httpapi.Options, stdout io.Writer) error {
	if s.cfg.Decisions == "" {
		return nil
	}
	opt := linelog.Options{Name: "decisions", Path: s.cfg.Decisions, Logger: s.log}
	if s.cfg.Decisions == config.Stdout {
		opt.Path, opt.Writer = "", stdout
	}
	lines, err := linelog.New(opt)
	if err != nil {
		return err
	}
	s.addOutput(web, lines, outlet{open: lines.Open, reopen: lines.Reopen, close: lines.Close,
		lost: "not everything was written"})
	stream := decisions.New(lines, s.cfg.Node, s.cfg.DecisionsSample, time.Now)
	for v, share := range s.cfg.DecisionsSample {
		if share > 0 {
			web.Verdicts.Send(stream.Record, twotier.Verdict(v))
		}
	}
	return nil
}

// addNotifier makes the notifier of warnings and its metrics, if configured.
func (s *server) addNotifier(web *httpapi.Options) error {
	if s.cfg.NotifyURL == "" {
		return nil
	}
	notifier, err := webhook.New(webhook.Options{URL: s.cfg.NotifyURL, Node: s.cfg.Node,
		Version: version.String(), Logger: s.log})
	if err != nil {
		return err
	}
	s.addOutput(web, notifier, outlet{open: notifier.Open, close: notifier.Close, patient: true,
		lost: "not every notification was sent"})
	web.Verdicts.Send(notifier.Record, twotier.Near, twotier.Refused, twotier.ShadowRefused)
	return nil
}
