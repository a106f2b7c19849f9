package demo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The keys of the traffic.
const (
	// Key is counted through every node, between the other keys; see Stats.Counted.
	Key = "demo"
	// HotKey is hot from time to time.
	HotKey = "sale:42"
	// Users is the number of keys that are only counted.
	Users = 10_000
	// Phones is the number of keys that have limits.
	Phones = 200
)

// The limits of the phone keys, low enough that some are reached within a minute.
const limits = `[{"window":"1m","max":15},{"window":"24h","max":500}]`

// How often and for how long HotKey is hot. While it is hot it gets half of the events that would
// go to users.
const (
	hotEvery = 30 * time.Second
	hotFor   = 6 * time.Second
)

// Options configure a [Traffic]. The zero value of a field means its default.
type Options struct {
	// Servers are the URLs of the nodes. Required.
	Servers []string
	// Rate is the number of events per second, over all nodes. Default: 300.
	Rate int
	// Timeout bounds one request. Default: 3 s.
	Timeout time.Duration
}

// Traffic is a source of events. Make one with [New], start it with Open, stop it with Close.
type Traffic struct {
	opt    Options
	client *http.Client
	done   sync.WaitGroup
	stop   context.CancelFunc
	began  time.Time

	counted, allowed, refused, failed atomic.Int64
}

// Stats is the outcome of the events so far.
type Stats struct {
	// Counted is the number of events of Key that were certainly counted.
	Counted int64
	// Allowed and Refused count the answers to acquires, and Failed all requests that failed.
	Allowed, Refused, Failed int64
}

// New checks the options. It sends nothing.
func New(opt Options) (*Traffic, error) {
	opt.Rate = cmp.Or(opt.Rate, 300)
	opt.Timeout = cmp.Or(opt.Timeout, 3*time.Second)
	if len(opt.Servers) == 0 || opt.Rate < 1 || opt.Timeout < 0 {
		return nil,
			errors.New("demo: want Servers, a Rate of at least 1 and a Timeout of more than 0")
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 1}
	return &Traffic{opt: opt, client: &http.Client{Transport: transport, Timeout: opt.Timeout}}, nil
}

// Open starts to send, over one connection per node, until Close is called or ctx is done.
func (t *Traffic) Open(ctx context.Context) {
	ctx, t.stop = context.WithCancel(ctx)
	t.began = time.Now()
	for _, server := range t.opt.Servers {
		t.done.Go(func() { t.runSend(ctx, strings.TrimRight(server, "/")) })
	}
}

// Close stops sending and waits for the answers to requests in flight.
func (t *Traffic) Close() {
	if t.stop != nil {
		t.stop()
	}
	t.done.Wait()
	t.client.CloseIdleConnections()
}

// Stats returns the outcome of the events so far.
func (t *Traffic) Stats() Stats {
	return Stats{
		Counted: t.counted.Load(), Allowed: t.allowed.Load(), Refused: t.refused.Load(),
		Failed: t.failed.Load(),
	}
}

// runSend sends one event after the other to one node.
func (t *Traffic) runSend(ctx context.Context, server string) {
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	users, phones := rand.NewZipf(r, 1.1, 4, Users-1), rand.NewZipf(r, 1.2, 2, Phones-1)
	ticker := time.NewTicker(time.Second * time.Duration(len(t.opt.Servers)) / time.Duration(
		t.opt.Rate))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			hot := now.Sub(t.began)%hotEvery > hotEvery-hotFor && r.IntN(2) == 0
			switch n := r.IntN(10); {
			case n == 0:
				if t.add(ctx, server, Key) {
					t.counted.Add(1)
				}
			case n < 4:
				t.acquire(ctx, server, fmt.Sprintf("phone:%03d", phones.Uint64()))
			case hot:
				t.add(ctx, server, HotKey)
			default:
				t.add(ctx, server, fmt.Sprintf("user:%d", users.Uint64()))
			}
		}
	}
}

// add counts one event of a key.
func (t *Traffic) add(ctx context.Context, server, key string) bool {
	return t.post(ctx, server+"/v1/add", fmt.Sprintf(`{"key":%q}`, key), &struct{}{})
}

// acquire counts one event of a key if its limits allow it.
func (t *Traffic) acquire(ctx context.Context, server, key string) {
	var answer struct{ Allowed bool }
	switch ok := t.post(ctx, server+"/v1/acquire",
		fmt.Sprintf(`{"key":%q,"limits":%s}`, key, limits), &answer); {
	case ok && answer.Allowed:
		t.allowed.Add(1)
	case ok:
		t.refused.Add(1)
	}
}

// post reports whether a node has carried out a request. When ctx ends it still waits for the
// answer, because the event counts.
func (t *Traffic) post(ctx context.Context, address, body string, answer any) bool {
	request, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, address,
		bytes.NewReader([]byte(body)))
	if err != nil {
		t.failed.Add(1)
		return false
	}
	request.Header.Set("Content-Type", "application/json")
	if err = t.do(request, answer); err != nil {
		t.failed.Add(1)
	}
	return err == nil
}

// maxAnswer bounds an answer in bytes.
const maxAnswer = 64 << 10

func (t *Traffic) do(request *http.Request, answer any) error {
	response, err := t.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answered %s: %s", request.URL.Host, response.Status, body)
	}
	return json.Unmarshal(body, answer)
}

// Ask returns, for each node, its count of the events of [Key] in the last day.
func (t *Traffic) Ask(ctx context.Context) (counts []int64, err error) {
	defer t.client.CloseIdleConnections()
	for _, server := range t.opt.Servers {
		query := url.Values{"key": {Key}, "window": {"24h"}}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet,
			strings.TrimRight(server, "/")+"/v1/count?"+query.Encode(), nil)
		if err != nil {
			return nil, err
		}
		var answer struct{ Counts []struct{ Count int64 } }
		if err := t.do(request, &answer); err != nil {
			return nil, err
		}
		if len(answer.Counts) != 1 {
			return nil, fmt.Errorf("%s answered with %d counts, want 1", server, len(answer.Counts))
		}
		counts = append(counts, answer.Counts[0].Count)
	}
	return counts, nil
}
