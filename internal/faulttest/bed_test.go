package faulttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"twotier/internal/faultproxy"
	"twotier/internal/redistest"
	"twotier/redisstore"
	"twotier/syncer"
)

// bed is a node with its Redis, and the ledger of what was sent to it.
type bed struct {
	t     *testing.T
	redis *redistest.Server // nil if it is not a single one
	proxy *faultproxy.Proxy // between the two, nil if there is none
	node  *serving
	l     *ledger
	args  []string
	parts int
	// reader reads what Redis holds.
	reader func(keys []string) []*redis.MapStringStringCmd
}

// newBed starts a Redis and a node behind a proxy.
func newBed(t *testing.T, opts []redistest.Option, args ...string) *bed {
	t.Helper()
	t.Parallel()
	return bedOf(t, redistest.Start(t, opts...), args...)
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

// open starts the node. direct makes a client that reads what Redis holds, past any proxy.
func (b *bed) open(url string, direct func() redis.UniversalClient, args ...string) {
	b.t.Helper()
	b.l, b.parts = newLedger(), syncer.DefaultPartitions
	for i, a := range args {
		if a == "--partitions" {
			b.parts, _ = strconv.Atoi(args[i+1])
		}
	}
	b.args = append([]string{"--redis", url, "--redis-timeout", "400ms"}, args...)
	b.node = serve(b.t, nil, b.args...)
	b.reader = func(keys []string) (cmds []*redis.MapStringStringCmd) {
		client := direct()
		defer client.Close()
		pipe := client.Pipeline()
		for _, key := range keys {
			cmds = append(cmds, pipe.HGetAll(context.Background(), b.hash(key)))
		}
		_, _ = pipe.Exec(context.Background()) // every command has its own error
		return cmds
	}
}

// hash is the name of the Hash of a key.
func (b *bed) hash(key string) string {
	place := syncer.Placement{Partitions: b.parts}
	return redisstore.Key(place.Of(nil, []byte(key)), nil, []byte(key))
}

func (b *bed) traffic() *traffic { return (&traffic{t: b.t, l: b.l}).start(b.node.base) }

// restart starts another node in place of one that has ended.
func (b *bed) restart() {
	b.t.Helper()
	b.node = serve(b.t, nil, b.args...)
}

// stored returns what Redis holds of the keys: the sum of the coarsest level. The minutes must say the same.
func (b *bed) stored(keys []string) (map[string]int64, error) {
	counts := map[string]int64{}
	for i, cmd := range b.reader(keys) {
		fields, err := cmd.Result()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", keys[i], err)
		}
		var levels [3]int64
		for field, value := range fields {
			f, err1 := strconv.ParseInt(field, 10, 64)
			n, err2 := strconv.ParseInt(value, 10, 64)
			if err := errors.Join(err1, err2); err != nil || f%10 > 2 {
				return nil, fmt.Errorf("%s: field %s=%s: %w", keys[i], field, value, err)
			}
			levels[f%10] += n
		}
		if levels[1] != levels[2] {
			return nil, fmt.Errorf("%s: the levels sum to %v", keys[i], levels)
		}
		counts[keys[i]] = levels[2]
	}
	return counts, nil
}

// counted returns what the node says of the keys, in batches.
func (s *serving) counted(keys []string) (map[string]int64, error) {
	counts := map[string]int64{}
	const most = 500
	for len(keys) > 0 {
		some := keys[:min(most, len(keys))]
		keys = keys[len(some):]
		var body bytes.Buffer
		for i, key := range some {
			if i > 0 {
				body.WriteByte(',')
			}
			fmt.Fprintf(&body, `{"op":"count","key":%q,"window":"24h"}`, key)
		}
		var answers struct{ Results []answer }
		out := s.mustPost("/v1/batch", `{"ops":[`+body.String()+`]}`)
		if err := json.Unmarshal(out, &answers); err != nil {
			return nil, err
		}
		for i, a := range answers.Results {
			if a.Error != nil || len(a.Counts) != 1 {
				return nil, fmt.Errorf("count %s: %+v", some[i], a.Error)
			}
			counts[some[i]] = a.Counts[0].Max
		}
	}
	return counts, nil
}

// settle waits until nothing is pending and checks the ledger: what the node says, and what Redis holds. A node that found
// nothing to do may take some seconds to notice that Redis has lost something, so it is asked more than once.
func (b *bed) settle(fault string, loss int64) {
	b.t.Helper()
	b.node.flushed()
	keys := b.l.names()
	var r, missing int64
	untilNil(b.t, fault, func() error {
		told, err := b.node.counted(keys)
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
		r, missing, err = b.l.check(held, loss)
		for _, key := range keys {
			if strings.HasPrefix(key, "limited-") && held[key] > limit {
				err = errors.Join(err, fmt.Errorf("%s: %d admitted, the limit is %d", key, held[key], limit))
			}
		}
		return err
	})
	a, u, f := b.l.totals()
	b.t.Logf("ledger: %s: A=%d U=%d failed=%d R=%d missing=%d of L=%d", fault, a, u, f, r, missing, loss)
}

// barrier waits until Redis holds what has been acknowledged so far.
func (b *bed) barrier() {
	b.t.Helper()
	keys := b.l.names()
	want := make([]int64, len(keys))
	b.l.mu.Lock()
	for i, key := range keys {
		want[i] = b.l.keys[key].acked
	}
	b.l.mu.Unlock()
	b.holds(keys, want)
}

// holds waits until Redis holds at least as much of the keys.
func (b *bed) holds(keys []string, want []int64) {
	b.t.Helper()
	untilNil(b.t, "everything is flushed", func() error {
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

// do sends a command to Redis that has to succeed.
func (b *bed) do(args ...any) {
	b.t.Helper()
	if err := b.redis.Do(args...).Err(); err != nil {
		b.t.Fatalf("%v: %v", args, err)
	}
}

// unknowns is how many batches had to be sent again.
func (b *bed) unknowns() int64 {
	b.t.Helper()
	return b.node.metric("twotier_flush_batches_total", `result="unknown"`)
}

// failing is how many batches did not get through.
func (b *bed) failing() int64 {
	b.t.Helper()
	return b.unknowns() + b.node.metric("twotier_flush_batches_total", `result="refused"`)
}

// degraded waits until the node has noticed that Redis is away.
func (b *bed) degraded() {
	b.t.Helper()
	until(b.t, "the node is degraded", func() bool { return b.node.metric("twotier_degraded_partitions", "") > 0 })
}
