package redistest

import (
	"context"
	"testing"
	"time"
)

const (
	// patience bounds everything that a healthy server does immediately. It is long because a
	// machine under load is slow.
	patience = 3 * time.Minute
	// commandTimeout bounds one command of the server's own client.
	commandTimeout = time.Minute
	interval       = 20 * time.Millisecond
)

// poll calls check until it returns nil. If ctx ends first, it returns the last error of check.
func poll(ctx context.Context, check func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// waitFor polls until check returns nil, and ends the test if that takes too long.
func waitFor(t testing.TB, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := poll(ctx, check); err != nil {
		t.Fatalf("redistest: %s: not within %v: %v", what, patience, err)
	}
}
