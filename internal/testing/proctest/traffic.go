package proctest

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

// The keys of the traffic.
const (
	someKeys  = 300
	limitKeys = 10

	// HotKey is counted more often than any other key.
	HotKey = "hot"
	// LimitPrefix is the prefix of the keys that are acquired, at most Limit times in a day.
	LimitPrefix = "limited-"
	Limit       = 40
)

// SomeKey returns a random key for adds.
func SomeKey() string { return fmt.Sprint("key-", rand.N(someKeys)) }

func limitKey() string { return fmt.Sprint(LimitPrefix, rand.N(limitKeys)) }

// Traffic is a set of workers that count until they are stopped. Set the fields, then call To and
// Start.
type Traffic struct {
	T       testing.TB
	Ledger  *Ledger
	Pause   time.Duration // average pause of a worker between requests; default: 12 ms
	Storing bool          // every request waits for Redis
	// Retry makes requests that were certainly not carried out be sent again, to any node, as a
	// client would. They are given up after giveUp.
	Retry bool
	// GaveUp counts requests that were retried until giveUp had passed.
	GaveUp atomic.Int64

	bases   atomic.Pointer[[]string]
	http    *http.Client
	quit    chan struct{}
	running sync.WaitGroup
}

// giveUp is how long a request is retried.
const giveUp = 15 * time.Second

// To sends the traffic to the nodes with these base URLs from now on.
func (t *Traffic) To(bases ...string) *Traffic {
	t.bases.Store(&bases)
	return t
}

// Open prepares the traffic for Add and similar calls, without starting workers.
func (t *Traffic) Open() *Traffic {
	t.http, t.quit = NewClient(), make(chan struct{})
	if t.Pause == 0 {
		t.Pause = 12 * time.Millisecond
	}
	t.T.Cleanup(t.Stop)
	return t
}

// Start starts eight workers: three add to any key, one to the hot key, one in batches, one with
// ack=redis, and two acquire.
func (t *Traffic) Start() *Traffic {
	t.Open()
	add := func() { t.Add(SomeKey(), 1+rand.Int64N(3), t.Storing) }
	for _, work := range []func(){
		add, add, add,
		func() { t.Add(HotKey, 1, t.Storing) },
		func() { t.batch() },
		func() { t.Add(SomeKey(), 1, true) },
		func() { t.acquire(limitKey(), t.Storing) },
		func() { t.acquire(limitKey(), true) },
	} {
		t.Repeat(work)
	}
	return t
}

// Go runs a goroutine that Stop waits for.
func (t *Traffic) Go(worker func()) { t.running.Go(worker) }

// Repeat starts another worker, which calls work again and again until Stop.
func (t *Traffic) Repeat(work func()) { t.Go(func() { t.runWorker(work) }) }

func (t *Traffic) runWorker(work func()) {
	for {
		select {
		case <-t.quit:
			return
		case <-time.After(t.Pause/2 + rand.N(t.Pause)):
			work()
			t.Ledger.Answers.Add(1)
		}
	}
}

// Stop stops the workers and waits for their requests in flight. It may be called twice.
func (t *Traffic) Stop() {
	select {
	case <-t.quit:
	default:
		close(t.quit)
	}
	t.running.Wait()
	t.http.CloseIdleConnections()
}

// Pass waits until n more requests have ended, with any outcome.
func (t *Traffic) Pass(n int64) {
	t.T.Helper()
	want := t.Ledger.Answers.Load() + n
	Until(t.T, "traffic goes on", func() bool { return t.Ledger.Answers.Load() >= want })
}

// Accept waits until n more events have been acknowledged.
func (t *Traffic) Accept(n int64) {
	t.T.Helper()
	want := t.Ledger.Events.Load() + n
	Until(t.T, "counting goes on", func() bool { return t.Ledger.Events.Load() >= want })
}

func ackOf(store bool) string {
	if store {
		return "redis"
	}
	return "memory"
}

// Add adds to a key. With store it waits for Redis.
func (t *Traffic) Add(key string, n int64, store bool) Outcome {
	return t.AddAck(key, n, ackOf(store))
}

// AddAck is Add with the given value of ack.
func (t *Traffic) AddAck(key string, n int64, ack string) Outcome {
	t.Ledger.Sending(key, n)
	o := t.add(key, n, ack)
	t.Ledger.Note(key, n, o)
	return o
}

func (t *Traffic) add(key string, n int64, ack string) Outcome {
	o, _ := t.send("/v1/add", fmt.Sprintf(`{"key":%q,"n":%d,"ack":%q}`, key, n, ack))
	return o
}

func (t *Traffic) acquire(key string, store bool) {
	t.Ledger.Sending(key, 1)
	o, body := t.send("/v1/acquire",
		fmt.Sprintf(`{"key":%q,"ack":%q,"limits":[{"window":"24h","max":%d}]}`, key,
			ackOf(store), Limit))
	var a Answer
	if o == Acked && (json.Unmarshal(body, &a) != nil || !a.Allowed) {
		o = Refused
	}
	t.Ledger.Note(key, 1, o)
}

