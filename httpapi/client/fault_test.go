package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/must"
)

// proxied starts nodes behind proxies, and a client that gives up late.
func proxied(t testing.TB, nodes int) (*bed, *client.Client) {
	b := newBed(t, 0)
	for range nodes {
		b.start(true)
	}
	b.settle()
	return b, b.client(func(o *client.Options) {
		o.Timeout, o.AttemptTimeout, o.Lanes = 10*time.Second, 200*time.Millisecond, 1
	})
}

// tally has the outcomes of adds to keys k0, k1 and so on.
type tally struct {
	acked, open []atomic.Int64
	refused     atomic.Int64 // certainly not counted
}

func newTally(keys int) *tally {
	return &tally{acked: make([]atomic.Int64, keys), open: make([]atomic.Int64, keys)}
}

// add counts an event of key i.
func (a *tally) add(t testing.TB, c *client.Client, i int) {
	_, err := c.Add(t.Context(), client.AddRequest{Key: fmt.Sprint("k", i)})
	switch {
	case err == nil:
		a.acked[i].Add(1)
	case errors.Is(err, client.ErrUnknownOutcome):
		a.open[i].Add(1)
	case errors.Is(err, client.ErrUnavailable):
		a.refused.Add(1)
	default:
		t.Error(err)
	}
}

// bounds returns the least and the largest count that key i may have.
func (a *tally) bounds(i int) (low, high int64) {
	return a.acked[i].Load(), a.acked[i].Load() + a.open[i].Load()
}

// batch occurs in each request with operations, and in no message between nodes.
const batch = "POST /v1/batch"

// TestLostRepliesNeverCountTwice loses answers to adds that were executed.
func TestLostRepliesNeverCountTwice(t *testing.T) {
	for name, lose := range map[string]func(*faultproxy.Proxy) <-chan struct{}{
		"hung up": func(p *faultproxy.Proxy) <-chan struct{} {
			return p.SwallowMatching(batch, 1, true)
		},
		"silent": func(p *faultproxy.Proxy) <-chan struct{} {
			return p.SwallowMatching(batch, 1, false)
		},
		"twice": func(p *faultproxy.Proxy) <-chan struct{} {
			return p.SwallowMatching(batch, 2, true)
		},
		"in the middle": func(p *faultproxy.Proxy) <-chan struct{} { return p.CutNext(batch, 40) },
	} {
		t.Run(name, func(t *testing.T) {
			b, c := proxied(t, 1)
			addOne(t, c, "a")
			lost := lose(b.nodes[0].proxy)
			if _, err := c.Add(t.Context(), client.AddRequest{Key: "a", N: 10}); err != nil {
				t.Error(err)
			}
			<-lost
			expect(t, c, "a", 11)
			if b.ops("add")["memory"] != 2 {
				t.Errorf("carried out: %v", b.ops("add"))
			}
			if c.Stats().Repeated == 0 {
				t.Error("nothing was sent again")
			}
		})
	}
}

// TestLostFirstReply loses the answer to the first request of a session.
func TestLostFirstReply(t *testing.T) {
	b, c := proxied(t, 2)
	for _, s := range b.nodes {
		s.proxy.SwallowMatching(batch, 1, true)
	}
	for i := range 20 {
		if _, err := c.Add(t.Context(), client.AddRequest{Key: fmt.Sprint("k", i)}); err != nil {
			t.Error(err)
		}
	}
	for i := range 20 {
		expect(t, c, fmt.Sprint("k", i), 1)
	}
}

