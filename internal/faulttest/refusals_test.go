package faulttest

import (
	"fmt"
	"net/http"
	"testing"

	"twotier/internal/redistest"
)

func TestFault8OutOfMemory(t *testing.T) {
	b := newBed(t, []redistest.Option{redistest.Config("maxmemory-policy noeviction")})
	tr := b.traffic()
	tr.accept(200)
	noticed := b.moreFail()
	b.do("CONFIG", "SET", "maxmemory", "1")
	noticed()
	tr.accept(200)
	b.do("CONFIG", "SET", "maxmemory", "0")
	tr.accept(200)
	tr.stop()
	b.settle("8 out of memory", 0)
}

func TestFault8ReadOnly(t *testing.T) {
	b := newBed(t, nil)
	tr := b.traffic()
	tr.accept(200)
	noticed := b.moreFail()
	b.do("REPLICAOF", "127.0.0.1", "1") // nobody there: it keeps its data and refuses writes
	noticed()
	tr.accept(200)
	b.do("REPLICAOF", "NO", "ONE")
	tr.accept(200)
	tr.stop()
	b.settle("8 READONLY", 0)
}

func TestFault8MaxClients(t *testing.T) {
	b := newBed(t, nil)
	tr := b.traffic()
	tr.accept(200)
	noticed := b.moreFail()
	b.do("CONFIG", "SET", "maxclients", "1")
	b.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	noticed()
	tr.accept(200)
	b.do("CONFIG", "SET", "maxclients", "1000")
	tr.accept(200)
	tr.stop()
	b.settle("8 max clients", 0)
}

// TestFault8ForeignType has something else under the names of two keys, one of them counted before.
func TestFault8ForeignType(t *testing.T) {
	b := newBed(t, nil, "--partitions", "3")
	tr := b.traffic()
	bad := []string{hotKey, "never-counted"}
	tr.accept(200)
	b.barrier()
	var overwritten int64 // of the hot key: somebody else did that, and no one can know
	for _, key := range bad {
		b.do("SET", b.hash(key), "foreign")
	}
	tr.add(bad[1], 7, false)
	until(t, "both keys are refused", func() bool { return b.node.metric("twotier_dropped_total", `reason="bad_key"`) > 1 })
	b.l.mu.Lock()
	overwritten = b.l.of(hotKey).acked
	b.l.mu.Unlock()
	tr.accept(300)
	if o := tr.add(bad[0], 1, true); o != unknown {
		t.Errorf("an add that waits for Redis on a foreign type has the outcome %d", o)
	}
	tr.stop()
	if a := b.node.count(bad[1], "24h"); a.Counts[0].Max != 7 {
		t.Errorf("the bad key is not served: %+v", a)
	}
	var others []string
	var want []int64
	for _, key := range b.l.names() {
		if key != bad[0] && key != bad[1] {
			others, want = append(others, key), append(want, b.l.of(key).acked)
		}
	}
	b.holds(others, want)
	if n := b.node.pending(); n < 3 {
		t.Errorf("%d buckets are pending: what the bad keys counted is gone", n)
	}
	for _, key := range bad {
		b.do("DEL", b.hash(key))
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
	b.l.sending(key, 3)
	b.node.mustPost("/v1/add", fmt.Sprintf(`{"key":%q,"n":3}`, key))
	b.l.note(key, 3, acked)
	status, body, err := b.node.post("/v1/add", fmt.Sprintf(`{"key":%q}`, long))
	if err != nil || status != http.StatusUnprocessableEntity {
		t.Errorf("257 bytes: %d %s %v", status, body, err)
	}
	b.settle("19 huge keys", 0)
}
