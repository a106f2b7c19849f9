package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// loadOf returns a round that loads a key.
func loadOf(s *redisstore.Store, key string) *syncer.Round {
	return &syncer.Round{Partition: s.Partition(key), Writer: "w", Aside: true, ReadOnly: true,
		Keys: []syncer.KeyRound{{Key: []byte(key), Load: true}}}
}

// TestLateIsNotSilent loads keys whose answers do not come in time. The load is late if Redis
// answers other callers meanwhile.
func TestLateIsNotSilent(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := faultproxy.New(t, srv.Addr())
	s := open(t, redisstore.Options{URL: "redis://" + p.Addr(), Timeout: 500 * time.Millisecond})
	works(t, s)
	other, r := loadOf(s, "a"), loadOf(s, "b")
	lost, answered := p.SwallowMatching(s.Address("b"), 1, false), make(chan struct{})
	go func() {
		defer close(answered)
		send(t, s, r)
	}()
	<-lost
	for waiting := true; waiting; {
		send(t, s, other)
		select {
		case <-answered:
			waiting = false
		default:
		}
	}
	if !errors.Is(r.Err, syncer.ErrLate) {
		t.Errorf("others were answered: %v", r.Err)
	}
	p.Hang()
	if send(t, s, r); r.Err == nil || errors.Is(r.Err, syncer.ErrLate) {
		t.Errorf("in silence: %v", r.Err)
	}
	p.Refuse()
	p.CloseAll()
	for range 2 { // the first one finds the connection broken
		if send(t, s, r); r.Err == nil || errors.Is(r.Err, syncer.ErrLate) {
			t.Errorf("refused: %v", r.Err)
		}
	}
}

// TestBusyIsLate loads a key while Redis runs a script for too long.
func TestBusyIsLate(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, redisstore.Options{URL: srv.URL()})
	works(t, s)
	if err := srv.Do("CONFIG", "SET", "busy-reply-threshold", "1").Err(); err != nil {
		t.Skip(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Do("EVAL", "while true do end", "0")
	}()
	r := loadOf(s, "a")
	for send(t, s, r); r.Err == nil || errors.Is(r.Err, twotier.ErrUnknownOutcome); {
		send(t, s, r) // the script has not begun, or not run for long
	}
	if !errors.Is(r.Err, syncer.ErrLate) {
		t.Error(r.Err)
	}
	srv.Kill()
	<-done
}

// TestADeadNodeOfAClusterIsNotLate loads keys from two nodes, one of which hangs.
func TestADeadNodeOfAClusterIsNotLate(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	s := open(t, redisstore.Options{URL: c.URL(), Placement: twotier.Placement{Partitions: 64},
		Timeout: 500 * time.Millisecond})
	if err := probe(t, s); err != nil {
		t.Fatal(err)
	}
	hung := c.Owner(t, c.Slot(t, s.Address("a")))
	dead, living := loadOf(s, "a"), loadOf(s, "a")
	for i := 0; c.Owner(t, c.Slot(t, s.Address(string(living.Keys[0].Key)))) == hung; i++ {
		living = loadOf(s, fmt.Sprint("b", i))
	}
	if send(t, s, dead, living); dead.Err != nil || living.Err != nil {
		t.Fatal(dead.Err, living.Err)
	}
	hung.Pause()
	defer hung.Resume()
	if send(t, s, dead, living); living.Err != nil || dead.Err == nil ||
		errors.Is(dead.Err, syncer.ErrLate) {
		t.Errorf("%v, %v", dead.Err, living.Err)
	}
}
