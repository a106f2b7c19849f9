package main

import (
	"context"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/otlp"
	"twotier.dev/twotier/internal/trace"
	"twotier.dev/twotier/internal/version"
)

// addSpans makes the exporter of spans, if configured.
func (s *server) addSpans(ctx context.Context, web *httpapi.Options) (err error) {
	if s.cfg.OTLPIgnored != nil {
		s.log.Warn("the environment names a collector that can't be used: it gets no spans",
			"error", s.cfg.OTLPIgnored)
	}
	if s.cfg.OTLPEndpoint == "" {
		return nil
	}
	s.spans, err = otlp.New(ctx, otlp.Options{Endpoint: s.cfg.OTLPEndpoint, Service: "twotier",
		Node: s.cfg.Node, Version: version.String(), Logger: s.log})
	if err != nil {
		return err
	}
	web.Tracer = s.spans
	web.Collectors = append(web.Collectors, s.spans)
	return nil
}

// tracer returns the recorder of spans, or nil.
func (s *server) tracer() trace.Tracer {
	if s.spans == nil {
		return nil
	}
	return s.spans
}

// closeSpans sends the remaining spans. A failure to do so does not fail the stop.
func (s *server) closeSpans() {
	if s.spans == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), outputTimeout)
	defer cancel()
	if err := s.spans.Close(ctx); err != nil {
		s.log.Warn("not every span was sent", "error", err)
	}
}
