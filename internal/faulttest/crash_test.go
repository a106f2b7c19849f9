package faulttest

import (
	"testing"
	"time"

	"twotier/internal/redistest"
)

func TestFault9StoppedUnderLoad(t *testing.T) {
	b := newBed(t, nil)
	tr := b.traffic()
	for range 2 {
		tr.accept(300)
		if status := b.node.stop(); status != 0 {
			t.Errorf("exit status %d", status)
		}
		tr.pass(20) // nobody there
		b.restart()
		tr.base.Store(&b.node.base)
	}
	tr.accept(300)
	tr.stop()
	b.settle("9 SIGTERM", 0)
}

// TestFault9StoppedWithRedisDown can't flush: the exit status has to say so, and so does the log.
func TestFault9StoppedWithRedisDown(t *testing.T) {
	b := newBed(t, []redistest.Option{redistest.AOF()})
	tr := b.traffic()
	tr.accept(200)
	before, _, _ := b.l.totals()
	b.barrier()
	b.redis.Kill()
	b.degraded()
	tr.accept(100)
	tr.stop()
	a, _, _ := b.l.totals()
	if status := b.node.stop(); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	b.redis.Restart(t)
	b.restart()
	b.settle("9 SIGTERM with Redis down", a-before)
}

// recent remembers when events were acknowledged.
type recent struct {
	at []time.Time
	n  []int64
}

// since is how many events were acknowledged after a moment.
func (r *recent) since(when time.Time) (n int64) {
	for i := len(r.at) - 1; i >= 0 && r.at[i].After(when); i-- {
		if i == 0 || !r.at[i-1].After(when) {
			return r.n[len(r.n)-1] - r.n[i]
		}
	}
	return n
}

func TestFault10KilledWithAckMemory(t *testing.T) {
	b := newBed(t, nil)
	tr := b.traffic()
	for range 2 {
		tr.accept(300)
		before := b.l.events.Load()
		b.barrier() // all that was counted before is in Redis
		var log recent
		until(t, "more is counted", func() bool {
			log.at, log.n = append(log.at, time.Now()), append(log.n, b.l.events.Load())
			return log.n[len(log.n)-1] > before+200
		})
		b.node.kill()
		died := time.Now()
		tr.pass(20)
		after := b.l.events.Load()
		held, err := b.stored(b.l.names())
		if err != nil {
			t.Fatal(err)
		}
		lost := b.l.writeOff(held)
		if lost > after-before {
			t.Errorf("%d lost, more than the %d that were acknowledged since all was flushed", lost, after-before)
		}
		t.Logf("killed: %d lost; acknowledged since all was flushed: %d, of them in the last 220 ms about %d",
			lost, after-before, log.since(died.Add(-220*time.Millisecond)))
		b.restart()
		tr.base.Store(&b.node.base)
	}
	tr.accept(300)
	tr.stop()
	b.settle("10 SIGKILL with ack=memory, but for what was written off", 0)
}

func TestFault10KilledWithAckRedis(t *testing.T) {
	b := newBed(t, nil, "--ack", "redis")
	tr := &traffic{t: t, l: b.l, storing: true}
	tr.start(b.node.base)
	for range 3 {
		tr.accept(150)
		b.node.kill()
		tr.pass(20)
		b.restart()
		tr.base.Store(&b.node.base)
	}
	tr.accept(150)
	tr.stop()
	b.settle("10 SIGKILL with ack=redis", 0)
}

// TestFault10KilledWithAckRedisWhileRedisIsSlow kills the node while its batches are on their way.
func TestFault10KilledWithAckRedisWhileRedisIsSlow(t *testing.T) {
	b := newBed(t, nil, "--ack", "redis")
	tr := &traffic{t: t, l: b.l, storing: true}
	tr.start(b.node.base)
	b.proxy.Delay(100 * time.Millisecond)
	tr.accept(100)
	b.proxy.Hang()
	tr.pass(5)
	b.node.kill()
	b.proxy.Pass() // what the dead node sent arrives now
	tr.pass(20)
	b.restart()
	tr.base.Store(&b.node.base)
	tr.accept(150)
	tr.stop()
	b.settle("10 SIGKILL with ack=redis and a slow Redis", 0)
}
