package client_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/holds"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/peerhttp"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// bed is a cluster in this process, over one store.
type bed struct {
	t     testing.TB
	place twotier.Placement
	open  opener
	after []func() error // called when no node runs any more
	nodes []*server
}

// opener makes the store and Redis mode of a node, and a function that closes them.
type opener func(clock *storeclock.Clock) (syncer.Store, node.Direct, func() error)

// server is one node.
type server struct {
	id      string
	address string            // the node's
	proxy   *faultproxy.Proxy // in front of it, for clients and the other nodes
	counter *syncer.Counter
	ring    *ring.Ring
	peers   *peer.Client
	wires   *peerhttp.Transport
	node    *node.Node
	http    *httpapi.Server
	gone    bool
}

// health is the part of a store that a node needs in addition to counting.
type health struct{}

func (health) ClockAhead(context.Context, func() time.Time) (time.Duration, error) { return 0, nil }
func (health) Health() cluster.StoreHealth {
	return cluster.StoreHealth{Kind: "test", Up: true}
}

// newBed starts that many nodes over a store in this process.
func newBed(t testing.TB, nodes int) *bed {
	t.Helper()
	store := embedded.New(embedded.Options{})
	return newBedOver(t, nodes, func(*storeclock.Clock) (syncer.Store, node.Direct, func() error) {
		return store, nil, func() error { return nil }
	})
}

// newRedisBed starts that many nodes over Redis at an address.
func newRedisBed(t testing.TB, nodes int, url string) *bed {
	t.Helper()
	ladders := map[string]*leaparray.Ladder{twotier.DefaultNamespace: leaparray.Default()}
	place := twotier.Placement{Partitions: 97, Seed: 11}
	return newBedOver(t, nodes,
		func(clock *storeclock.Clock) (syncer.Store, node.Direct, func() error) {
			store, err := redisstore.New(redisstore.Options{
				URL: url, Placement: place, Ladders: ladders,
			})
			must.Succeed(t, err)
			must.Succeed(t, store.Probe(t.Context()))
			direct, err := redisstore.NewDirect(redisstore.DirectOptions{Store: store,
				Now: clock.Now, Writer: rand.Text()[:12]})
			must.Succeed(t, err)
			must.Succeed(t, direct.Open(t.Context()))
			return store, direct, func() error {
				return errors.Join(direct.Close(context.Background()), store.Close())
			}
		})
}

func newBedOver(t testing.TB, nodes int, open opener) *bed {
	t.Helper()
	b := &bed{t: t, place: twotier.Placement{Partitions: 97, Seed: 11}, open: open}
	t.Cleanup(b.close)
	for range nodes {
		b.start(false)
	}
	b.settle()
	return b
}

// close stops all nodes at the same time, without a handover.
func (b *bed) close() {
	var done sync.WaitGroup
	for _, s := range b.nodes {
		done.Go(func() {
			if err := s.stop(); err != nil {
				b.t.Error(err)
			}
		})
	}
	done.Wait()
	for _, f := range b.after {
		if err := f(); err != nil {
			b.t.Error(err)
		}
	}
}

// start starts one more node, optionally behind a proxy.
func (b *bed) start(proxied bool) *server {
	b.t.Helper()
	s := &server{id: fmt.Sprint("n", len(b.nodes))}
	clock := storeclock.New(nil, nil)
	store, direct, closed := b.open(clock)
	b.after = append(b.after, closed)
	var err error
	s.counter, err = syncer.New(syncer.Options{Store: store, Now: clock.Now, Placement: b.place,
		NotOwner: true})
	must.Succeed(b.t, err)
	var join []string
	for _, o := range b.nodes {
		if !o.gone {
			join = append(join, o.ring.Gossip())
		}
	}
	s.ring, err = ring.New(ring.Options{
		ID: s.id, Bind: "127.0.0.1:0", Join: join,
		Agreement: ring.Agreement{Partitions: b.place.Partitions, Seed: b.place.Seed},
		Tag:       modes.Tag(modes.TwoTier),
		OnChange:  func(t *ring.Table) { s.node.FollowTable(t) },
	})
	must.Succeed(b.t, err)
	s.wires = peerhttp.New(func(size int) string { return s.peers.Pass(size) })
	s.peers, err = peer.NewClient(peer.ClientOptions{Self: s.ring.Name(), Transport: s.wires})
	must.Succeed(b.t, err)
	s.node, err = node.New(node.Options{
		ID: s.id, Counter: s.counter, Direct: direct, Ring: s.ring, Peers: s.peers, Store: health{},
		Clock: clock, Placement: b.place,
	})
	must.Succeed(b.t, err)
	s.listen(b.t, "127.0.0.1:0")
	if proxied {
		s.proxy = faultproxy.NewRaw(b.t, s.address)
	}
	must.Succeed(b.t, s.node.Open(b.t.Context(), s.reached()))
	b.nodes = append(b.nodes, s)
	return s
}

// reached returns the address where others reach the node.
func (s *server) reached() string {
	if s.proxy != nil {
		return s.proxy.Addr()
	}
	return s.address
}

// leave stops the node the way the program does.
func (s *server) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(s.node.Drain(ctx), s.stop())
}

