package main

import (
	"context"
	"io"
	"time"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/linelog"
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

// openDecisions starts to write decisions.
func (s *server) openDecisions() {
	if s.decided != nil {
		s.decided.Open()
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
