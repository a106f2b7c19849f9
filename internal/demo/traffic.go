package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"twotier.dev/twotier/httpapi/client"
)

// The keys of the traffic, and the rule that judges logins.
const (
	// Key is counted through every node, between the other keys; see Stats.Counted.
	Key = "demo"
	// HotKey is hot from time to time.
	HotKey = "sale:42"
	// Users is the number of keys that are only counted.
	Users = 10_000
	// Addresses is the number of addresses that log in now and then.
	Addresses = 5000
	// Attacker is the address that tries passwords.
	Attacker = "ip:203.0.113.66"
	// Rule judges logins, and nothing else is counted in Namespace.
	Rule      = "login"
	Namespace = "logins"
)

// How often and for how long HotKey is hot. While it is hot it gets half of the events that would
// go to users.
const (
	hotEvery = 30 * time.Second
	hotFor   = 6 * time.Second
)

// attackEvery is the time between two logins of the attacker.
const attackEvery = 50 * time.Millisecond

// trafficTimeout bounds one event.
const trafficTimeout = 3 * time.Second

// Traffic is a source of events. Make one with [NewTraffic], start it with Open, stop it with
// Close.
type Traffic struct {
	nodes []*client.Client
	rate  int
	done  sync.WaitGroup
	stop  context.CancelFunc
	began time.Time

	mu    sync.Mutex
	stats Stats
}

// Stats is the outcome of the events so far.
type Stats struct {
	// Counted is the number of events of Key that nodes have acknowledged, and Uncertain the number
	// without an answer.
	Counted, Uncertain int64
	// Failed counts the requests that failed.
	Failed int64
	// Attacker and Others are the logins of the attacker and of the other addresses.
	Attacker, Others Logins
}

// Logins counts the answers to logins.
type Logins struct {
	// Allowed counts the allowed ones, of which the rule in shadow would have refused Shadow.
	Allowed, Refused, Shadow int64
}

// Clients returns a client of each of the nodes with these URLs, which calls only that node.
func Clients(servers []string) (list []*client.Client, err error) {
	for _, server := range servers {
		c, failed := client.New(client.Options{OnlyAddresses: true, Timeout: askTimeout,
			Addresses: []string{strings.TrimPrefix(server, "http://")}})
		list, err = append(list, c), errors.Join(err, failed)
	}
	return list, err
}

// NewTraffic returns traffic of rate events per second, without the attacker, over nodes with these
// [Clients]. It sends nothing yet.
func NewTraffic(nodes []*client.Client, rate int) *Traffic {
	return &Traffic{nodes: nodes, rate: rate}
}

// Open starts to send, over few connections per node, until Close is called or ctx is done.
func (t *Traffic) Open(ctx context.Context) {
	ctx, t.stop = context.WithCancel(ctx)
	t.began = time.Now()
	for node := range t.nodes {
		t.done.Go(func() { t.runSend(ctx, node) })
		t.done.Go(func() { t.runCount(ctx, node) })
	}
	t.done.Go(func() { t.runAttack(ctx) })
}

// Close stops sending and waits for the answers to requests in flight.
func (t *Traffic) Close() {
	if t.stop != nil {
		t.stop()
	}
	t.done.Wait()
}

// Stats returns the outcome of the events so far.
func (t *Traffic) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stats
}

// count adds one to a number of t.stats.
func (t *Traffic) count(n *int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*n++
}

// every calls fn at a rate until ctx is done. Calls that last longer are not made up for.
func every(ctx context.Context, pause time.Duration, fn func(now time.Time)) {
	ticker := time.NewTicker(max(pause, time.Microsecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			fn(now)
		}
	}
}

// pauseOf returns the time between two events of a share of the rate at each node.
func (t *Traffic) pauseOf(share int) time.Duration {
	return time.Second * time.Duration(len(t.nodes)*share) / time.Duration(t.rate)
}

// runSend sends one event after the other to one node.
func (t *Traffic) runSend(ctx context.Context, node int) {
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	users := rand.NewZipf(r, 1.1, 4, Users-1)
	every(ctx, t.pauseOf(1), func(now time.Time) {
		hot := now.Sub(t.began)%hotEvery > hotEvery-hotFor && r.IntN(2) == 0
		switch {
		case r.IntN(3) == 0:
			from := r.IntN(Addresses)
			address := fmt.Sprintf("ip:198.18.%d.%d", from/250, 1+from%250)
			t.logIn(ctx, node, address, &t.stats.Others)
		case hot:
			t.add(ctx, node, HotKey, client.AckMemory)
		default:
			t.add(ctx, node, fmt.Sprintf("user:%d", users.Uint64()), client.AckMemory)
		}
	})
}

// runCount counts Key through one node. It waits for the store, so that no count is lost with a
// node that is killed.
func (t *Traffic) runCount(ctx context.Context, node int) {
	every(ctx, t.pauseOf(10), func(time.Time) {
		if t.add(ctx, node, Key, client.AckRedis) {
			t.count(&t.stats.Counted)
		} else {
			t.count(&t.stats.Uncertain)
		}
	})
}

// runAttack has the attacker log in through one node after the other.
func (t *Traffic) runAttack(ctx context.Context) {
	node := 0
	every(ctx, attackEvery, func(time.Time) {
		node = (node + 1) % len(t.nodes)
		t.logIn(ctx, node, Attacker, &t.stats.Attacker)
	})
}

// add counts one event of a key.
func (t *Traffic) add(ctx context.Context, node int, key string, ack client.Ack) bool {
	return t.try(ctx, node, func(ctx context.Context, c *client.Client) error {
		_, err := c.Add(ctx, client.AddRequest{Key: key, Ack: ack})
		return err
	})
}

// logIn counts a login from an address if the rule allows it.
func (t *Traffic) logIn(ctx context.Context, node int, address string, into *Logins) {
	var a client.AcquireAnswer
	if !t.try(ctx, node, func(ctx context.Context, c *client.Client) (err error) {
		a, err = c.Acquire(ctx, client.AcquireRequest{
			Check: client.Check{Key: address, Rules: []string{Rule}}})
		return err
	}) {
		return
	}
	if !a.Allowed {
		t.count(&into.Refused)
		return
	}
	t.count(&into.Allowed)
	if slices.ContainsFunc(a.Limits, func(l client.LimitState) bool {
		return l.Refused && l.Shadow
	}) {
		t.count(&into.Shadow)
	}
}

// try reports whether a call of a node, or of the next one that can carry it out, succeeds. When
// ctx ends it still waits for the answer, because the event counts.
func (t *Traffic) try(ctx context.Context, node int,
	call func(context.Context, *client.Client) error) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), trafficTimeout)
	defer cancel()
	err := client.ErrUnavailable
	for i := 0; i < len(t.nodes) && errors.Is(err, client.ErrUnavailable); i++ {
		err = call(ctx, t.nodes[(node+i)%len(t.nodes)])
	}
	if err != nil {
		t.count(&t.stats.Failed)
	}
	return err == nil
}

// Ask returns a node's count of the events of [Key] in the last day.
func (t *Traffic) Ask(ctx context.Context, node int) (int64, error) {
	return count(ctx, t.nodes[node], Key)
}

// count returns a node's count of the events of a key in the last day.
func count(ctx context.Context, node *client.Client, key string) (int64, error) {
	a, err := node.Count(ctx, client.CountRequest{Key: key,
		Windows: []time.Duration{24 * time.Hour}})
	if err != nil {
		return 0, err
	}
	return a.Counts[0].Count, nil
}
