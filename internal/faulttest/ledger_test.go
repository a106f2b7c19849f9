package faulttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// outcome is what a client knows of a request.
type outcome uint8

const (
	acked outcome = iota
	refused
	unknown
)

// account is what was sent for one key, by outcome.
type account struct {
	sent, acked, failed, unknown int64
}

// ledger is what all workers sent and what came back.
type ledger struct {
	mu   sync.Mutex
	keys map[string]*account
	// answers counts requests with any outcome, events the acknowledged events.
	answers, events atomic.Int64
}

func newLedger() *ledger { return &ledger{keys: map[string]*account{}} }

func (l *ledger) of(key string) *account {
	a := l.keys[key]
	if a == nil {
		a = &account{}
		l.keys[key] = a
	}
	return a
}

func (l *ledger) sending(key string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(key).sent += n
}

func (l *ledger) note(key string, n int64, o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(key)
	switch o {
	case acked:
		a.acked += n
		l.events.Add(n)
	case refused:
		a.failed += n
	case unknown:
		a.unknown += n
	}
}

func (l *ledger) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.keys))
}

// totals returns A, U and what failed.
func (l *ledger) totals() (a, u, f int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.keys {
		a, u, f = a+k.acked, u+k.unknown, f+k.failed
	}
	return a, u, f
}

// writeOff takes what is missing for lost, and returns how much it is.
func (l *ledger) writeOff(counts map[string]int64) (lost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, a := range l.keys {
		d := max(0, a.acked-counts[key])
		a.acked, a.failed, lost = a.acked-d, a.failed+d, lost+d
	}
	return lost
}

// check compares what was counted with the ledger. It returns R, what is missing in all, and an error for a key that was
// counted too often, or if more is missing than may be.
func (l *ledger) check(counts map[string]int64, loss int64) (r, missing int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for key, a := range l.keys {
		n := counts[key]
		r += n
		missing += max(0, a.acked-n)
		if n > a.acked+a.unknown {
			errs = append(errs, fmt.Errorf("%s: counted %d, more than A %d + U %d", key, n, a.acked, a.unknown))
		}
		if n < a.acked && loss == 0 {
			errs = append(errs, fmt.Errorf("%s: counted %d, less than A %d", key, n, a.acked))
		}
	}
	if missing > loss {
		errs = append(errs, fmt.Errorf("%d missing, at most %d may be", missing, loss))
	}
	if len(errs) > 6 {
		errs = append(errs[:6], fmt.Errorf("and %d more", len(errs)-6))
	}
	return r, missing, errors.Join(errs...)
}

// The keys that traffic counts.
const (
	someKeys  = 300
	hotKey    = "hot"
	limitKeys = 10
	limit     = 40
)

func someKey() string { return fmt.Sprint("key-", rand.N(someKeys)) }

func limitKey() string { return fmt.Sprint("limited-", rand.N(limitKeys)) }

// traffic is workers that count until they are told to stop.
type traffic struct {
	t       testing.TB
	l       *ledger
	base    atomic.Pointer[string] // of the node; changes with a restart
	pause   time.Duration          // of a worker between two requests
	storing bool                   // every request waits for Redis
	http    *http.Client
	quit    chan struct{}
	running sync.WaitGroup
}

// start lets eight workers count: three anything, one the hot key, one in batches, one with ack redis, two acquire.
func (t *traffic) start(base string) *traffic {
	t.http, t.quit = newClient(), make(chan struct{})
	t.base.Store(&base)
	if t.pause == 0 {
		t.pause = 12 * time.Millisecond
	}
	add := func() { t.add(someKey(), 1+rand.Int64N(3), t.storing) }
	for _, work := range []func(){
		add, add, add,
		func() { t.add(hotKey, 1, t.storing) },
		func() { t.batch() },
		func() { t.add(someKey(), 1, true) },
		func() { t.acquire(limitKey(), t.storing) },
		func() { t.acquire(limitKey(), true) },
	} {
		t.running.Go(func() { t.runWorker(work) })
	}
	t.t.Cleanup(t.stop)
	return t
}

func (t *traffic) runWorker(work func()) {
	for {
		select {
		case <-t.quit:
			return
		case <-time.After(t.pause/2 + rand.N(t.pause)):
			work()
			t.l.answers.Add(1)
		}
	}
}

// stop lets the workers finish what they are doing.
func (t *traffic) stop() {
	select {
	case <-t.quit:
	default:
		close(t.quit)
	}
	t.running.Wait()
	t.http.CloseIdleConnections()
}

// pass waits until another n requests have been answered, in whatever way.
func (t *traffic) pass(n int64) {
	t.t.Helper()
	want := t.l.answers.Load() + n
	until(t.t, "traffic goes on", func() bool { return t.l.answers.Load() >= want })
}

// accept waits until another n events have been acknowledged.
func (t *traffic) accept(n int64) {
	t.t.Helper()
	want := t.l.events.Load() + n
	until(t.t, "counting goes on", func() bool { return t.l.events.Load() >= want })
}

func ackOf(store bool) string {
	if store {
		return "redis"
	}
	return "memory"
}

func (t *traffic) add(key string, n int64, store bool) outcome {
	t.l.sending(key, n)
	o, _ := t.send("/v1/add", fmt.Sprintf(`{"key":%q,"n":%d,"ack":%q}`, key, n, ackOf(store)))
	t.l.note(key, n, o)
	return o
}

func (t *traffic) acquire(key string, store bool) {
	t.l.sending(key, 1)
	o, body := t.send("/v1/acquire", fmt.Sprintf(`{"key":%q,"ack":%q,"limits":[{"window":"24h","max":%d}]}`, key, ackOf(store), limit))
	var a answer
	if o == acked && (json.Unmarshal(body, &a) != nil || !a.Allowed) {
		o = refused
	}
	t.l.note(key, 1, o)
}

func (t *traffic) batch() {
	keys := make([]string, 10)
	body := bytes.NewBufferString(`{"ops":[`)
	for i := range keys {
		keys[i] = someKey()
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(body, `{"op":"add","key":%q,"n":1,"ack":%q}`, keys[i], ackOf(t.storing))
		t.l.sending(keys[i], 1)
	}
	body.WriteString(`]}`)
	o, out := t.send("/v1/batch", body.String())
	var answers struct{ Results []answer }
	if o == acked && (json.Unmarshal(out, &answers) != nil || len(answers.Results) != len(keys)) {
		t.t.Errorf("answer to a batch: %s", out)
	}
	for i, key := range keys {
		of := o
		if o == acked && i < len(answers.Results) && answers.Results[i].Error != nil {
			of = refused
			if answers.Results[i].Error.Outcome == "unknown" {
				of = unknown
			}
		}
		t.l.note(key, 1, of)
	}
}

// send sends one request and says what is known of it.
func (t *traffic) send(path, body string) (outcome, []byte) {
	s := serving{t: t.t, base: *t.base.Load(), http: t.http}
	status, out, err := s.post(path, body)
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return refused, nil
	case err != nil:
		return unknown, nil
	case status == http.StatusOK:
		return acked, out
	}
	var problem answer
	if json.Unmarshal(out, &problem) != nil {
		t.t.Errorf("POST %s: %d %s", path, status, out)
	}
	if problem.Outcome == "unknown" {
		return unknown, out
	}
	return refused, out
}
