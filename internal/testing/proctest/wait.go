package proctest

import (
	"errors"
	"testing"
	"time"
)

// Patience bounds everything that a healthy system does soon. It is long because the machine may be
// busy.
const Patience = 3 * time.Minute

// Until polls until the condition holds. It ends the test if that takes longer than Patience.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	UntilNil(t, what, func() error {
		if !holds() {
			return errors.New("not yet")
		}
		return nil
	})
}

// UntilNil polls until check returns nil. It ends the test if that takes longer than Patience.
func UntilNil(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, Patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Wait waits for a channel to be closed. It ends the test if that takes longer than Patience.
func Wait(t testing.TB, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(Patience):
		t.Fatalf("%s: not within %v", what, Patience)
	}
}
