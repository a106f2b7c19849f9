package peer_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/hotkeys"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/simnet"
	"twotier.dev/twotier/ring"
)

// fake is a node that counts its requests.
type fake struct {
	mu    sync.Mutex
	seen  map[string]int // by key
	calls int
	delay time.Duration
	end   time.Duration // delay of its end once time is up
	err   error
}

// opsOf returns the operations of tasks.
func opsOf(tasks []rpc.Task) (ops []twotier.Op) {
	for i := range tasks {
		ops = append(ops, tasks[i].Op)
	}
	return ops
}

func (f *fake) ServeTasks(ctx context.Context, tasks []rpc.Task, res []twotier.Result) {
	f.Serve(ctx, opsOf(tasks), res)
}

func (f *fake) Serve(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	f.mu.Lock()
	f.calls++
	delay, end := f.delay, f.end
	f.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			time.Sleep(end)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range ops {
		key := string(ops[i].Checks[0].Key)
		f.seen[key]++
		res[i].Err = f.err
		res[i].Allowed, res[i].Source = true, twotier.SourceMemory
		c := res[i].AddCheck()
		for range ops[i].Checks[0].Limits {
			c.Limits = append(c.Limits,
				twotier.LimitResult{Count: int64(f.seen[key]), Lo: 1, Hi: 9, BucketMS: 1000})
		}
	}
}

func (f *fake) Respond(_ context.Context, request any) (any, error) {
	switch q := request.(type) {
	case *node.PingRequest:
		return nil, nil
	case *node.TopRequest:
		f.mu.Lock()
		delay := f.delay
		f.mu.Unlock()
		time.Sleep(delay)
		return &node.TopResponse{Keys: []twotier.KeyCount{{NS: "default", Key: "k",
				Count: q.Window}}},
			nil
	case *node.StatusRequest:
		return &cluster.Status{Keys: 5, Mode: cluster.Redis}, nil
	case *hotkeys.LeaseRequest:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.seen["spread"]++
		return &hotkeys.LeaseResponse{}, nil
	case *multiowner.OutcomeRequest:
		return nil, fmt.Errorf("%w: no such thing", twotier.ErrUnavailable)
	}
	return nil, fmt.Errorf("%T: not here", request)
}

// wire is a transport over a simulated host. Addresses are host addresses.
type wire struct{ h *simnet.Host }

func (w wire) Send(ctx context.Context, address string, message []byte) ([]byte, error) {
	reply, err := w.h.Call(ctx, address, message)
	if errors.Is(err, simnet.ErrRefused) {
		err = fmt.Errorf("%w: %w", rpc.ErrUnreachable, err)
	}
	return reply, err
}

// pair is a client on one host and a server on another.
type pair struct {
	t      *testing.T
	net    *simnet.Net
	client *peer.Client
	server *peer.Server
	to     *ring.Member
	fake   *fake
}

func newPair(t *testing.T, w simnet.Weather, clientSecret, serverSecret string) *pair {
	p := &pair{t: t, net: simnet.New(1, w), to: server}
	p.serve("b-1", serverSecret)
	t.Cleanup(p.net.Stop)
	p.client = newClient(t, peer.ClientOptions{Self: "a-1", Secret: []byte(clientSecret),
		Transport: wire{p.net.Start("a")}})
	return p
}

// serve starts a process on the server's host.
func (p *pair) serve(name, secret string) {
	p.fake = &fake{seen: map[string]int{}}
	p.serveNode(name, secret, p.fake)
}

// serveNode is serve with another node.
func (p *pair) serveNode(name, secret string, n peer.Local) {
	s := peer.NewServer(peer.ServerOptions{Self: name, Secret: []byte(secret), Node: n})
	p.server = s
	p.net.Start("b").Serve(func(request []byte) []byte {
		reply, err := s.Handle(context.Background(), request)
		if err != nil {
			return nil
		}
		return reply
	})
}

// add sends one operation about a key.
func (p *pair) add(key string, within time.Duration) error {
	return p.do(adding(key, twotier.Limit{Window: 60_000, Max: 5}), within)
}

// adding returns a task that adds to a key.
func adding(key string, limits ...twotier.Limit) rpc.Task {
	return rpc.Task{Op: twotier.Op{Kind: twotier.Add,
		Checks: []twotier.Check{{Key: []byte(key), N: 1, Limits: limits}}}}
}

// server is the process of the other side.
var server = &ring.Member{ID: "b", Name: "b-1", Address: "b"}

// meet makes the client learn the server's clock, as it does before the first task.
func (p *pair) meet() {
	p.t.Helper()
	must.Succeed(p.t, p.client.Ask(context.Background(), p.to, &node.PingRequest{}, nil))
}

