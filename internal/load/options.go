package load

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Options configure [Run]. The zero value of each field is the documented default. URL is required.
type Options struct {
	// URL is the URL of the server, http or https.
	URL string
	// Token is the bearer token to present; empty means none.
	Token string
	// TLS is the configuration for an https URL; nil means the system's defaults.
	TLS *tls.Config
	// Op is "add" (default), "acquire" or "batch" (Batch adds in one request).
	Op string
	// NS is the namespace, "default" if empty.
	NS string
	// Limits are the limits of an acquire, as JSON; the default is 15 in 1m and 50 in 24h.
	Limits string
	// Keys is the number of different keys; 0 means 100,000.
	Keys int
	// Dist is the distribution of keys: "uniform" (default), "zipf" (exponent 1.1), "same" (one
	// key) or "distinct" (a new key each time).
	Dist string
	// Connections bounds the number of requests in flight; 0 means 50.
	Connections int
	// Duration is how long to send; 0 means 10s.
	Duration time.Duration
	// Timeout bounds each request; 0 means 5s.
	Timeout time.Duration
	// Rate is the number of operations per second of an open loop; 0 means a closed loop.
	Rate float64
	// Batch is the number of operations in one batch request, 1 to 10,000; 0 means 1000.
	Batch int
	// Seed seeds the random keys: the same seed draws the same keys.
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

// fill sets the defaults and checks the options.
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

// perRequest returns the number of operations in one request.
func (o *Options) perRequest() int {
	if o.Op == "batch" {
		return o.Batch
	}
	return 1
}

// path returns the path of the call.
func (o *Options) path() string { return "/v1/" + o.Op }
