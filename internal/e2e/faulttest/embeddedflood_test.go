package faulttest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// TestFault19FloodWithoutRedis floods a node without Redis that has little memory. Keys at their
// limits stay there, new keys count again as soon as the flood is over, and the log names the
// memory that is full.
func TestFault19FloodWithoutRedis(t *testing.T) {
	t.Parallel()
	conf := must.File(t, "twotier.yaml", "namespaces: {few: {max-keys: 100}}\n")
	b := &bed{Cluster: &proctest.Cluster{T: t, Ledger: proctest.NewLedger()}}
	b.node = program.Serve(t, proctest.Options{MayComplain: true}, "--partitions", "8",
		"--max-memory", "2MiB", "--config", conf)
	b.floodNamespace("few", 300, 100) // before memory is full, which refuses keys of any namespace
	b.fillLimits(20)
	refused, waves := int64(0), 0
	for end := time.Now().Add(30 * time.Second); !strings.Contains(b.node.Log.String(),
		"the embedded store is full"); waves++ {
		n, _ := b.flood(fmt.Sprint("flood-", waves), 2000)
		refused += n
		if time.Now().After(end) {
			t.Fatal("the memory of the store does not get full")
		}
	}
	b.atLimits(20)
	began := time.Now()
	proctest.Until(t, "new keys count again", func() bool {
		status, _, err := b.node.Post("/v1/add",
			fmt.Sprintf(`{"key":"after-%d"}`, time.Now().UnixNano()))
		return err == nil && status == 200
	})
	t.Logf("%d new keys, %d refused with 429; new ones counted again %v after the flood",
		waves*2000, refused, time.Since(began).Round(time.Millisecond))
	b.atLimits(20)
}

// fillLimits brings some keys to their limits.
func (b *bed) fillLimits(n int) {
	b.T.Helper()
	for i := range n {
		if a := b.acquireLimited(i, 5); !a.Allowed {
			b.T.Fatalf("limited-%d: %+v", i, a)
		}
	}
}

// atLimits checks that these keys are still at their limits.
func (b *bed) atLimits(n int) {
	b.T.Helper()
	for i := range n {
		if a := b.acquireLimited(i, 1); a.Allowed {
			b.T.Errorf("limited-%d is beyond its limit, and allowed", i)
		}
	}
}

func (b *bed) acquireLimited(i, n int) (a proctest.Answer) {
	b.T.Helper()
	must.Succeed(b.T, b.node.Ask("/v1/acquire",
		fmt.Sprintf(`{"key":"limited-%d","n":%d,"limits":[{"window":"1h","max":5}]}`, i, n), &a))
	return a
}

// floodNamespace counts n new keys in a namespace with a lower max-keys, all at once: one by one,
// on a slow machine, the first would be flushed and make room for the last.
func (b *bed) floodNamespace(ns string, n, most int) {
	b.T.Helper()
	ops := make([]string, n)
	for i := range ops {
		ops[i] = fmt.Sprintf(`{"op":"add","ns":%q,"key":"k%d"}`, ns, i)
	}
	var a struct {
		Results []struct{ Error *struct{ Status int } }
	}
	err := b.node.Ask("/v1/batch", `{"ops":[`+strings.Join(ops, ",")+`]}`, &a)
	if err != nil || len(a.Results) != n {
		b.T.Fatalf("%v, %d results", err, len(a.Results))
	}
	counted := 0
	for i, r := range a.Results {
		switch {
		case r.Error == nil:
			counted++
		case r.Error.Status != 429:
			b.T.Errorf("k%d: %d", i, r.Error.Status)
		}
	}
	if counted < most || counted == n {
		b.T.Errorf("%d of %d keys counted in a namespace of %d", counted, n, most)
	}
}
