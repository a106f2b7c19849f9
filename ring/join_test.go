package ring_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/simnet"
	"twotier.dev/twotier/ring"
)

// reluctant is a transport on which running seeds do not answer at first, like a machine whose
// kernel accepts connections for a process that stands still or is about to end.
type reluctant struct {
	memberlist.Transport
	until time.Time
	ends  bool // they hang up, rather than stand still
}

func (r *reluctant) DialTimeout(address string, timeout time.Duration) (net.Conn, error) {
	if time.Now().After(r.until) {
		return r.Transport.DialTimeout(address, timeout)
	}
	here, there := net.Pipe()
	go func() {
		if !r.ends {
			_, _ = io.Copy(io.Discard, there) // until the caller gives up
		}
		_ = there.Close()
	}()
	return &named{here, address}, nil
}

// named is a connection with an address for messages.
type named struct {
	net.Conn
	address string
}

func (n *named) RemoteAddr() net.Addr {
	at, _ := net.ResolveTCPAddr("tcp", n.address)
	return at
}

// notBefore makes the seeds of a node reluctant for a while, and logs to log.
func notBefore(after time.Duration, ends bool, log *bytes.Buffer) func(*ring.Options) {
	return func(o *ring.Options) {
		o.Transport = &reluctant{o.Transport, time.Now().Add(after), ends}
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
		o.Secret = []byte("right")
	}
}

// TestSlowSeedsDoNotRefuse starts a node while its seeds stand still for longer than memberlist
// waits, or hang up. It is a member when Open returns, and knows the others.
func TestSlowSeedsDoNotRefuse(t *testing.T) {
	for _, ends := range []bool{false, true} {
		for _, after := range []time.Duration{time.Second, 4 * time.Second, 10 * time.Second} {
			t.Run(fmt.Sprint(after, ends), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					v := newVillage(t, lan())
					v.startWithSecret(2)
					var log bytes.Buffer
					r, err := v.start(3, notBefore(after, ends, &log))
					must.Succeed(t, err)
					if n := r.Table().Len(); n != 3 {
						t.Errorf("it starts with %d members\n%s", n, log.String())
					}
				})
			})
		}
	}
}

func (v *village) startWithSecret(n int) {
	v.t.Helper()
	for i := 1; i <= n; i++ {
		_, err := v.start(i, func(o *ring.Options) { o.Secret = []byte("right") })
		must.Succeed(v.t, err)
	}
}

// TestSilentSeedsAreLookedForLater starts a node whose seeds stand still for minutes. It goes on
// without them, logs that, and joins them once they answer.
func TestSilentSeedsAreLookedForLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t, lan())
		v.startWithSecret(2)
		var log bytes.Buffer
		began := time.Now()
		_, err := v.start(3, notBefore(3*time.Minute, false, &log))
		must.Succeed(t, err)
		t.Log("it went on after", time.Since(began))
		if !strings.Contains(log.String(), "don't answer: continuing alone") {
			t.Error(log.String())
		}
		v.agree(5*time.Minute, 3, 1, 2, 3)
	})
}

// TestWhoHangsUpRefuses starts a node where another program listens at the address of its seed, and
// closes every connection.
func TestWhoHangsUpRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t, lan())
		v.startWithSecret(2)
		began := time.Now()
		_, err := v.start(3, notBefore(time.Hour, true, new(bytes.Buffer)))
		if !errors.Is(err, ring.ErrNotJoined) {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		t.Log("after", time.Since(began), err)
	})
}

// TestAWrongSecretIsToldBySlowSeeds starts a node with another secret while its seeds stand still.
func TestAWrongSecretIsToldBySlowSeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t, lan())
		v.startWithSecret(2)
		slow := notBefore(4*time.Second, false, new(bytes.Buffer))
		_, err := v.start(3, func(o *ring.Options) { slow(o); o.Secret = []byte("wrong") })
		if !errors.Is(err, ring.ErrNotJoined) {
			t.Error(err)
		}
	})
}

// TestAStartEndsWhileItWaits ends a start while the node waits for its seeds.
func TestAStartEndsWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t, lan())
		v.startWithSecret(2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := v.open(ctx, 3, notBefore(time.Hour, false, new(bytes.Buffer)))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// TestAStrangerDoesNotEndAStart has a node with another configuration contact one that starts, and
// whose seeds don't run. No member has refused the starting node, so it starts.
func TestAStrangerDoesNotEndAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t, simnet.Weather{Delay: 100 * time.Millisecond})
		// The host of the seed is cut off, so that contacting it takes three seconds.
		v.net.Split([]string{ip(1)}, []string{ip(2), ip(3)})
		opened := make(chan error)
		go func() {
			_, err := v.start(2, func(o *ring.Options) { o.Join = []string{seed(1)} })
			opened <- err
		}()
		time.Sleep(time.Second)
		stranger, err := ring.New(ring.Options{ID: "n3", Bind: seed(3), Join: []string{seed(2)},
			Agreement: ring.Agreement{Partitions: agreement.Partitions, Seed: 4},
			Transport: v.net.Start(ip(3)).Transport()})
		must.Succeed(t, err)
		if err := stranger.Open(t.Context(), ip(3)+":8080"); !errors.Is(err, ring.ErrRefused) {
			t.Errorf("the stranger: %v", err)
		}
		if err := <-opened; err != nil {
			t.Errorf("the other one: %v", err)
		}
		v.leave(stranger)
	})
}
