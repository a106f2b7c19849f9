package main

import (
	"log/slog"

	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/storeclock"
)

// addCounters makes the counters of events and of distinct values.
func (s *server) addCounters(opt *node.Options) (err error) {
	if s.cfg.Gossip != "" {
		opt.Pulse = elapsed.NewPulse(nil, s.clock.Now)
	}
	if opt.Counter, err = newCounter(s.cfg, s.store, s.clock, opt.Pulse, s.log); err == nil {
		opt.Distinct, err = newDistinct(s.cfg, s.store, s.clock, s.log)
	}
	return err
}

// newDistinct makes the counter of distinct values. Without Redis they are in memory alone.
func newDistinct(cfg config.Config, st stores, clock *storeclock.Clock,
	log *slog.Logger) (*distinct.Engine, error) {
	spaces := map[string]distinct.Namespace{}
	for name := range cfg.Namespaces {
		spaces[name] = distinct.Namespace{Ladder: st.ladders[name], OnCold: onColdOf(&cfg, name),
			MostValues: cfg.Namespaces[name].ExactValues}
	}
	opt := distinct.Options{
		Now: clock.Now, Placement: st.place, Namespaces: spaces, Ack: ackOf(cfg.Store),
		MaxMemory: distinctMemory(cfg.Store), FlushInterval: cfg.FlushInterval,
		Timeout: cfg.RedisTimeout, Logger: log,
	}
	if st.redis != nil {
		opt.Store = st.redis.Distinct()
	}
	return distinct.New(opt)
}
