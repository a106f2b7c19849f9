package faulttest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// TestFault19FloodWithoutRedis floods a node without Redis that has little memory. Keys at their
// limits stay there, bans, holds and settlements stay what they are, new keys count again as soon
// as the flood is over, and the log names the memory that is full.
func TestFault19FloodWithoutRedis(t *testing.T) {
	t.Parallel()
	conf := must.File(t, "twotier.yaml", "namespaces: {few: {max-keys: 100}}\n")
	b := &bed{Cluster: &proctest.Cluster{T: t, Ledger: proctest.NewLedger()}}
	b.node = program.Serve(t, proctest.Options{MayComplain: true}, "--partitions", "8",
		"--max-memory", "2MiB", "--config", conf, "--rules", must.File(t, "rules.yaml",
			"rules: [{name: login, limits: [3/1h], ban: 24h}]\n"))
	b.floodNamespace("few", 300, 100) // before memory is full, which refuses keys of any namespace
	b.fillLimits(20)
	used := b.useCompanions(20)
	refused, waves := int64(0), 0
	for end := time.Now().Add(30 * time.Second); !strings.Contains(b.node.Log.String(),
		"memory is full: the keys that have counted least"); waves++ {
		n, _ := b.flood(fmt.Sprint("flood-", waves), 2000)
		refused += n
		if time.Now().After(end) {
			t.Fatal("memory does not get full")
		}
	}
	b.floodTwice(10_000)
	b.atLimits(20)
	b.keepCompanions(used)
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
	b.ask("/v1/acquire",
		fmt.Sprintf(`{"key":"limited-%d","n":%d,"limits":[{"window":"1h","max":5}]}`, i, n), &a)
	return a
}

// floodNamespace counts n new keys in a namespace with a lower max-keys, all at once: one by one,
// on a slow machine, the first would be idle and make room for the last.
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

// floodTwice counts two events of each of n new keys. Each has another key forgotten.
func (b *bed) floodTwice(n int) {
	b.T.Helper()
	wave := 0
	proctest.Until(b.T, "many new keys count", func() bool {
		ops := make([]string, 1000)
		for i := range ops {
			ops[i] = fmt.Sprintf(`{"op":"add","key":"twice-%d-%d","n":2}`, wave, i)
		}
		var a struct{ Results []proctest.Answer }
		must.Succeed(b.T, b.node.Ask("/v1/batch", `{"ops":[`+strings.Join(ops, ",")+`]}`, &a))
		for _, r := range a.Results {
			if r.Error == nil {
				n--
			}
		}
		wave++
		return n <= 0
	})
}

// companions are the settled holds and the counts of some keys that also have an open hold, and a
// ban.
type companions struct {
	holds  []string
	counts []int64
}

// companionHold is an acquire of a key that has room for one open hold.
const companionHold = `{"key":"companion-%d","n":%d,"hold":"1h","limits":[{"window":"24h",` +
	`"max":1000},{"concurrent":1}]}`

// useCompanions settles a hold of each of some keys, opens another one, and has the key banned.
func (b *bed) useCompanions(n int) (used companions) {
	b.T.Helper()
	for i := range n {
		var a struct{ Hold string }
		b.ask("/v1/acquire", fmt.Sprintf(companionHold, i, 10), &a)
		b.ask("/v1/settle", fmt.Sprintf(`{"hold":%q,"n":8}`, a.Hold), nil)
		used.holds = append(used.holds, a.Hold)
		if !b.allows(fmt.Sprintf(companionHold, i, 10)) {
			b.T.Fatalf("companion-%d has no room for a hold", i)
		}
		b.allows(fmt.Sprintf(`{"key":"companion-%d","rules":["login"]}`, i))
		used.counts = append(used.counts, b.countOf(i))
	}
	return used
}

// keepCompanions checks that the keys are still banned, their second holds open, and their first
// ones settled.
func (b *bed) keepCompanions(used companions) {
	b.T.Helper()
	for i, hold := range used.holds {
		b.ask("/v1/settle", fmt.Sprintf(`{"hold":%q,"n":8}`, hold), nil)
		if got := b.countOf(i); got != used.counts[i] {
			b.T.Errorf("companion-%d: %d events after another settlement, want %d", i, got,
				used.counts[i])
		}
		if b.allows(fmt.Sprintf(companionHold, i, 1)) {
			b.T.Errorf("companion-%d has room for a second hold", i)
		}
		var a struct{ Bans []struct{ Started bool } }
		b.ask("/v1/acquire", fmt.Sprintf(`{"key":"companion-%d","rules":["login"]}`, i), &a)
		if len(a.Bans) != 1 || a.Bans[0].Started {
			b.T.Errorf("companion-%d is not banned any more: %+v", i, a.Bans)
		}
	}
}

// ask posts a request, again for as long as no memory is free for its keys.
func (b *bed) ask(path, body string, into any) {
	b.T.Helper()
	proctest.Until(b.T, path+" is answered", func() bool {
		status, answer, err := b.node.Post(path, body)
		if err != nil || status != 200 {
			return false
		}
		if into != nil {
			must.Succeed(b.T, json.Unmarshal(answer, into))
		}
		return true
	})
}

func (b *bed) allows(acquire string) bool {
	b.T.Helper()
	var a struct{ Allowed bool }
	b.ask("/v1/acquire", acquire, &a)
	return a.Allowed
}

// countOf returns the events of a key with companions.
func (b *bed) countOf(i int) (n int64) {
	b.T.Helper()
	proctest.Until(b.T, "a count is answered", func() bool {
		a, err := b.node.TryCount(fmt.Sprintf("key=companion-%d&window=24h", i))
		if err == nil {
			n = a.Counts[0].Count
		}
		return err == nil
	})
	return n
}
