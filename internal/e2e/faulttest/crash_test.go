package faulttest

import (
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

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
