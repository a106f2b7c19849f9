// Package acceptance tests the promises of a whole node's API, over HTTP. It runs the same stories
// with counts in memory, in memory over Redis, and in Redis alone.
package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/holds"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// bed is a node that serves HTTP, and the clock that drives it.
type bed struct {
	t      *testing.T
	base   string
	mode   string
	expiry string       // how buckets leave Redis
	mono   atomic.Int64 // nanoseconds
	wall   time.Time
	now    func() int64 // the node's present time
	stop   func()       // stops the node; called at the end of the test as well
}

// kind is a way of keeping counts.
type kind struct{ mode, expiry string }

// kinds returns the testable kinds: in memory, and with each way of expiring buckets that this
// Redis supports.
func kinds(t *testing.T) []kind {
	list := []kind{{"embedded", "key"}}
	for _, expiry := range redistest.Expiries(t, redistest.Start(t)) {
		list = append(list, kind{"two-tier", expiry}, kind{"redis", expiry})
	}
	return list
}

// each runs a story with a node of every kind. A driven clock begins at a quarter of an hour and
// stands still.
func each(t *testing.T, driven bool, story func(t *testing.T, b *bed)) {
	eachOf(t, kinds(t), driven, story)
}

func eachOf(t *testing.T, kinds []kind, driven bool, story func(t *testing.T, b *bed)) {
	for _, k := range kinds {
		t.Run(k.mode+"/"+k.expiry, func(t *testing.T) {
			t.Parallel()
			story(t, start(t, k, driven))
		})
	}
}

// withBothClocks runs a story once with a driven clock and requests without ts, and once with the
// real clock and a ts in every request. The second run is left out where buckets expire by age,
// because old events are counted more coarsely there.
func withBothClocks(t *testing.T, story func(t *testing.T, b *bed, tl *timeline)) {
	t.Run("driven", func(t *testing.T) {
		each(t, true, func(t *testing.T, b *bed) { story(t, b, &timeline{b: b}) })
	})
	t.Run("ts", func(t *testing.T) {
		list := slices.DeleteFunc(kinds(t), func(k kind) bool { return k.expiry != "key" })
		eachOf(t, list, false, func(t *testing.T, b *bed) {
			story(t, b, &timeline{b: b, stamped: true})
		})
	})
}

// timeline is the time of a story: the time of the clock, or of the events.
type timeline struct {
	b       *bed
	stamped bool
	at      int64
}

// begin sets the time at which the story begins: a quarter of an hour. With a ts in every request,
// this is so long ago that the whole story, which takes at most lasts, is in the past.
func (tl *timeline) begin(lasts time.Duration) {
	quarter := (15 * time.Minute).Milliseconds()
	tl.at = tl.b.now() / quarter * quarter
	for tl.stamped && tl.at > tl.b.now()-lasts.Milliseconds() {
		tl.at -= quarter
	}
}

// to moves the time of the story to ms, in unix milliseconds.
func (tl *timeline) to(ms int64) {
	if !tl.stamped {
		tl.b.mono.Add((ms - tl.at) * int64(time.Millisecond))
	}
	tl.at = ms
}

// ts returns the field to add to a request, or "" if the node uses its clock.
func (tl *timeline) ts() string {
	if !tl.stamped {
		return ""
	}
	return fmt.Sprintf(`,"ts":%d`, tl.at)
}

// plainStore adapts the store to a node. Its clock is the driven one.
type plainStore struct{ kind string }

func (plainStore) ClockAhead(context.Context, func() time.Time) (time.Duration, error) {
	return 0, nil
}

func (s plainStore) Health() cluster.StoreHealth {
	return cluster.StoreHealth{Kind: s.kind, Up: true}
}

