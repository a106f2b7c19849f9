package faulttest

import (
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

func TestFault4RedisGoneAndBack(t *testing.T) {
	b := newBed(t, []redistest.Option{redistest.AOF()})
	tr := b.Traffic()
	tr.Accept(300)
	for range 2 {
		b.redis.Kill()
		b.degraded()
		// Down for a while: several retries with back-off, and many more counts.
		noticed := b.moreFail()
		for range 3 {
			noticed()
		}
		tr.Accept(400)
		b.redis.Restart(t)
		tr.Accept(300)
		proctest.Until(t, "the node is up again",
			func() bool { return b.node.Metric("twotier_redis_up", "") == 1 })
	}
	tr.Stop()
	b.settle("4 Redis gone and back", 0)
}

func TestFault5RedisBackEmpty(t *testing.T) {
	t.Run("FLUSHALL", func(t *testing.T) {
		b := newBed(t, nil, "--partitions", "61")
		tr := b.Traffic()
		for range 3 {
			tr.Accept(300)
			b.do("FLUSHALL")
		}
		tr.Accept(100)
		tr.Stop()
		b.settle("5 FLUSHALL", 0)
		if n := b.node.Metric("twotier_losses_total", ""); n == 0 {
			t.Error("no loss was noticed")
		}
		// Idle partitions notice without traffic.
		b.do("FLUSHALL")
		b.settle("5 FLUSHALL while idle", 0)
		b.meta()
	})
	t.Run("Restart", func(t *testing.T) {
		b := newBed(t, nil)
		tr := b.Traffic()
		tr.Accept(600)
		b.redis.Kill()
		b.degraded()
		tr.Accept(200)
		b.redis.Restart(t)
		tr.Accept(200)
		tr.Stop()
		b.settle("5 restart without persistence", 0)
		b.meta()
	})
	t.Run("RepliesLostToo", func(t *testing.T) {
		b := newBed(t, nil, "--partitions", "61")
		tr := b.Traffic()
		tr.Accept(300)
		for range 3 {
			b.proxy.SwallowReplies(true)
			tr.Accept(50)
			b.do("FLUSHALL")
			b.proxy.Pass()
			tr.Accept(50)
		}
		tr.Stop()
		b.settle("5 FLUSHALL while replies are lost", 0)
	})
}

// meta checks that tt:meta is there again.
func (b *bed) meta() {
	b.T.Helper()
	proctest.Until(b.T, "tt:meta is back", func() bool {
		n, err := b.redis.Do("EXISTS", "tt:meta").Int()
		return err == nil && n == 1
	})
}

func TestFault6ScriptFlush(t *testing.T) {
	b := newBed(t, nil, "--redis-timeout", "1m") // a late batch has not failed
	tr := b.Traffic()
	for range 60 {
		tr.Pass(10)
		b.do("SCRIPT", "FLUSH")
	}
	tr.Stop()
	b.settle("6 SCRIPT FLUSH", 0)
	if n := b.failing(); n != 0 {
		t.Errorf("%d batches did not get through at once", n)
	}
}

func TestStartsWithRedisDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	expiry := redistest.Expiry(t, server)
	server.Kill()
	b := bedOf(t, server, "--redis-expiry", expiry)
	tr := b.Traffic()
	tr.Accept(300)
	if status, body := b.node.Ready(); status != 200 {
		t.Errorf("readyz: %d %s", status, body)
	}
	server.Restart(t)
	tr.Accept(300)
	tr.Stop()
	b.settle("start with Redis down", 0)
	b.meta()
	proctest.Until(t, "the node is no longer degraded",
		func() bool { return b.node.Count(proctest.HotKey, "1h").Source == "memory" })
}

// TestSequencesOutliveTheLongestOutage checks the guard against counting a batch twice after a long
// outage: Redis keeps the sequence of a writer for as long as a node may wait before it sends the
// batch again.
func TestSequencesOutliveTheLongestOutage(t *testing.T) {
	b := newBed(t, nil, "--partitions", "1", "--redis-timeout", "1m", "--request-timeout", "1m")
	b.Ledger.Sending("a", 1)
	b.Ledger.Note("a", 1, proctest.Acked)
	b.node.MustPost("/v1/add", `{"key":"a","ack":"redis"}`)
	keys, err := b.redis.Do("KEYS", "tt:{p0}!w:*").StringSlice()
	if err != nil || len(keys) != 1 {
		t.Fatalf("writers: %v, %v", keys, err)
	}
	ttl, err := b.redis.Do("PTTL", keys[0]).Int64()
	if err != nil || time.Duration(ttl)*time.Millisecond < 47*time.Hour {
		t.Errorf("the sequence lives for %d ms, %v", ttl, err)
	}
	b.settle("one key", 0)
}

// TestStartsWhenRedisAnswersLate loses the answer to the first write of a node: the node counts in
// memory, and asks again.
func TestStartsWhenRedisAnswersLate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr())
	lost := proxy.SwallowNext("hash-tags") // written to tt:meta first
	p := program.Serve(t, proctest.Options{}, "--redis", "redis://"+proxy.Addr(),
		"--redis-timeout", "1s", "--hash-seed", "7")
	<-lost
	p.MustPost("/v1/add", `{"key":"a"}`)
	p.Flushed()
	proctest.Until(t, "the log has a line about the outage", func() bool {
		return strings.Contains(p.Log.String(), "Redis does not answer: counting in memory")
	})
}
