package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
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

// trafficTimeout bounds one request.
const trafficTimeout = 3 * time.Second

// Traffic is a source of events. Make one with [NewTraffic], start it with Open, stop it with
// Close.
type Traffic struct {
	client *client
	rate   int
	done   sync.WaitGroup
	stop   context.CancelFunc
	began  time.Time

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

// NewTraffic returns traffic of rate events per second, without the attacker, over the nodes with
// these URLs. It sends nothing yet.
func NewTraffic(servers []string, rate int) *Traffic {
	return &Traffic{client: newClient(servers, "", trafficTimeout), rate: rate}
}

// Open starts to send, over few connections per node, until Close is called or ctx is done.
func (t *Traffic) Open(ctx context.Context) {
	ctx, t.stop = context.WithCancel(ctx)
	t.began = time.Now()
	for node := range t.client.servers {
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
	t.client.close()
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
	return time.Second * time.Duration(len(t.client.servers)*share) / time.Duration(t.rate)
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
			t.add(ctx, node, HotKey, "memory")
		default:
			t.add(ctx, node, fmt.Sprintf("user:%d", users.Uint64()), "memory")
		}
	})
}

// runCount counts Key through one node. It waits for the store, so that no count is lost with a
// node that is killed.
func (t *Traffic) runCount(ctx context.Context, node int) {
	every(ctx, t.pauseOf(10), func(time.Time) {
		if t.add(ctx, node, Key, "redis") {
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
		node = (node + 1) % len(t.client.servers)
		t.logIn(ctx, node, Attacker, &t.stats.Attacker)
	})
}

// add counts one event of a key.
func (t *Traffic) add(ctx context.Context, node int, key, ack string) bool {
	return t.post(ctx, node, "/v1/add", fmt.Sprintf(`{"key":%q,"ack":%q}`, key, ack), &struct{}{})
}

// logIn counts a login from an address if the rule allows it.
func (t *Traffic) logIn(ctx context.Context, node int, address string, into *Logins) {
	type limit struct{ Refused, Shadow bool }
	var answer struct {
		Allowed bool
		Limits  []limit
	}
	if !t.post(ctx, node, "/v1/acquire", fmt.Sprintf(`{"key":%q,"rules":[%q]}`, address, Rule),
		&answer) {
		return
	}
	if !answer.Allowed {
		t.count(&into.Refused)
		return
	}
	t.count(&into.Allowed)
	if slices.ContainsFunc(answer.Limits, func(l limit) bool { return l.Refused && l.Shadow }) {
		t.count(&into.Shadow)
	}
}

// post reports whether a node has carried out a request. When ctx ends it still waits for the
// answer, because the event counts.
func (t *Traffic) post(ctx context.Context, node int, path, body string, answer any) bool {
	err := t.client.post(context.WithoutCancel(ctx), node, path, body, answer)
	if err != nil {
		t.count(&t.stats.Failed)
	}
	return err == nil
}

// Ask returns a node's count of the events of [Key] in the last day.
func (t *Traffic) Ask(ctx context.Context, node int) (int64, error) {
	defer t.client.close()
	return t.client.count(ctx, node, Key)
}

// maxAnswer bounds an answer in bytes.
const maxAnswer = 256 << 10

// client sends requests to the nodes.
type client struct {
	servers []string // without a slash at the end
	token   string   // for what not everybody may do; "" without
	http    *http.Client
}

func newClient(servers []string, token string, timeout time.Duration) *client {
	c := &client{token: token, http: &http.Client{Timeout: timeout,
		Transport: &http.Transport{MaxIdleConnsPerHost: 8}}}
	for _, server := range servers {
		c.servers = append(c.servers, strings.TrimRight(server, "/"))
	}
	return c
}

func (c *client) close() { c.http.CloseIdleConnections() }

// post has a node carry out a request or, if it refuses connections, the next node that does not.
func (c *client) post(ctx context.Context, node int, path, body string, answer any) (err error) {
	for i := range c.servers {
		at := (node + i) % len(c.servers)
		err = c.send(ctx, at, http.MethodPost, path, body, answer)
		if failed, ok := errors.AsType[*net.OpError](err); !ok || failed.Op != "dial" {
			return err
		}
	}
	return err
}

// send makes a request of a node and decodes the answer. The body is JSON, or YAML if the method is
// PUT.
func (c *client) send(ctx context.Context, node int, method, path, body string,
	answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, c.servers[node]+path,
		bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPut {
		request.Header.Set("Content-Type", "application/yaml")
		request.Header.Set("If-Match", "*")
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answered %s: %s", request.URL.Host, response.Status, text)
	}
	return json.Unmarshal(text, answer)
}

// count returns a node's count of the events of a key in the last day.
func (c *client) count(ctx context.Context, node int, key string) (int64, error) {
	query := url.Values{"key": {key}, "window": {"24h"}}
	var answer struct{ Counts []struct{ Count int64 } }
	err := c.send(ctx, node, http.MethodGet, "/v1/count?"+query.Encode(), "", &answer)
	if err == nil && len(answer.Counts) != 1 {
		err = fmt.Errorf("%s answered with %d counts, want 1", c.servers[node], len(answer.Counts))
	}
	if err != nil {
		return 0, err
	}
	return answer.Counts[0].Count, nil
}
