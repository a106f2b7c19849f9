package faulttest

import (
	"testing"
	"time"

	"twotier/internal/redistest"
)

func TestFault4RedisGoneAndBack(t *testing.T) {
	b := newBed(t, []redistest.Option{redistest.AOF()})
	tr := b.traffic()
	tr.accept(300)
	for range 2 {
		b.redis.Kill()
		b.degraded()
		// Gone for a while: several rounds of back-off, and many more counts.
		noticed := b.moreFail()
		for range 3 {
			noticed()
		}
		tr.accept(400)
		b.redis.Restart(t)
		tr.accept(300)
		until(t, "the node is up again", func() bool { return b.node.metric("twotier_redis_up", "") == 1 })
	}
	tr.stop()
	b.settle("4 Redis gone and back", 0)
}

func TestFault5RedisBackEmpty(t *testing.T) {
	t.Run("FLUSHALL", func(t *testing.T) {
		b := newBed(t, nil, "--partitions", "61")
		tr := b.traffic()
		for range 3 {
			tr.accept(300)
			b.do("FLUSHALL")
		}
		tr.accept(100)
		tr.stop()
		b.settle("5 FLUSHALL", 0)
		if n := b.node.metric("twotier_losses_total", ""); n == 0 {
			t.Error("no loss was noticed")
		}
		// Idle partitions notice by themselves.
		b.do("FLUSHALL")
		b.settle("5 FLUSHALL while idle", 0)
		b.meta()
	})
	t.Run("Restart", func(t *testing.T) {
		b := newBed(t, nil)
		tr := b.traffic()
		tr.accept(600)
		b.redis.Kill()
		b.degraded()
		tr.accept(200)
		b.redis.Restart(t)
		tr.accept(200)
		tr.stop()
		b.settle("5 restart without persistence", 0)
		b.meta()
	})
	t.Run("RepliesLostToo", func(t *testing.T) {
		b := newBed(t, nil, "--partitions", "61")
		tr := b.traffic()
		tr.accept(300)
		for range 3 {
			b.proxy.SwallowReplies(true)
			tr.accept(50)
			b.do("FLUSHALL")
			b.proxy.Pass()
			tr.accept(50)
		}
		tr.stop()
		b.settle("5 FLUSHALL while replies are lost", 0)
	})
}

// meta checks that what all who share the data must agree on is there again.
func (b *bed) meta() {
	b.t.Helper()
	until(b.t, "tt:meta is back", func() bool {
		n, err := b.redis.Do("EXISTS", "tt:meta").Int()
		return err == nil && n == 1
	})
}

func TestFault6ScriptFlush(t *testing.T) {
	b := newBed(t, nil)
	tr := b.traffic()
	for range 60 {
		tr.pass(10)
		b.do("SCRIPT", "FLUSH")
	}
	tr.stop()
	b.settle("6 SCRIPT FLUSH", 0)
	if n := b.failing(); n != 0 {
		t.Errorf("%d batches did not get through at once", n)
	}
}

func TestStartsWithRedisDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	b := bedOf(t, server)
	tr := b.traffic()
	tr.accept(300)
	if status, body := b.node.ready(); status != 200 {
		t.Errorf("readyz: %d %s", status, body)
	}
	server.Restart(t)
	tr.accept(300)
	tr.stop()
	b.settle("start with Redis down", 0)
	b.meta()
	until(t, "the node is no longer degraded", func() bool { return b.node.count(hotKey, "1h").Source == "memory" })
}

// TestSequencesOutliveTheLongestOutage pins what keeps a batch from being counted twice after a long outage: the sequence
// of a writer lives as long as a node may wait to send it again.
func TestSequencesOutliveTheLongestOutage(t *testing.T) {
	b := newBed(t, nil, "--partitions", "1")
	b.l.sending("a", 1)
	b.l.note("a", 1, acked)
	b.node.mustPost("/v1/add", `{"key":"a","ack":"redis"}`)
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
