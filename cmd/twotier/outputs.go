package main

import (
	"context"
	"io"
	"time"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/linelog"
	"twotier.dev/twotier/internal/verdicts"
	"twotier.dev/twotier/internal/version"
	"twotier.dev/twotier/internal/webhook"
)

// outputTimeout is the time limit for writing the last decisions and spans.
const outputTimeout = time.Second

// addDecisions makes the stream of decisions and its metrics, if configured.
func (s *server) addDecisions(web *httpapi.Options, stdout io.Writer) (err error) {
	if s.cfg.Decisions == "" {
		return nil
	}
	opt := linelog.Options{Name: "decisions", Path: s.cfg.Decisions, Logger: s.log}
	if s.cfg.Decisions == config.Stdout {
		opt.Path, opt.Writer = "", stdout
	}
	if s.decided, err = linelog.New(opt); err != nil {
		return err
	}
	web.Collectors = append(web.Collectors, s.decided)
	web.Decisions = decisions.New(s.decided, s.cfg.Node, s.cfg.DecisionsSample, time.Now)
	return nil
}

// addNotifier makes the notifier of warnings and its metrics, if configured.
func (s *server) addNotifier(web *httpapi.Options, counters *verdicts.Counters) (err error) {
	if s.cfg.NotifyURL == "" {
		return nil
	}
	s.notifier, err = webhook.New(webhook.Options{URL: s.cfg.NotifyURL, Node: s.cfg.Node,
		Version: version.String(), Logger: s.log})
	if err != nil {
		return err
	}
	web.Collectors = append(web.Collectors, s.notifier)
	counters.Crossings = s.notifier
	return nil
}

// closeNotifier sends the remaining notifications. A failure to do so does not fail the stop.
func (s *server) closeNotifier(ctx context.Context) {
	if s.notifier == nil {
		return
	}
	if err := s.notifier.Close(ctx); err != nil {
		s.log.Warn("not every notification was sent", "error", err)
	}
}

// openOutputs starts to write decisions and to send notifications.
func (s *server) openOutputs() {
	if s.decided != nil {
		s.decided.Open()
	}
	if s.notifier != nil {
		s.notifier.Open()
	}
}

// reopenDecisions opens the file of decisions again, which may have been renamed.
func (s *server) reopenDecisions() {
	if s.decided != nil {
		s.decided.Reopen()
	}
}

// closeDecisions writes the remaining lines. A failure to do so does not fail the stop.
func (s *server) closeDecisions() {
	if s.decided == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), outputTimeout)
	defer cancel()
	if err := s.decided.Close(ctx); err != nil {
		s.log.Warn("not everything was written", "error", err)
	}
}