// withPair runs a story of two processes that have met in a bubble.
func withPair(t *testing.T, story func(t *testing.T, p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, simnet.Weather{Delay: time.Millisecond}, "s", "s")
		p.meet()
		story(t, p)
	})
}

// newClient returns a client without a secret, which is closed when the test ends.
func newClient(t testing.TB, opt peer.ClientOptions) *peer.Client {
	t.Helper()
	c, err := peer.NewClient(opt)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// do runs a task at the server, with a deadline.
func (p *pair) do(task rpc.Task, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	res := make([]twotier.Result, 1)
	p.client.Do(ctx, p.to, []rpc.Task{task}, res)
	return res[0].Err
}

func secrets(t *testing.T, test func(t *testing.T, secret string)) {
	for _, secret := range []string{"", "a secret of all nodes"} {
		t.Run(fmt.Sprint("secret=", secret != ""),
			func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, secret) }) })
	}
}

func TestResultsComeBack(t *testing.T) {
	secrets(t, func(t *testing.T, secret string) {
		p := newPair(t, simnet.Weather{Delay: time.Millisecond}, secret, secret)
		limits := []twotier.Limit{{Window: 60_000, Max: 5}, {Window: 1000, Max: 2}}
		tasks := []rpc.Task{
			{Op: twotier.Op{Kind: twotier.Acquire, TS: -5, CountDenied: true,
				Checks: []twotier.Check{
					{NS: []byte("sms"), Key: []byte("k"), N: 3, Limits: limits},
					{Key: []byte("l"), N: 1, Limits: limits[:1]}}}},
			{Verb: rpc.VerbReserve, Acquire: rpc.AcquireID{Coordinator: "h", Number: 3},
				Decider: "d",
				Op: twotier.Op{Kind: twotier.Acquire,
					Checks: []twotier.Check{{Key: []byte("k"), N: 1, Limits: limits}}}},
			{Verb: rpc.VerbReset, Op: twotier.Op{Checks: []twotier.Check{{Key: []byte("k")}}}},
		}
		res := make([]twotier.Result, 3)
		p.client.Do(context.Background(), p.to, tasks, res)
		want := []twotier.LimitResult{
			{Window: 60_000, Max: 5, Count: 1, Lo: 1, Hi: 9, BucketMS: 1000},
			{Window: 1000, Max: 2, Count: 1, Lo: 1, Hi: 9, BucketMS: 1000}}
		if res[0].Err != nil || !res[0].Allowed ||
			!reflect.DeepEqual(res[0].Checks[0].Limits, want) {
			t.Errorf("%+v, want %+v", res[0], want)
		}
		if res[1].Err != nil || res[1].Checks[0].Limits[1].Count != 2 || res[2].Err != nil ||
			len(res[2].Checks[0].Limits) != 0 {
			t.Errorf("%+v %+v", res[1], res[2])
		}
	})
}

// TestAtMostOnce sends thousands of operations over a network that loses a seventh of all requests
// and replies.
func TestAtMostOnce(t *testing.T) {
	secrets(t, func(t *testing.T, secret string) {
		p := newPair(t, simnet.Weather{Delay: time.Millisecond, Jitter: 20 * time.Millisecond,
			CallLoss: 150}, secret, secret)
		var mu sync.Mutex
		outcomes := map[string]error{}
		var wg sync.WaitGroup
		for g := range 40 {
			wg.Go(func() {
				for i := range 25 {
					key := fmt.Sprint(g, "-", i)
					err := p.add(key, 3*time.Second)
					mu.Lock()
					outcomes[key] = err
					mu.Unlock()
					// Without a pause all operations would find the circuit open.
					time.Sleep(time.Duration(100+10*g) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Minute) // abandoned messages may still arrive
		kinds := map[string]int{}
		for key, err := range outcomes {
			n := p.fake.seen[key]
			switch {
			case err == nil:
				kinds["ok"]++
				if n != 1 {
					t.Errorf("%s: carried out %d times", key, n)
				}
			case errors.Is(err, rpc.ErrUnreachable):
				kinds["not sent"]++
				if n != 0 {
					t.Errorf("%s: said not to be sent, carried out %d times", key, n)
				}
			case errors.Is(err, twotier.ErrUnknownOutcome):
				kinds["unknown"]++
				if n > 1 {
					t.Errorf("%s: carried out %d times", key, n)
				}
			default:
				t.Errorf("%s: %v", key, err)
			}
		}
		t.Log(kinds, p.client.Stats())
		if kinds["ok"] < 100 || p.client.Stats().ResentTotal == 0 {
			t.Error("hardly anything was tried")
		}
	})
}

// TestWaitingCallsShareAMessage makes many calls while one is in flight.
func TestWaitingCallsShareAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, simnet.Weather{Delay: 10 * time.Millisecond}, "s", "s")
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				if err := p.add(fmt.Sprint(i), time.Second); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := p.client.Stats().MessagesTotal; n > 12 {
			t.Errorf("500 calls took %d messages", n)
		}
	})
}