// TestRepliesLostAtRandom loses a third of the answers of three nodes under load: acknowledged adds
// are counted once. Each answer is lost independently. If losses were timed, a request that waits
// for longer before it is sent again would never get an answer.
func TestRepliesLostAtRandom(t *testing.T) {
	b := newBed(t, 3)
	network := lossy{probability: 1. / 3}
	c := b.client(func(o *client.Options) {
		o.Timeout, o.AttemptTimeout, o.Lanes = 10*time.Second, 200*time.Millisecond, 1
		o.Dial = network.dial
	})
	network.losing.Store(true) // once the client has a table: it requests it only once per node
	var adding sync.WaitGroup
	const keys = 16
	adds := newTally(keys) // some are refused because no session could begin
	for i := range keys {
		adding.Go(func() {
			for range 25 {
				adds.add(t, c, i)
			}
		})
	}
	adding.Wait()
	if n := adds.refused.Load(); c.Stats().Repeated < 20 || n > 16*25/2 {
		t.Errorf("of 400, %d were refused, with %d answers lost: %+v", n, network.lost.Load(),
			c.Stats())
	}
	c = b.client(func(o *client.Options) {
		o.Addresses = []string{b.nodes[0].address}
		o.OnlyAddresses = true
		o.Timeout = 10 * time.Second
	})
	for i := range keys {
		low, high := adds.bounds(i)
		if n := counted(t, c, fmt.Sprint("k", i)); n < low || n > high {
			t.Errorf("k%d: counted %d, want %d to %d", i, n, low, high)
		}
		if high > low {
			t.Errorf("k%d: the outcome of %d is unknown though the node was there all the time", i,
				high-low)
		}
	}
}

// TestUnknownOutcomeIsSaid makes the node unreachable after it has counted, so that the client
// can't learn the outcome.
func TestUnknownOutcomeIsSaid(t *testing.T) {
	b, _ := proxied(t, 1)
	c := b.client(func(o *client.Options) {
		o.Timeout, o.AttemptTimeout, o.Lanes = 700*time.Millisecond, 100*time.Millisecond, 1
	})
	var err error
	for range 10 { // on a busy machine, a call may time out
		if _, err = c.Add(t.Context(), client.AddRequest{Key: "a"}); err == nil {
			break
		}
	}
	must.Succeed(t, err)
	before := b.ops("add")["memory"]
	p := b.nodes[0].proxy
	lost := p.SwallowMatching(batch, 1, true)
	p.Refuse()
	added := make(chan error, 1)
	go func() {
		_, err := c.Add(t.Context(), client.AddRequest{Key: "a"})
		added <- err
	}()
	select {
	case <-lost:
		err = <-added
	case err = <-added:
		t.Fatalf("%v, before an answer was lost", err)
	}
	if !errors.Is(err, client.ErrUnknownOutcome) {
		t.Errorf("the add: %v", err)
	}
	_, err = c.Count(t.Context(),
		client.CountRequest{Key: "a", Windows: []time.Duration{time.Minute}})
	if !errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrUnknownOutcome) {
		t.Errorf("the count: %v", err)
	}
	if n := b.ops("add")["memory"] - before; n != 1 {
		t.Errorf("%d adds were carried out", n)
	}
}

// TestAnotherProcessRefusesARepetition lets a new process take over the address between an attempt
// and its repetition.
func TestAnotherProcessRefusesARepetition(t *testing.T) {
	b, c := proxied(t, 1)
	addOne(t, c, "a")
	n := b.nodes[0]
	lost := n.proxy.SwallowMatching(batch, 1, true)
	n.proxy.Refuse() // until the node is back
	var restarted sync.WaitGroup
	restarted.Go(func() {
		<-lost
		n.restartHTTP(t)
		n.proxy.Pass()
	})
	_, err := c.Add(t.Context(), client.AddRequest{Key: "a"})
	restarted.Wait()
	if !errors.Is(err, client.ErrUnknownOutcome) {
		t.Error(err)
	}
	if _, err := c.Add(t.Context(), client.AddRequest{Key: "a"}); err != nil {
		t.Errorf("a new session: %v", err)
	}
	expect(t, c, "a", 3)
}

// TestRestartBetweenCalls goes unnoticed by callers: requests that were not executed are sent in a
// new session.
func TestRestartBetweenCalls(t *testing.T) {
	b := newBed(t, 1)
	c := b.client()
	for range 3 {
		if _, err := c.Add(t.Context(), client.AddRequest{Key: "a"}); err != nil {
			t.Error(err)
		}
		b.nodes[0].restartHTTP(t)
	}
	expect(t, c, "a", 3)
}

