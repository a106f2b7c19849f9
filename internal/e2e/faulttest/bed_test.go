package faulttest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// bed is a node with its Redis, and the ledger of the traffic.
type bed struct {
	t     *testing.T
	redis *redistest.Server // nil if it is not a single one
	proxy *faultproxy.Proxy // between the two, nil if there is none
	node  *proctest.Process
	l     *proctest.Ledger
	args  []string
	parts int
	// direct makes a client that connects to Redis without the proxy.
	direct func() redis.UniversalClient
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
	proxy := faultproxy.New(t, server.Addr())
	b := &bed{t: t, redis: server, proxy: proxy}
	b.open("redis://"+proxy.Addr(), func() redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: server.Addr()})
	}, args...)
	return b
}

// open starts the node.
func (b *bed) open(url string, direct func() redis.UniversalClient, args ...string) {
	b.t.Helper()
	b.l, b.parts, b.direct = proctest.NewLedger(), twotier.DefaultPartitions, direct
	for i, a := range args {
		if a == "--partitions" {
			b.parts, _ = strconv.Atoi(args[i+1])
		}
	}
	b.args = append([]string{"--redis", url, "--redis-timeout", "1s"}, args...)
	b.node = program.Serve(b.t, proctest.Options{}, b.args...)
}

// hash is the name of the Hash of a key.
func (b *bed) hash(key string) string { return proctest.Hash(b.parts, key) }

func (b *bed) traffic() *proctest.Traffic {
	return (&proctest.Traffic{T: b.t, Ledger: b.l}).To(b.node.Base).Start()
}

// restart starts a node in place of one that has ended.
func (b *bed) restart() {
	b.t.Helper()
	b.node = program.Serve(b.t, proctest.Options{}, b.args...)
}

// stored returns the counts of the keys in Redis.
func (b *bed) stored(keys []string) (map[string]int64, error) {
	client := b.direct()
	defer client.Close()
	return proctest.Stored(client, b.parts, keys)
}

// settle waits until nothing is pending and checks the ledger against the counts of the node and of
// Redis. An idle node may take some seconds to notice that Redis has lost data, so settle asks more
// than once.
func (b *bed) settle(fault string, loss int64) {
	b.t.Helper()
	b.node.Flushed()
	keys := b.l.Names()
	var r, missing int64
	proctest.UntilNil(b.t, fault, func() error {
		told, err := b.node.Counted(keys)
		if err != nil {
			return err
		}
		held, err := b.stored(keys)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if told[key] != held[key] {
				return fmt.Errorf("%s: the node says %d, Redis holds %d", key, told[key], held[key])
			}
		}
		r, missing, err = b.l.Check(held, loss)
		for _, key := range keys {
			if strings.HasPrefix(key, proctest.LimitPrefix) && held[key] > proctest.Limit {
				err = errors.Join(err,
					fmt.Errorf("%s: %d admitted, the limit is %d", key, held[key], proctest.Limit))
			}
		}
		return err
	})
	a, u, f := b.l.Totals()
	b.t.Logf("ledger: %s: A=%d U=%d failed=%d R=%d missing=%d of L=%d", fault, a, u, f, r,
		missing, loss)
}

// barrier waits until Redis holds everything acknowledged so far.
func (b *bed) barrier() {
	b.t.Helper()
	keys := b.l.Names()
	want := make([]int64, len(keys))
	for i, key := range keys {
		want[i] = b.l.Of(key).Acked
	}
	b.holds(keys, want)
}

// holds waits until Redis holds at least the wanted count of each key.
func (b *bed) holds(keys []string, want []int64) {
	b.t.Helper()
	proctest.UntilNil(b.t, "everything is flushed", func() error {
		held, err := b.stored(keys)
		if err != nil {
			return err
		}
		for i, key := range keys {
			if held[key] < want[i] {
				return fmt.Errorf("%s: Redis holds %d, want %d", key, held[key], want[i])
			}
		}
		return nil
	})
}

// do sends a command to Redis and ends the test if it fails.
func (b *bed) do(args ...any) {
	b.t.Helper()
	if err := b.redis.Do(args...).Err(); err != nil {
		b.t.Fatalf("%v: %v", args, err)
	}
}

// unknowns returns the number of batches with unknown outcome, which had to be sent again.
func (b *bed) unknowns() int64 {
	b.t.Helper()
	return b.node.Metric("twotier_flush_batches_total", `result="unknown"`)
}

// failing returns the number of batches that failed.
func (b *bed) failing() int64 {
	b.t.Helper()
	return b.unknowns() + b.node.Metric("twotier_flush_batches_total", `result="refused"`)
}

// degraded waits until the node has noticed that Redis is unreachable.
func (b *bed) degraded() {
	b.t.Helper()
	proctest.Until(b.t, "the node is degraded", func() bool {
		return b.node.Metric("twotier_degraded_partitions", "") > 0
	})
}
