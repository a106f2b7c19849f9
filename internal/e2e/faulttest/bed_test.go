package faulttest

import (
	"flag"
	"fmt"
	"testing"

	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/internal/testing/redistest"
)

var longFlag = flag.Bool("long", false, "run what takes long, too")

// program is the program under test, under the race detector if the tests are.
var program = proctest.NewProgram(fmt.Sprint("-race=", race.Enabled))

func TestMain(m *testing.M) { proctest.Main(m, program, 8) }

// measuresMemory skips a test under the race detector, which needs a multiple of the memory.
func measuresMemory(t *testing.T) {
	t.Helper()
	if race.Enabled {
		t.Skip("measures memory: make check runs it, without the race detector")
	}
}

// takesLong skips a test that waits for more than some ten seconds, unless -long is set.
func takesLong(t *testing.T) {
	t.Helper()
	if !*longFlag {
		t.Skip("takes long: make long runs it, with -long")
	}
}

// bed is a single node and its Redis, with a proxy between them.
type bed struct {
	*proctest.Cluster
	redis *redistest.Server // nil if it is not a single one
	proxy *faultproxy.Proxy // nil if there is none
	node  *proctest.Process
}

// newBed starts a Redis and a node behind a proxy.
func newBed(t *testing.T, opts []redistest.Option, args ...string) *bed {
	t.Helper()
	t.Parallel()
	server := redistest.Start(t, opts...)
	return bedOf(t, server, append([]string{"--redis-expiry", redistest.Expiry(t, server)},
		args...)...)
}

// bedOf starts a node with a proxy before the given Redis.
func bedOf(t *testing.T, server *redistest.Server, args ...string) *bed {
	t.Helper()
	return bedBehind(t, faultproxy.New(t, server.Addr()), server, args...)
}

// bedBehind is bedOf with the given proxy.
func bedBehind(t *testing.T, proxy *faultproxy.Proxy, server *redistest.Server,
	args ...string) *bed {
	t.Helper()
	b := newSingle(t, server, args...)
	b.redis, b.proxy, b.URL = server, proxy, "redis://"+proxy.Addr()
	b.restart()
	return b
}

// newSingle returns a bed without a proxy, whose node has not been started.
func newSingle(t *testing.T, r proctest.Redis, args ...string) *bed {
	t.Helper()
	return &bed{Cluster: proctest.NewCluster(t, program, r, nil,
		append([]string{"--redis-timeout", "1s"}, args...)...)}
}

// restart starts the node, or one in place of a node that has ended.
func (b *bed) restart() {
	b.T.Helper()
	b.node = b.Serve(0)
}

// settle is Settle for a single node, which never exceeds a limit.
func (b *bed) settle(fault string, loss int64) {
	b.T.Helper()
	if excess := b.Settle(fault, loss); excess > 0 {
		b.T.Errorf("%s: %d admitted over limits", fault, excess)
	}
}

// do sends a command to Redis and ends the test if it fails.
func (b *bed) do(args ...any) {
	b.T.Helper()
	if err := b.redis.Do(args...).Err(); err != nil {
		b.T.Fatalf("%v: %v", args, err)
	}
}

// unknowns returns the number of batches with unknown outcome, which had to be sent again.
func (b *bed) unknowns() int64 {
	b.T.Helper()
	return b.node.Metric("twotier_flush_batches_total", `result="unknown"`)
}

// failing returns the number of batches that failed.
func (b *bed) failing() int64 {
	b.T.Helper()
	return b.unknowns() + b.node.Metric("twotier_flush_batches_total", `result="refused"`)
}

// degraded waits until the node answers from memory alone, whatever the key: a partition notices by
// its own exchange that Redis is unreachable, all others when the store is declared down.
func (b *bed) degraded() {
	b.T.Helper()
	proctest.Until(b.T, "all partitions are degraded", func() bool {
		return b.node.Metric("twotier_degraded_partitions", "") == int64(b.Partitions)
	})
}
