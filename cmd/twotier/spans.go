package main

import (
	"context"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/otlp"
	"twotier.dev/twotier/internal/version"
)

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
	s.addOutput(web, spans, outlet{close: spans.Close, lost: "not every span was sent"})
	s.tracer, web.Tracer = spans, spans
	return nil
}