func (t *Traffic) batch() {
	keys := make([]string, 10)
	for i := range keys {
		keys[i] = SomeKey()
	}
	t.Batch(keys, ackOf(t.Storing))
}

// Batch adds one to each key in a single request with the given value of ack.
func (t *Traffic) Batch(keys []string, ack string) {
	body := bytes.NewBufferString(`{"ops":[`)
	for i := range keys {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(body, `{"op":"add","key":%q,"n":1,"ack":%q}`, keys[i], ack)
		t.Ledger.Sending(keys[i], 1)
	}
	body.WriteString(`]}`)
	o, out := t.send("/v1/batch", body.String())
	var answers struct{ Results []Answer }
	if o == Acked && (json.Unmarshal(out, &answers) != nil || len(answers.Results) != len(keys)) {
		t.T.Errorf("answer to a batch: %s", out)
	}
	for i, key := range keys {
		of := o
		if o == Acked && i < len(answers.Results) && answers.Results[i].Error != nil {
			switch {
			case answers.Results[i].Error.Outcome == "unknown":
				of = Unknown
			case t.Retry:
				of = t.add(key, 1, ack)
			default:
				of = Refused
			}
		}
		t.Ledger.Note(key, 1, of)
	}
}

// send sends a request, with retries if Retry is set, and returns its outcome and the answer.
func (t *Traffic) send(path, body string) (o Outcome, out []byte) {
	for by := time.Now().Add(giveUp); ; {
		bases := *t.bases.Load()
		o, out = t.once(bases[rand.N(len(bases))]+path, body)
		if o != Refused || !t.Retry {
			return o, out
		}
		if time.Now().After(by) {
			t.T.Logf("gave up: POST %s: %s", path, out)
			t.GaveUp.Add(1)
			return o, out
		}
		time.Sleep(5 * time.Millisecond) // back off, as a client does
	}
}

func (t *Traffic) once(url, body string) (Outcome, []byte) {
	status, out, err := post(t.http, url, body)
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return Refused, nil
	case err != nil:
		return Unknown, nil
	case status == http.StatusOK:
		return Acked, out
	}
	var problem Answer
	if json.Unmarshal(out, &problem) != nil {
		t.T.Errorf("POST %s: %d %s", url, status, out)
	}
	if problem.Outcome == "unknown" {
		return Unknown, out
	}
	return Refused, out
}

// Outcome is the state of a request as its client knows it.
type Outcome uint8

// The outcomes: the request was carried out, it certainly was not, or that is unknown.
const (
	Acked Outcome = iota
	Refused
	Unknown
)

// Account is the number of events that were sent for one key, in all and by outcome.
type Account struct {
	Sent, Acked, Failed, Unknown int64
}

// Ledger records the events that all workers sent, and their outcomes.
type Ledger struct {
	mu   sync.Mutex
	keys map[string]*Account
	// Answers counts requests with any outcome, and Events acknowledged events.
	Answers, Events atomic.Int64
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{keys: map[string]*Account{}} }

func (l *Ledger) of(key string) *Account {
	a := l.keys[key]
	if a == nil {
		a = &Account{}
		l.keys[key] = a
	}
	return a
}

// Sending records that n events are about to be sent.
func (l *Ledger) Sending(key string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(key).Sent += n
}

// Note records the outcome of n events.
func (l *Ledger) Note(key string, n int64, o Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(key)
	switch o {
	case Acked:
		a.Acked += n
		l.Events.Add(n)
	case Refused:
		a.Failed += n
	case Unknown:
		a.Unknown += n
	}
}

// Of returns the account of a key.
func (l *Ledger) Of(key string) Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.of(key)
}

// Names returns all keys, sorted.
func (l *Ledger) Names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.keys))
}

// Totals returns A, U and the number of failed events, over all keys.
func (l *Ledger) Totals() (a, u, f int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.keys {
		a, u, f = a+k.Acked, u+k.Unknown, f+k.Failed
	}
	return a, u, f
}

// WriteOff moves events that are acknowledged but missing from counts to failed, and returns their
// number.
func (l *Ledger) WriteOff(counts map[string]int64) (lost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, a := range l.keys {
		d := max(0, a.Acked-counts[key])
		a.Acked, a.Failed, lost = a.Acked-d, a.Failed+d, lost+d
	}
	return lost
}

// Check compares counts with the ledger. It returns R and the number of missing events over all
// keys. It returns an error if a key was counted too often, or if more than loss events are
// missing.
func (l *Ledger) Check(counts map[string]int64, loss int64) (r, missing int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for key, a := range l.keys {
		n := counts[key]
		r += n
		missing += max(0, a.Acked-n)
		if n > a.Acked+a.Unknown {
			errs = append(errs, fmt.Errorf("%s: counted %d, more than A %d + U %d", key, n, a.Acked,
				a.Unknown))
		}
		if n < a.Acked && loss == 0 {
			errs = append(errs, fmt.Errorf("%s: counted %d, less than A %d", key, n, a.Acked))
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