// TestReadsGoElsewhere loses the answer to a count for good: the client turns to another node.
func TestReadsGoElsewhere(t *testing.T) {
	b, c := proxied(t, 2)
	addOne(t, c, "a")
	for _, s := range b.nodes {
		if s.owns(b, "a") {
			s.proxy.SwallowMatching(batch, 1000, false)
		}
	}
	expect(t, c, "a", 1)
}

// TestOwnerOutOfReach makes a node unreachable for clients and nodes: others count in its place,
// and nothing is lost or counted twice. Requests in flight on connections that were cut may have an
// unknown outcome, for a node or for the client, and calls that waited behind them may fail undone.
func TestOwnerOutOfReach(t *testing.T) {
	b, _ := proxied(t, 3)
	c := b.client()
	const keys = 30
	outcomes := newTally(keys)
	adds := func() {
		var done sync.WaitGroup
		for i := range keys {
			done.Go(func() { outcomes.add(t, c, i) })
		}
		done.Wait()
	}
	down := b.nodes[1].proxy
	down.Refuse()
	down.CloseAll()
	adds()
	adds() // by now all nodes know
	down.Pass()
	adds()
	sum := int64(0)
	for i := range keys {
		key := fmt.Sprint("k", i)
		low, high := outcomes.bounds(i)
		sum += low
		b.until("the counts meet", func() bool {
			n := counted(t, c, key)
			return low <= n && n <= high
		})
	}
	if sum < 2*keys {
		t.Errorf("only %d of %d adds were acknowledged", sum, 3*keys)
	}
}

// TestNobodyThere fails at once, before the timeout.
func TestNobodyThere(t *testing.T) {
	c := newClient(t, client.Options{Addresses: []string{"127.0.0.1:1"}, Timeout: time.Hour})
	if _, err := c.Add(t.Context(), client.AddRequest{Key: "a"}); !errors.Is(err,
		client.ErrUnavailable) {
		t.Error(err)
	}
	if err := c.Refresh(t.Context()); err == nil {
		t.Error("a table from nobody")
	}
}

// TestAnswersOfAProxy: a proxy loses an answer and refuses the repetition, or reports that it has
// lost the node, with another status and text. Everything is counted once.
func TestAnswersOfAProxy(t *testing.T) {
	b := newBed(t, 1)
	address := faultproxy.Mishaps(t, b.nodes[0].reached())
	c := b.client(func(o *client.Options) {
		o.Addresses, o.OnlyAddresses = []string{address}, true
	})
	for _, key := range []string{"closed", "repeated", "reset", "gateway"} {
		for range 2 {
			addOne(t, c, key)
		}
		expect(t, c, key, 2)
	}
}

// TestValuesThatMayHaveBeenAdded: the first node does not answer, the next one refuses. The refusal
// is no evidence of the first one's outcome.
func TestValuesThatMayHaveBeenAdded(t *testing.T) {
	var asked atomic.Pointer[string] // the first node
	var refused atomic.Int32
	o := client.Options{OnlyAddresses: true, Timeout: time.Minute}
	for range 2 {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Twotier-Process", "p")
			text, _ := io.ReadAll(r.Body)
			switch {
			case !strings.Contains(string(text), "distinct"):
				return
			case asked.CompareAndSwap(nil, &r.Host), *asked.Load() == r.Host:
				panic(http.ErrAbortHandler)
			}
			refused.Add(1)
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"type":"urn:twotier:problem:overload","title":"full","status":429}`)
		}))
		defer s.Close()
		o.Addresses = append(o.Addresses, s.Listener.Addr().String())
	}
	c := newClient(t, o)
	_, err := c.Distinct(t.Context(), client.DistinctRequest{Key: "k", Values: []string{"a"}})
	if n := refused.Load(); !errors.Is(err, client.ErrUnknownOutcome) || n != 1 {
		t.Errorf("told %v after %d refusals, want that the outcome is unknown after 1", err, n)
	}
}