// TestRefusedConnectionsAreKnownAtOnce detects refused connections at once, and the node's return,
// too.
func TestRefusedConnectionsAreKnownAtOnce(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		p.net.Start("b").Stop()
		began := time.Now()
		for range 10 {
			if err := p.add("a", time.Second); !errors.Is(err, rpc.ErrUnreachable) {
				t.Fatalf("%v", err)
			}
		}
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("ten refusals took %v", took)
		}
		p.serve("b-1", "s")
		time.Sleep(2 * time.Second)
		if err := p.add("a", time.Second); err != nil {
			t.Errorf("two seconds after it came back: %v", err)
		}
	})
}

// TestSilenceOpensTheCircuit cuts the network: the first callers get an unknown outcome, the others
// an error at once.
func TestSilenceOpensTheCircuit(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		p.net.Cut("b", "a", simnet.All)
		began := time.Now()
		var first error
		done := make(chan struct{})
		go func() { first = p.add("a", 2*time.Second); close(done) }()
		time.Sleep(1100 * time.Millisecond)
		if err := p.add("b", 2*time.Second); !errors.Is(err, rpc.ErrUnreachable) ||
			time.Since(began) > 1200*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		<-done
		if took := time.Since(began); !errors.Is(first, twotier.ErrUnknownOutcome) ||
			took > 2100*time.Millisecond {
			t.Errorf("after %v: %v", took, first)
		}
		if p.fake.seen["a"] != 1 || p.fake.seen["b"] != 0 {
			t.Errorf("carried out: %v", p.fake.seen)
		}
		if s := p.client.Stats(); !slices.Equal(s.Silent, []string{p.to.Name}) ||
			s.FailedTotal == 0 {
			t.Errorf("%+v", s)
		}
		p.net.Heal()
		time.Sleep(2 * time.Second)
		if err := p.add("c", time.Second); err != nil {
			t.Errorf("healed: %v", err)
		}
		if s := p.client.Stats(); len(s.Silent) > 0 {
			t.Errorf("healed: %+v", s)
		}
	})
}

// TestAShortSilenceIsWaitedOut heals the network while a message is being sent again.
func TestAShortSilenceIsWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, simnet.Weather{Delay: time.Millisecond}, "s", "s")
		p.net.Cut("b", "a", simnet.All)
		time.AfterFunc(time.Second, p.net.Heal)
		if err := p.add("a", 2*time.Second); err != nil || p.fake.seen["a"] != 1 {
			t.Errorf("%v, carried out %d times", err, p.fake.seen["a"])
		}
	})
}

// TestARestartedProcessRefuses messages for its predecessor.
func TestARestartedProcessRefuses(t *testing.T) {
	secrets(t, func(t *testing.T, secret string) {
		p := newPair(t, simnet.Weather{Delay: time.Millisecond}, secret, secret)
		must.Succeed(t, p.add("a", time.Second))
		p.serve("b-2", secret)
		if err := p.add("a", time.Second); !errors.Is(err, rpc.ErrUnreachable) ||
			len(p.fake.seen) != 0 {
			t.Errorf("%v, carried out: %v", err, p.fake.seen)
		}
		p.to = &ring.Member{ID: "b", Name: "b-2", Address: "b"}
		if err := p.add("a", time.Second); err != nil {
			t.Error(err)
		}
	})
}

func TestAnotherSecretIsRefused(t *testing.T) {
	for _, s := range [][2]string{{"right", "wrong"}, {"right", ""}, {"", "right"}} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, simnet.Weather{Delay: time.Millisecond}, s[0], s[1])
			if err := p.add("a", time.Second); err == nil || len(p.fake.seen) != 0 {
				t.Errorf("secrets %q and %q: %v, carried out: %v", s[0], s[1], err, p.fake.seen)
			}
		})
	}
}

// TestSecretsOverlap gives each side several secrets: a call succeeds if the server has the secret
// that the client seals with, because a reply is sealed with the secret of its message.
func TestSecretsOverlap(t *testing.T) {
	for _, tt := range []struct {
		client, server string
		want           bool
	}{
		{"old", "old,new", true}, {"old,new", "old", true}, {"new,old", "old,new", true},
		{"old,new", "new,old", true},
		{"new", "new,old", true}, {"new,old", "new", true}, {"x,y,new", "y,x,z", true},
		{"old", "new", false}, {"new,old", "old", false}, {"old,new", "new", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, simnet.Weather{Delay: time.Millisecond}, "first", "first")
			list := func(text string) (secrets [][]byte) {
				for s := range strings.SplitSeq(text, ",") {
					secrets = append(secrets, []byte(s))
				}
				return secrets
			}
			p.client.SetSecrets(list(tt.client))
			p.server.SetSecrets(list(tt.server))
			err := p.add("a", time.Second)
			if (err == nil) != tt.want || (len(p.fake.seen) == 1) != tt.want {
				t.Errorf("%s to %s: %v, carried out: %v", tt.client, tt.server, err, p.fake.seen)
			}
		})
	}
}

func TestErrorsKeepTheirKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, simnet.Weather{}, "", "")
		for _, want := range []error{
			twotier.ErrOverload, twotier.ErrFull, twotier.ErrUnavailable, twotier.ErrUnknownOutcome,
			twotier.ErrNotOwner,
		} {
			p.fake.err = fmt.Errorf("said: %w", want)
			if err := p.add("a", time.Second); !errors.Is(err, want) ||
				!strings.Contains(err.Error(), "said") {
				t.Errorf("%v became %v", want, err)
			}
		}
		p.fake.err = fmt.Errorf("said: %w", &twotier.RetryError{Err: twotier.ErrBehind,
			After: 2350 * time.Millisecond})
		if got := new(twotier.RetryError); !errors.As(p.add("a", time.Second), &got) ||
			got.After != 2350*time.Millisecond || !errors.Is(got, twotier.ErrOverload) ||
			!strings.Contains(got.Error(), "said") {
			t.Errorf("%v became %+v", p.fake.err, got)
		}
		p.fake.err = context.DeadlineExceeded
		if err := p.add("a", time.Second); !errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Errorf("a deadline there became %v", err)
		}
		invalid := &twotier.InvalidError{Check: 1, Limit: -1, Field: "ts", Detail: "no"}
		p.fake.err = invalid
		if got := new(twotier.InvalidError); !errors.As(p.add("a", time.Second), &got) ||
			*got != *invalid {
			t.Errorf("%+v became %+v", invalid, got)
		}
		moved := &rpc.MovedError{To: ring.Member{ID: "c", Name: "c-1", Address: "c:1", Born: 5,
			Tag: "t"}}
		p.fake.err = moved
		if got := new(rpc.MovedError); !errors.As(p.add("a", time.Second), &got) ||
			got.To != moved.To {
			t.Errorf("%+v became %+v", moved, got)
		}
		for _, other := range []error{invalid, moved, twotier.ErrNotOwner, rpc.ErrLate} {
			p.fake.err = errors.Join(other, twotier.ErrUnknownOutcome)
			if err := p.add("a", time.Second); !errors.Is(err, twotier.ErrUnknownOutcome) {
				t.Errorf("%v, of unknown outcome, became %v", other, err)
			}
		}
	})
}

func TestQuestions(t *testing.T) {
	secrets(t, func(t *testing.T, secret string) {
		p := newPair(t, simnet.Weather{Delay: time.Millisecond, CallLoss: 300}, secret, secret)
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				var top node.TopResponse
				if err := p.client.Ask(ctx, p.to, &node.TopRequest{Limit: 3, Window: int64(i)},
					&top); err != nil {
					if !errors.Is(err, twotier.ErrUnknownOutcome) {
						t.Error(err)
					}
				} else if len(top.Keys) != 1 || top.Keys[0].Count != int64(i) {
					t.Errorf("%+v", top)
				}
			})
		}
		wg.Wait()
		p.net.SetWeather(simnet.Weather{})
		var status cluster.Status
		if err := p.client.Ask(context.Background(), p.to, &node.StatusRequest{},
			&status); err != nil || status.Keys != 5 || status.Mode != cluster.Redis {
			t.Errorf("%+v, %v", status, err)
		}
		if err := p.client.Ask(context.Background(), p.to, &multiowner.OutcomeRequest{},
			nil); !errors.Is(err, twotier.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		if err := p.client.Ask(context.Background(), p.to, "what?", nil); err == nil {
			t.Error("that is no question")
		}
	})
}

// TestKeepLetsGo drops a member that is gone: waiting calls fail, and no goroutine is left.
func TestKeepLetsGo(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		p.net.Cut("a", "b", simnet.All)
		done := make(chan error, 1)
		go func() { done <- p.add("a", time.Hour) }()
		time.Sleep(100 * time.Millisecond)
		tab, err := ring.NewTable([]ring.Member{{ID: "a", Name: "a-1"}}, "a-1", 7, 0)
		must.Succeed(t, err)
		p.client.RetainLinks(tab)
		if err := <-done; !errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Errorf("%v", err)
		}
	})
}
