package load

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Options says what to send. The zero value of a field stands for the default that it names, but
// URL is needed.
type Options struct {
	// URL is the server's, http or https.
	URL string
	// Token is what to present as a bearer; empty for none.
	Token string
	// TLS is for a URL with https; nil means the system's way.
	TLS *tls.Config
	// Op is "add" (default), "acquire" or "batch" (adds, Batch of them in a request).
	Op string
	// NS is the namespace, "default" if empty.
	NS string
	// Limits are what an acquire asks for, as JSON; by default 15 in 1m and 50 in 24h.
	Limits string
	// Keys is the number of different keys; 100,000 if 0.
	Keys int
	// Dist is how keys are drawn: "uniform" (default), "zipf" (exponent 1.1), "same" (one key),
	// "distinct" (each new).
	Dist string
	// Connections is the number of requests under way at most; 50 if 0.
	Connections int
	// Duration is how long to send; 10s if 0.
	Duration time.Duration
	// Timeout bounds each request; 5s if 0.
	Timeout time.Duration
	// Rate is the number of operations per second of an open loop; 0 means a closed loop.
	Rate float64
	// Batch is the number of operations in a request of a batch, 1 to 10,000; 1000 if 0.
	Batch int
	// Seed makes the keys drawn the same again.
	Seed uint64
	// Progress, if set, is called about once a second, from one goroutine.
	Progress func(Progress)
}

// Ops returns the values of [Options].Op.
func Ops() []string { return []string{"add", "acquire", "batch"} }

const (
	mostConnections = 10_000
	mostBatch       = 10_000
)

// fill sets the defaults and checks the rest.
func (o *Options) fill() error {
	orElse(&o.Op, "add")
	orElse(&o.Dist, "uniform")
	orElse(&o.Limits, `[{"window":"1m","max":15},{"window":"24h","max":50}]`)
	orElse(&o.Keys, 100_000)
	orElse(&o.Connections, 50)
	orElse(&o.Duration, 10*time.Second)
	orElse(&o.Timeout, 5*time.Second)
	orElse(&o.Batch, 1000)
	switch {
	case !slices.Contains(Ops(), o.Op):
		return fmt.Errorf("op %q: want one of %v", o.Op, Ops())
	case !slices.Contains(Dists(), o.Dist):
		return fmt.Errorf("dist %q: want one of %v", o.Dist, Dists())
	case o.Keys < 1:
		return fmt.Errorf("%d keys: want at least 1", o.Keys)
	case o.Connections < 1 || o.Connections > mostConnections:
		return fmt.Errorf("%d connections: want 1 to %d", o.Connections, mostConnections)
	case o.Batch < 1 || o.Batch > mostBatch:
		return fmt.Errorf("batch of %d: want 1 to %d", o.Batch, mostBatch)
	case o.Duration < 0 || o.Timeout < 0:
		return errors.New("duration and timeout: want more than 0")
	case !(o.Rate >= 0 && o.Rate <= 1e9):
		return fmt.Errorf("rate %g: want 0 to 1e9", o.Rate)
	}
	return nil
}

func orElse[T comparable](field *T, def T) {
	var zero T
	if *field == zero {
		*field = def
	}
}

// perRequest is the number of operations in a request.
func (o *Options) perRequest() int {
	if o.Op == "batch" {
		return o.Batch
	}
	return 1
}

// path is the call that is made.
func (o *Options) path() string { return "/v1/" + o.Op }
