package faulttest

import (
	"fmt"
	"net/http"
	"testing"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

func TestFault8OutOfMemory(t *testing.T) {
	b := newBed(t, []redistest.Option{redistest.Config("maxmemory-policy noeviction")})
	tr := b.Traffic()
	tr.Accept(200)
	noticed := b.moreFail()
	b.do("CONFIG", "SET", "maxmemory", "1")
	noticed()
	tr.Accept(200)
	b.do("CONFIG", "SET", "maxmemory", "0")
	tr.Accept(200)
	tr.Stop()
	b.settle("8 out of memory", 0)
}

func TestFault8ReadOnly(t *testing.T) {
	b := newBed(t, nil)
	tr := b.Traffic()
	tr.Accept(200)
	noticed := b.moreFail()
	b.do("REPLICAOF", "127.0.0.1", "1") // no such primary: it keeps its data and refuses writes
	noticed()
	tr.Accept(200)
	b.do("REPLICAOF", "NO", "ONE")
	tr.Accept(200)
	tr.Stop()
	b.settle("8 READONLY", 0)
}

func TestFault8MaxClients(t *testing.T) {
	b := newBed(t, nil)
	tr := b.Traffic()
	tr.Accept(200)
	noticed := b.moreFail()
	b.do("CONFIG", "SET", "maxclients", "1")
	b.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	noticed()
	tr.Accept(200)
	b.do("CONFIG", "SET", "maxclients", "1000")
	tr.Accept(200)
	tr.Stop()
	b.settle("8 max clients", 0)
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