func start(t *testing.T, k kind, driven bool) *bed {
	t.Helper()
	mode := k.mode
	b := &bed{t: t, mode: mode, expiry: k.expiry,
		wall: time.UnixMilli(1_763_000_000_000 / 900_000 * 900_000)}
	clock := storeclock.New(nil, nil)
	if driven {
		clock = storeclock.New(func() time.Time { return b.wall },
			func() time.Duration { return time.Duration(b.mono.Load()) })
	}
	b.now = clock.Now
	opt := node.Options{ID: "acceptance", Clock: clock,
		Placement: twotier.Placement{Partitions: 97},
		Store:     plainStore{mode}}
	must := func(err error) {
		t.Helper()
		must.Succeed(t, err)
	}
	place := twotier.Placement{Partitions: 97}
	var store syncer.Store = embedded.New(embedded.Options{})
	if mode != "embedded" {
		store = b.redis(&opt, place, clock.Now)
	}
	if opt.Mode != cluster.Redis {
		c, err := syncer.New(syncer.Options{Store: store, Now: clock.Now, Placement: place,
			Namespaces: map[string]syncer.Namespace{"short": {Ladder: shortLadder(t)}}})
		must(err)
		opt.Counter = c
	}
	n, err := node.New(opt)
	must(err)
	must(n.Open(t.Context(), ""))
	server, err := httpapi.New(httpapi.Options{Service: n, Listen: "127.0.0.1:0",
		Rules: loginRule{}, Holds: holdsOf(t, n, clock.Now), TrustedProxies: loopback(),
		Verdicts:    n.Verdicts(),
		RateLimiter: envoy.NewLimiter(n, edgeDomain(t), n.Verdicts())})
	must(err)
	must(server.Open(t.Context()))
	b.base = "http://" + server.Addr().String()
	b.stop = sync.OnceFunc(func() {
		http.DefaultClient.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(b.stop)
	return b
}

// shortLadder returns the ladder of the namespace "short", which covers ten seconds.
func shortLadder(t *testing.T) *leaparray.Ladder {
	t.Helper()
	l, err := leaparray.NewLadder(1, leaparray.Level{Width: time.Second, Count: 10})
	must.Succeed(t, err)
	return l
}

// holdsOf returns the holds of a node, with a secret of the test's own.
func holdsOf(t *testing.T, n *node.Node, now func() int64) *ask.Holds {
	h := &ask.Holds{Now: now, Tally: holds.Tally{Now: now}}
	h.Sealer.SetSecret([]byte("secret"))
	h.Open(n, nil, 0, slog.New(slog.DiscardHandler))
	t.Cleanup(h.Close)
	return h
}

// leastPrivileged starts a Redis with a user that has only the documented permissions, and returns
// the URL with that user.
func (b *bed) leastPrivileged() string {
	b.t.Helper()
	server := redistest.Start(b.t)
	must.Succeed(b.t, server.Do(documentedUser(b.t, b.expiry)...).Err())
	return "redis://counter:a-long-password@" + server.Addr()
}

// documentedUser returns the command in SECURITY.md that makes a user of Redis, with the additional
// permissions of a way of expiring.
func documentedUser(t *testing.T, expiry string) (args []any) {
	t.Helper()
	_, line, ok := strings.Cut(must.Read(t, "../../../SECURITY.md"), "redis-cli ACL SETUSER ")
	if !ok {
		t.Fatal("SECURITY.md makes no user")
	}
	line, _, _ = strings.Cut(line, "```")
	for _, word := range strings.Fields("ACL SETUSER " + line) {
		if word != `\` {
			args = append(args, strings.Trim(word, "'"))
		}
	}
	return append(args, map[string][]any{"field": {"+hpexpire"}, "tairhash": {"+exhdel", "+exhget",
		"+exhgetall", "+exhlen", "+exhmget", "+exhpexpire", "+exhset"}}[expiry]...)
}

// redis starts a Redis and makes the stores that use it.
func (b *bed) redis(opt *node.Options, place twotier.Placement, now func() int64) syncer.Store {
	b.t.Helper()
	store, err := redisstore.New(redisstore.Options{
		URL: b.leastPrivileged(), Placement: place, Expiry: redisstore.Expiry(b.expiry),
		Ladders: map[string]*leaparray.Ladder{twotier.DefaultNamespace: leaparray.Default(),
			"short": shortLadder(b.t)},
	})
	must.Succeed(b.t, err)
	direct, err := redisstore.NewDirect(redisstore.DirectOptions{Store: store, Now: now,
		Writer: "direct"})
	if err == nil {
		err = direct.Open(b.t.Context())
	}
	must.Succeed(b.t, err)
	b.t.Cleanup(func() {
		if err := direct.Close(context.Background()); err != nil {
			b.t.Error(err)
		}
		if err := store.Close(); err != nil {
			b.t.Error(err)
		}
	})
	opt.Direct = direct
	if b.mode == "redis" {
		opt.Mode = cluster.Redis
	}
	return store
}

// answer is any answer of the API.
type answer struct {
	Key         string
	Allowed     bool
	Over        bool
	Counts      []figure
	Limits      []figure
	Checks      []answer
	RefusedBy   []string `json:"refused_by"`
	RetryAfter  int64    `json:"retry_after_ms"`
	Source      string
	Keys        []figure
	Results     []answer
	Error       *answer
	Detail      string
	ID          string
	Hold        string
	Until       int64
	Open        int64
	NextEnd     int64       `json:"next_end_ms"`
	Status      int         `json:"-"`
	Header      http.Header `json:"-"`
	ProblemType string      `json:"type"`
}

type figure struct {
	Key             string
	Window          string
	Count, Min, Max int64
	Remaining       int64
	Concurrent      int64
	Open            int64
	Refused         bool
	Rule            string
	Shadow          bool
}

// post sends a body and decodes the answer, whatever its status.
func (b *bed) post(path, body string) answer {
	b.t.Helper()
	resp, err := http.Post(b.base+path, "application/json", bytes.NewReader([]byte(body)))
	return b.read(resp, err, body)
}

func (b *bed) get(path string, query ...string) answer {
	b.t.Helper()
	v := url.Values{}
	for i := 0; i < len(query); i += 2 {
		v.Set(query[i], query[i+1])
	}
	resp, err := http.Get(b.base + path + "?" + v.Encode())
	return b.read(resp, err, path)
}

func (b *bed) read(resp *http.Response, err error, what string) (a answer) {
	b.t.Helper()
	must.Succeed(b.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(body, &a)
	}
	if err != nil {
		b.t.Fatalf("%s: %d %q: %v", what, resp.StatusCode, body, err)
	}
	a.Status, a.Header = resp.StatusCode, resp.Header
	return a
}

// ok is post, but fails the test unless the status is 200.
func (b *bed) ok(path, body string) answer {
	b.t.Helper()
	a := b.post(path, body)
	if a.Status != http.StatusOK {
		b.t.Fatalf("%s %s: %d %s", path, body, a.Status, a.Detail)
	}
	return a
}

// count returns the count of a window that ends now, or at a given time.
func (b *bed) count(key, window string, at ...int64) figure {
	b.t.Helper()
	query := []string{"key", key, "window", window}
	if len(at) > 0 {
		query = append(query, "at", fmt.Sprint(at[0]))
	}
	a := b.get("/v1/count", query...)
	if a.Status != http.StatusOK || len(a.Counts) != 1 {
		b.t.Fatalf("count %v: %d %s", query, a.Status, a.Detail)
	}
	return a.Counts[0]
}
