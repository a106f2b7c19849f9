package main

import (
	"log/slog"

	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/syncer"
)

// newDistinct makes what counts distinct values. Without Redis they are in memory alone.
func newDistinct(cfg config.Config, st stores, clock *storeclock.Clock,
	log *slog.Logger) (*distinct.Engine, error) {
	spaces := map[string]distinct.Namespace{}
	for name, ladder := range st.ladders {
		spaces[name] = distinct.Namespace{Ladder: ladder,
			OnCold: syncer.OnCold(cfg.Namespaces[name].OnCold)}
	}
	opt := distinct.Options{
		Now: clock.Now, Placement: st.place, Namespaces: spaces, Ack: ackOf(cfg),
		MaxMemory: distinctMemory(cfg), FlushInterval: cfg.FlushInterval,
		Timeout: cfg.RedisTimeout, Logger: log,
	}
	if st.redis != nil {
		opt.Store = st.redis.Distinct()
	}
	return distinct.New(opt)
}
