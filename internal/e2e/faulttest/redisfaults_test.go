package faulttest

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// script is a part of every request that counts.
const script = "evalsha"

// moreFail returns a function that waits until more batches have failed than before.
func (b *bed) moreFail() func() {
	return func() {
		b.T.Helper()
		b.failSince(b.failing())
	}
}

// failSince waits until more batches have failed than before.
func (b *bed) failSince(before int64) {
	b.T.Helper()
	proctest.Until(b.T, "batches fail", func() bool { return b.failing() > before })
}

// TestFault1ReplyLost loses replies in every way: of single requests, then all of them, with and
// without closing the connections.
func TestFault1ReplyLost(t *testing.T) {
	b := newBed(t, nil)
	tr := b.Traffic()
	tr.Pass(100)
	for range 5 {
		proctest.Wait(t, "a reply is lost", b.proxy.SwallowNext(script))
	}
	proctest.Wait(t, "replies are lost", b.proxy.SwallowMatching(script, 5, false))
	for _, hangUp := range []bool{true, false} {
		b.proxy.SwallowReplies(hangUp)
		b.failSince(b.failing())
		tr.Pass(50)
		b.proxy.Pass()
		tr.Pass(50)
	}
	proctest.Wait(t, "a reply is cut", b.proxy.CutNext(script, 3))
	tr.Pass(50)
	tr.Stop()
	b.settle("1 reply lost", 0)
	if b.unknowns() == 0 {
		t.Error("no batch was sent again")
	}
}

func TestFault2RequestLost(t *testing.T) {
	b := newBed(t, nil)
	tr := b.Traffic()
	tr.Pass(100)
	for _, lose := range []func(){b.proxy.DropRequests, b.proxy.Hang, func() {
		b.proxy.Refuse()
		b.proxy.CloseAll()
	}} {
		lose()
		b.failSince(b.failing())
		tr.Pass(50)
		b.proxy.Pass()
		tr.Pass(50)
	}
	tr.Stop()
	b.settle("2 request lost", 0)
}

func TestFault3RedisSlow(t *testing.T) {
	b := newBed(t, nil)
	tr := b.Traffic()
	tr.Pass(100)
	before := b.failing() // the pause may end before two have failed
	b.do("CLIENT", "PAUSE", 4000, "ALL")
	b.failSince(before)
	tr.Pass(100)
	b.redis.Pause()
	b.failSince(b.failing())
	b.degraded()
	tr.Accept(200)
	if a := b.node.Count(proctest.HotKey, "24h"); a.Source != "degraded" || !a.Degraded {
		t.Errorf("a count while Redis hangs: %+v", a)
	}
	b.redis.Resume()
	tr.Accept(200)
	tr.Stop()
	b.settle("3 Redis hung", 0)
}

// refuses lets clients count before, while and after Redis refuses to write.
func (b *bed) refuses(fault string, begin, end func()) {
	b.T.Helper()
	tr := b.Traffic()
	tr.Accept(200)
	noticed := b.moreFail()
	begin()
	noticed()
	tr.Accept(200)
	end()
	tr.Accept(200)
	tr.Stop()
	b.settle(fault, 0)
}

func TestFault8OutOfMemory(t *testing.T) {
	b := newBed(t, []redistest.Option{redistest.Config("maxmemory-policy noeviction")})
	b.refuses("8 out of memory", func() { b.do("CONFIG", "SET", "maxmemory", "1") },
		func() { b.do("CONFIG", "SET", "maxmemory", "0") })
}

func TestFault8ReadOnly(t *testing.T) {
	b := newBed(t, nil) // without a primary it keeps its data and refuses writes
	b.refuses("8 READONLY", func() { b.do("REPLICAOF", "127.0.0.1", "1") },
		func() { b.do("REPLICAOF", "NO", "ONE") })
}

func TestFault8MaxClients(t *testing.T) {
	b := newBed(t, nil)
	b.refuses("8 max clients", func() {
		b.do("CONFIG", "SET", "maxclients", "1")
		b.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	}, func() { b.do("CONFIG", "SET", "maxclients", "1000") })
}

// TestFault8ForeignType puts values of another type under the names of two keys, one of which was
// counted before.
func TestFault8ForeignType(t *testing.T) {
	b := newBed(t, nil, "--partitions", "3")
	tr := b.Traffic()
	bad := []string{proctest.HotKey, "never-counted"}
	tr.Accept(200)
	b.Barrier()
	var overwritten int64 // counts of the hot key that the foreign value replaced
	for _, key := range bad {
		b.do("SET", b.Hash(key), "foreign")
	}
	tr.Add(bad[1], 7, false)
	proctest.Until(t, "both keys are refused", func() bool {
		return b.node.Metric("twotier_dropped_total", `reason="bad_key"`) > 1
	})
	overwritten = b.Ledger.Of(proctest.HotKey).Acked
	tr.Accept(300)
	if o := tr.Add(bad[0], 1, true); o != proctest.Unknown {
		t.Errorf("an add that waits for Redis on a foreign type has the outcome %d", o)
	}
	tr.Stop()
	if a := b.node.Count(bad[1], "24h"); a.Counts[0].Max != 7 {
		t.Errorf("the bad key is not served: %+v", a)
	}
	others := map[string]int64{}
	for _, key := range b.Ledger.Names() {
		if key != bad[0] && key != bad[1] {
			others[key] = b.Ledger.Of(key).Acked
		}
	}
	b.Holds(others)
	if n := b.node.Pending(); n < 3 {
		t.Errorf("%d buckets are pending: what the bad keys counted is gone", n)
	}
	for _, key := range bad {
		b.do("DEL", b.Hash(key))
	}
	b.settle("8 a foreign type", overwritten)
}

