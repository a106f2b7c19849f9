package proctest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Ordinary is a set of well-behaved clients that acquire one event after the other while other
// clients misbehave. They connect from a separate loopback address.
type Ordinary struct {
	t       testing.TB
	http    *http.Client
	stop    chan struct{}
	running sync.WaitGroup

	mu   sync.Mutex
	took []time.Duration
	bad  []string
}

// ordinaryClients is the number of clients, and ordinaryPause the pause of each between requests.
const (
	ordinaryClients = 4
	ordinaryPause   = 2 * time.Millisecond
)

// StartOrdinary starts the clients against a node. From now on the test's own requests to this node
// come from their address too. They run until [Ordinary.Stop].
func StartOrdinary(t testing.TB, node *Process) *Ordinary {
	t.Helper()
	o := &Ordinary{t: t, stop: make(chan struct{}), http: NewClient()}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	o.http.Transport.(*http.Transport).DialContext = dialer.DialContext
	node.HTTP = o.http
	for range ordinaryClients {
		o.running.Go(func() { o.runClient(node.Base + "/v1/acquire") })
	}
	return o
}

func (o *Ordinary) runClient(url string) {
	for {
		select {
		case <-o.stop:
			return
		case <-time.After(ordinaryPause):
		}
		body := fmt.Sprintf(
			`{"key":"user:%d","limits":[{"window":"1m","max":15},{"window":"24h","max":50}]}`,
			rand.IntN(100))
		begin := time.Now()
		status, answer, err := read(o.http.Post(url, "application/json", strings.NewReader(body)))
		o.note(time.Since(begin), status, answer, err)
	}
}

func (o *Ordinary) note(took time.Duration, status int, answer []byte, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.took = append(o.took, took)
	if err != nil || status != http.StatusOK {
		o.bad = append(o.bad, fmt.Sprint(status, " ", string(answer), err))
	}
}

// Answers waits until n more requests have been answered.
func (o *Ordinary) Answers(n int) {
	o.t.Helper()
	want := o.count() + n
	Until(o.t, fmt.Sprint(n, " ordinary requests are answered"),
		func() bool { return o.count() >= want })
}

func (o *Ordinary) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.took)
}

// Stop ends the clients and returns a line about their latencies. It fails the test if a request
// was refused, or if more than one in a hundred did not arrive in time: on a busy machine a client
// may stand still in the middle of its request for as long as a server waits.
func (o *Ordinary) Stop() string {
	o.t.Helper()
	close(o.stop)
	o.running.Wait()
	late := 0
	for _, what := range o.bad {
		if strings.HasPrefix(what, fmt.Sprint(http.StatusRequestTimeout, " ")) {
			late++
		}
	}
	if len(o.bad) > late || late*100 > len(o.took) {
		o.t.Errorf("%d of %d ordinary requests were not served: %s", len(o.bad), len(o.took),
			o.bad[0])
	}
	slices.Sort(o.took)
	at := func(share float64) time.Duration {
		return o.took[min(len(o.took)-1,
			int(share*float64(len(o.took))))].Round(10 * time.Microsecond)
	}
	if len(o.took) == 0 {
		return "no ordinary requests"
	}
	return fmt.Sprintf("%d ordinary requests: median %v, p99 %v, longest %v", len(o.took), at(0.5),
		at(0.99), at(1))
}