// stop stops the node without handing over. It may be called again.
func (s *server) stop() error {
	if s.gone {
		return nil
	}
	s.gone = true
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := errors.Join(s.http.Close(ctx), s.node.Close(ctx), s.peers.Close(ctx))
	s.wires.Close()
	return err
}

// settle waits until all nodes see the same members and hold the partitions that they own.
func (b *bed) settle() {
	b.t.Helper()
	live := 0
	for _, s := range b.nodes {
		if !s.gone {
			live++
		}
	}
	b.until("the nodes agree", func() bool {
		for _, s := range b.nodes {
			if s.gone {
				continue
			}
			v := s.node.Cluster()
			if len(v.Members) != live {
				return false
			}
			for _, m := range v.Members {
				if m.Self && m.Partitions != v.Held {
					return false
				}
			}
		}
		return true
	})
}

// until polls a condition.
func (b *bed) until(what string, ok func() bool) {
	b.t.Helper()
	for by := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(by) {
			b.t.Fatalf("never happened: %s", what)
		}
	}
}

// client returns a client that knows the table.
func (b *bed) client(change ...func(*client.Options)) *client.Client {
	b.t.Helper()
	// Generous timeouts: only tests that set them depend on time.
	o := client.Options{Timeout: time.Minute, AttemptTimeout: 20 * time.Second}
	for _, s := range b.nodes {
		if !s.gone {
			o.Addresses = append(o.Addresses, s.reached())
		}
	}
	for _, f := range change {
		f(&o)
	}
	c := newClient(b.t, o)
	// With short timeouts, an attempt may fail.
	b.until("the client has a table", func() bool { return c.Refresh(b.t.Context()) == nil })
	return c
}

// newClient returns a client that is closed at the end of the test.
func newClient(t testing.TB, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(o)
	must.Succeed(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		must.Succeed(t, c.Close(ctx))
	})
	return c
}

// noNode returns a client of an address that nobody listens at.
func noNode(t testing.TB) *client.Client {
	return newClient(t, client.Options{Addresses: []string{"127.0.0.1:1"}})
}

// addOne counts an event of a key.
func addOne(t testing.TB, c *client.Client, key string) {
	t.Helper()
	_, err := c.Add(t.Context(), client.AddRequest{Key: key})
	must.Succeed(t, err)
}

// ops returns the number of operations of a kind that the nodes have answered, by source, according
// to their metrics.
func (b *bed) ops(kind string) map[string]int64 {
	b.t.Helper()
	sum := map[string]int64{}
	for _, s := range b.nodes {
		if s.gone {
			continue
		}
		for line := range strings.Lines(s.metrics(b.t)) {
			rest, ok := strings.CutPrefix(line, `twotier_ops_total{op="`+kind+`",source="`)
			source, value, _ := strings.Cut(rest, `"} `)
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if ok && err == nil {
				sum[source] += n
			}
		}
	}
	return sum
}

func (s *server) metrics(t testing.TB) string {
	t.Helper()
	resp, err := http.Get("http://" + s.address + "/metrics")
	must.Succeed(t, err)
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	page, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	return string(page)
}

// counted returns the count of a key in the whole cluster, as one node reports it after everything
// is flushed.
func counted(t testing.TB, c *client.Client, key string) int64 {
	t.Helper()
	a, err := c.Count(t.Context(),
		client.CountRequest{Key: key, Windows: []time.Duration{time.Hour}})
	must.Succeed(t, err)
	return a.Counts[0].Max
}

// expect compares the count of a key with want.
func expect(t testing.TB, c *client.Client, key string, want int64) {
	t.Helper()
	if n := counted(t, c, key); n != want {
		t.Errorf("%.40q: counted %d, want %d", key, n, want)
	}
}

// owns reports whether the node owns a key.
func (s *server) owns(b *bed, key string) bool {
	return s.ring.Table().OwnedBySelf(b.place.Of(nil, []byte(key)))
}

// restartHTTP replaces the node's HTTP server at the same address: to clients this is another
// process.
func (s *server) restartHTTP(t testing.TB) {
	t.Helper()
	must.Succeed(t, s.http.Close(t.Context()))
	s.listen(t, s.address)
}

// listen serves the node over HTTP.
func (s *server) listen(t testing.TB, address string) {
	t.Helper()
	var err error
	s.http, err = httpapi.New(httpapi.Options{
		Service: s.node, Listen: address, Rules: someRules(), Holds: someHolds(t, s.node),
		RuleBook: noDocument(t), Backtester: s.node,
		Verdicts: s.node.Verdicts(),
		Peer:     peer.NewServer(peer.ServerOptions{Self: s.ring.Name(), Node: s.node}),
	})
	must.Succeed(t, err)
	must.Succeed(t, s.http.Open(t.Context()))
	s.address = s.http.Addr().String()
}

// someHolds returns the holds of a node, with the secret of all nodes of the tests.
func someHolds(t testing.TB, n *node.Node) *ask.Holds {
	now := func() int64 { return time.Now().UnixMilli() }
	h := &ask.Holds{Now: now, Tally: holds.Tally{Now: now}}
	h.Sealer.SetSecret([]byte("secret"))
	h.Open(n, nil, 0, slog.New(slog.DiscardHandler))
	t.Cleanup(h.Close)
	return h
}