func TestFault19HugeKeys(t *testing.T) {
	b := newBed(t, nil)
	long := make([]byte, 257)
	for i := range long {
		long[i] = 'x'
	}
	key := string(long[:256])
	b.Ledger.Sending(key, 3)
	b.node.MustPost("/v1/add", fmt.Sprintf(`{"key":%q,"n":3}`, key))
	b.Ledger.Note(key, 3, proctest.Acked)
	status, body, err := b.node.Post("/v1/add", fmt.Sprintf(`{"key":%q}`, long))
	if err != nil || status != http.StatusUnprocessableEntity {
		t.Errorf("257 bytes: %d %s %v", status, body, err)
	}
	b.settle("19 huge keys", 0)
}

func TestFault9StoppedUnderLoad(t *testing.T) {
	b := newBed(t, nil)
	tr := b.Traffic()
	for range 2 {
		tr.Accept(300)
		if status := b.node.Stop(); status != 0 {
			t.Errorf("exit status %d", status)
		}
		tr.Pass(20) // no server there
		b.restart()
		tr.To(b.node.Base)
	}
	tr.Accept(300)
	tr.Stop()
	b.settle("9 SIGTERM", 0)
}

// TestFault9StoppedWithRedisDown stops a node that can't flush. Its exit status and its log must
// report that.
func TestFault9StoppedWithRedisDown(t *testing.T) {
	b := newBed(t, []redistest.Option{redistest.AOF()})
	tr := b.Traffic()
	tr.Accept(200)
	before, _, _ := b.Ledger.Totals()
	b.Barrier()
	b.redis.Kill()
	b.degraded()
	tr.Accept(100)
	tr.Stop()
	a, _, _ := b.Ledger.Totals()
	if status := b.node.Stop(); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	b.redis.Restart(t)
	b.restart()
	b.settle("9 SIGTERM with Redis down", a-before)
}

func TestFault10KilledWithAckMemory(t *testing.T) {
	b := newBed(t, nil)
	tr := b.Traffic()
	for range 2 {
		tr.Accept(300)
		before := b.Ledger.Events.Load()
		b.Barrier() // all that was counted before is in Redis
		var log proctest.Recent
		proctest.Until(t, "more is counted", func() bool {
			log.Note(b.Ledger.Events.Load())
			return b.Ledger.Events.Load() > before+200
		})
		b.node.Kill()
		died := time.Now()
		tr.Pass(20)
		after := b.Ledger.Events.Load()
		held, err := b.Stored(b.Ledger.Names())
		must.Succeed(t, err)
		lost := b.Ledger.WriteOff(held)
		if lost > after-before {
			t.Errorf("%d lost, more than the %d that were acknowledged since all was flushed", lost,
				after-before)
		}
		t.Logf("killed: %d lost; acknowledged since all was flushed: %d, of them in the last "+
			"220 ms about %d",
			lost, after-before, log.Since(died.Add(-220*time.Millisecond)))
		b.restart()
		tr.To(b.node.Base)
	}
	tr.Accept(300)
	tr.Stop()
	b.settle("10 SIGKILL with ack=memory, but for what was written off", 0)
}

func TestFault10KilledWithAckRedis(t *testing.T) {
	b := newBed(t, nil, "--ack", "redis")
	tr := &proctest.Traffic{T: t, Ledger: b.Ledger, Storing: true}
	tr.To(b.node.Base).Start()
	for range 3 {
		tr.Accept(150)
		b.node.Kill()
		tr.Pass(20)
		b.restart()
		tr.To(b.node.Base)
	}
	tr.Accept(150)
	tr.Stop()
	b.settle("10 SIGKILL with ack=redis", 0)
}

// TestFault10KilledWithAckRedisWhileRedisIsSlow kills the node while its batches are on their way.
func TestFault10KilledWithAckRedisWhileRedisIsSlow(t *testing.T) {
	b := newBed(t, nil, "--ack", "redis")
	tr := &proctest.Traffic{T: t, Ledger: b.Ledger, Storing: true}
	tr.To(b.node.Base).Start()
	b.proxy.Delay(100 * time.Millisecond)
	tr.Accept(100)
	b.proxy.Hang()
	tr.Pass(5)
	b.node.Kill()
	b.proxy.Pass() // the dead node's messages arrive now
	tr.Pass(20)
	b.restart()
	tr.To(b.node.Base)
	tr.Accept(150)
	tr.Stop()
	b.settle("10 SIGKILL with ack=redis and a slow Redis", 0)
}
