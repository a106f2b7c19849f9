package main

import (
	"context"
	"io"
	"math/rand/v2"
	"time"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/linelog"
	"twotier.dev/twotier/internal/trace"
)

// outputTimeout is the time limit for writing the last lines of all outputs.
const outputTimeout = time.Second

// addDecisions makes the stream of decisions, if configured.
func (s *server) addDecisions(web *httpapi.Options, stdout io.Writer) error {
	if s.cfg.Decisions == "" {
		return nil
	}
	to, err := s.addOutput(web, "decisions", "decisions", s.cfg.Decisions, stdout)
	if err != nil {
		return err
	}
	web.Decisions = decisions.New(to, s.cfg.Node, s.cfg.DecisionsSample, time.Now)
	return nil
}

// addAccessLog makes the access log, if configured.
func (s *server) addAccessLog(web *httpapi.Options, stdout io.Writer) error {
	if s.cfg.AccessLog == "" {
		return nil
	}
	to, err := s.addOutput(web, "access_log", "access-log", s.cfg.AccessLog, stdout)
	if err != nil {
		return err
	}
	web.AccessLog, web.AccessShare = to, s.cfg.AccessLogSample
	return nil
}

// logCalls returns a function that writes a sample of this node's work for other nodes, as parts of
// traces, to the access log.
func logCalls(to httpapi.Lines, share float64) func(*trace.Call) {
	return func(c *trace.Call) {
		if rand.Float64() < share {
			to.Add(c.Line())
		}
	}
}

// addOutput makes an output, and adds its metrics to the metrics of the HTTP API.
func (s *server) addOutput(web *httpapi.Options, name, flag, path string,
	stdout io.Writer) (*linelog.Log, error) {
	opt := linelog.Options{Name: name, Flag: flag, Path: path, Logger: s.log}
	if path == config.Stdout {
		opt.Path, opt.Writer = "", stdout
	}
	out, err := linelog.New(opt)
	if err != nil {
		return nil, err
	}
	s.outputs = append(s.outputs, out)
	web.Collectors = append(web.Collectors, out)
	return out, nil
}

// openOutputs starts to write the outputs.
func (s *server) openOutputs() {
	for _, out := range s.outputs {
		out.Open()
	}
}

// reopenOutputs opens the outputs' files again, which may have been renamed.
func (s *server) reopenOutputs() {
	for _, out := range s.outputs {
		out.Reopen()
	}
}

// closeOutputs writes the remaining lines. A failure to do so does not fail the stop.
func (s *server) closeOutputs() {
	ctx, cancel := context.WithTimeout(context.Background(), outputTimeout)
	defer cancel()
	for _, out := range s.outputs {
		if err := out.Close(ctx); err != nil {
			s.log.Warn("not everything was written", "error", err)
		}
	}
}
