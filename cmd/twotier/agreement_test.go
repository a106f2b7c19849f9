package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"twotier.dev/twotier/redisstore"
)

// fakeAgreement fails with its errors.
type fakeAgreement struct{ err, health error }

func (f fakeAgreement) EnsureAgreement(context.Context) error { return f.err }

func (f fakeAgreement) Health() redisstore.Health { return redisstore.Health{Err: f.health} }

// TestAnOlderSeedEndsTheServer wherever the store reports it: a flush that was under way may have
// set the health of the store right again.
func TestAnOlderSeedEndsTheServer(t *testing.T) {
	older := fmt.Errorf("probe: %w", redisstore.ErrOlderSeed)
	for name, test := range map[string]struct {
		store fakeAgreement
		ends  bool
	}{
		"agreed":          {fakeAgreement{}, false},
		"down":            {fakeAgreement{errors.New("down"), errors.New("down")}, false},
		"another setting": {fakeAgreement{redisstore.ErrMismatch, redisstore.ErrMismatch}, false},
		"returned":        {fakeAgreement{older, nil}, true},
		"in the health":   {fakeAgreement{nil, older}, true},
	} {
		s := &server{log: slog.New(slog.DiscardHandler)}
		if err := s.ensureAgreement(t.Context(), test.store); (err != nil) != test.ends ||
			test.ends && !errors.Is(err, redisstore.ErrOlderSeed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
