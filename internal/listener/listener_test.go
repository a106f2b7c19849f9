package listener_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/testing/must"
)

// socket is a listener in memory. Accept returns a connection or an error of its channel.
type socket struct{ next chan any }

func (s socket) Accept() (net.Conn, error) {
	switch v := (<-s.next).(type) {
	case net.Conn:
		return v, nil
	case error:
		return nil, v
	}
	return nil, net.ErrClosed
}

func (s socket) Close() error { close(s.next); return nil }

func (socket) Addr() net.Addr { return &net.TCPAddr{} }

// conn is a connection that ends when its client does.
type conn struct{ *listener.Admitted }

// Drain implements [listener.Conn].
func (c conn) Drain(readBy time.Time) { c.LimitWrites(readBy) }

// open opens a listener with one connection for everybody.
func open(t *testing.T, log io.Writer, serve func(conn)) (*listener.Listener[conn], socket) {
	t.Helper()
	s := socket{make(chan any, 10)}
	l := listener.New(listener.Options[conn]{
		Sockets: []*listener.Socket{{Conns: listener.NewConns(1, 1)}},
		Make:    func(a *listener.Admitted) conn { return conn{a} },
		Serve:   serve,
		Reject:  func(why string) []byte { return []byte(why) },
		Logger:  slog.New(slog.NewTextHandler(log, nil)), Kind: "guests"})
	must.Succeed(t, l.OpenOn(t.Context(), s))
	return l, s
}

// echo serves a connection until it ends.
func echo(c conn) {
	_, _ = io.Copy(c.Conn, c.Conn)
	c.Close()
}

// TestConnectionsAreAcceptedAfterFailures lets Accept fail for a while, as without descriptors: it
// is logged once, and the next connection is served.
func TestConnectionsAreAcceptedAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l, s := open(t, &log, echo)
		for range 5 {
			s.next <- errors.New("too many open files")
		}
		near, far := net.Pipe()
		s.next <- far
		if _, err := io.WriteString(near, "a"); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "can't accept guests"); n != 1 {
			t.Errorf("logged %d times: %s", n, &log)
		}
		near.Close()
		must.Succeed(t, l.Close(t.Context()))
	})
}

// TestAnEndMakesRoom turns a second connection away with the reason, and serves a third one after
// the first has ended.
func TestAnEndMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := open(t, io.Discard, echo)
		var near [3]net.Conn
		for i, want := range []string{"", "too many connections to this node", ""} {
			var far net.Conn
			near[i], far = net.Pipe()
			s.next <- far
			synctest.Wait()
			if want != "" {
				if got, _ := io.ReadAll(near[i]); string(got) != want {
					t.Errorf("%d: %q, want %q", i, got, want)
				}
				near[0].Close()
				synctest.Wait()
			}
		}
		if n, live := l.Rejected(), len(l.Live()); n != 1 || live != 1 {
			t.Errorf("%d turned away, %d live", n, live)
		}
		near[2].Close()
		if err := l.Close(t.Context()); err != nil || len(l.Live()) != 0 {
			t.Errorf("%v, %d live", err, len(l.Live()))
		}
	})
}

// TestCloseCutsAfterItsTime closes with a connection that goes on: writes end at half of the time,
// and it is cut at the end.
func TestCloseCutsAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var unwritten time.Duration
		began := time.Now()
		l, s := open(t, io.Discard, func(c conn) {
			_ = c.SetWriteDeadline(time.Now().Add(time.Hour))
			_, _ = c.Conn.Write([]byte("nobody reads it"))
			unwritten = time.Since(began)
			echo(c)
		})
		_, far := net.Pipe()
		s.next <- far
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := l.Close(ctx)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) ||
			took != 10*time.Second || unwritten != 5*time.Second {
			t.Errorf("%v after %v, a write ended after %v", err, took, unwritten)
		}
		if err := l.Open(ctx); !errors.Is(err, listener.ErrOpened) {
			t.Errorf("opened after the end: %v", err)
		}
	})
}

// TestWaitersOfAClientAreServedInOrder: a large request that waits is not overtaken by small ones
// of its client, but by requests of others.
func TestWaitersOfAClientAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := listener.Account{Most: 100, Each: 60}
		greedy, other := a.NewShare(), a.NewShare()
		var mu sync.Mutex
		var served []string
		take := func(name string, s *listener.Share, n int64, wait time.Duration) {
			go func() {
				ok := s.Take(n, time.Now().Add(wait))
				mu.Lock()
				defer mu.Unlock()
				served = append(served, fmt.Sprint(name, " ", ok))
			}()
			synctest.Wait()
		}
		take("first", greedy, 50, time.Hour)
		take("large", greedy, 40, time.Hour)
		take("small", greedy, 5, time.Hour)
		take("brief", greedy, 5, time.Second)
		take("other", other, 50, time.Hour)
		time.Sleep(2 * time.Second)
		greedy.Release(50)
		synctest.Wait()
		slices.Sort(served[min(3, len(served)):]) // both are served at once
		want := []string{"first true", "other true", "brief false", "large true", "small true"}
		if !slices.Equal(served, want) {
			t.Errorf("%q, want %q", served, want)
		}
		if a.InUse() != 95 || a.HasWaiters() {
			t.Errorf("%d in use", a.InUse())
		}
	})
}

// TestAccountsStayWithinTheirBounds takes and returns at random, in many goroutines: no bound is
// exceeded, no waiter is forgotten, and nobody who gives up loses anything.
func TestAccountsStayWithinTheirBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := listener.Account{Most: 1000, Each: 600}
		clients := []*listener.Share{a.NewShare(), a.NewShare(), a.NewShare(), a.NewShare()}
		gone := make(chan struct{})
		var working sync.WaitGroup
		for i := range 40 {
			working.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 0))
				for range 200 {
					s, n := clients[random.IntN(len(clients))], 1+random.Int64N(400)
					by := time.Now().Add(time.Duration(random.IntN(20)) * time.Millisecond)
					if s.TakeUnless(gone, n, by) {
						if used := a.InUse(); used > a.Most {
							t.Errorf("%d in use", used)
						}
						time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
						s.Release(n)
					}
				}
			})
		}
		working.Wait()
		if a.InUse() != 0 || a.HasWaiters() || !clients[0].TryTake(a.Each) {
			t.Errorf("%d in use in the end", a.InUse())
		}
	})
}
