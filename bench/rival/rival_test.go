package rival_test

import (
	"errors"
	"testing"
	"time"

	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/testing/must"
)

// TestEveryRival: every rival starts, decides, also with many decisions in a call, reports its
// usage, and stops.
func TestEveryRival(t *testing.T) {
	env, err := rival.Build(t.Context(), t.TempDir())
	must.Succeed(t, err)
	limits := []limiter.Limit{{Window: 3_600_000, Max: 3}}
	now := time.Now().UnixMilli() // for all events, as an hour may turn meanwhile
	for _, rv := range rival.All() {
		t.Run(rv.Name, func(t *testing.T) {
			s, err := rv.Start(t.Context(), env)
			if errors.Is(err, limiter.ErrNotAvailable) {
				t.Skip(err)
			}
			must.Succeed(t, err)
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			before, err := s.Usage(t.Context())
			must.Succeed(t, err)
			admitted := 0
			for range 5 {
				ok, err := limiter.Ask(t.Context(), s, call("k", now, limits))
				must.Succeed(t, err)
				if ok {
					admitted++
				}
			}
			if rv.Name != "nothing" && admitted != 3 {
				t.Errorf("%d of 5 admitted", admitted)
			}
			batch(t, rv.Name, s, limits, now)
			if err := s.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			after, err := s.Usage(t.Context())
			if used := after.Since(before); err != nil || s.Redis != nil &&
				used.Redis.Commands == 0 {
				t.Errorf("%+v, %v", used, err)
			}
			if m, err := s.Footprint(t.Context()); err != nil || m.Service+m.Redis == 0 {
				t.Errorf("%+v, %v", m, err)
			}
		})
	}
}

func call(key string, ts int64, limits []limiter.Limit) limiter.Call {
	return limiter.At(ts, limiter.One(key, limits))
}

func batch(t *testing.T, name string, s *rival.Stand, limits []limiter.Limit, now int64) {
	calls := make([]limiter.Call, 6)
	for i := range calls {
		calls[i] = call("b", now, limits)
	}
	if n, err := s.Decide(t.Context(), calls); err != nil || name != "nothing" && n != 3 {
		t.Errorf("%d of 6 admitted in a batch, %v", n, err)
	}
}

func TestSelect(t *testing.T) {
	all := rival.All()
	some, err := rival.Select(all, []string{"incr-lua", "zset*"})
	if err != nil || len(some) != 3 || some[0].Name != "incr-lua" {
		t.Errorf("%v, %v", rival.Names(some), err)
	}
	if _, err := rival.Select(all, []string{"incr-lua", "none"}); err == nil {
		t.Error("an unknown name was taken")
	}
}
