package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/redistest"
)

// TestRefusalIsRememberedNearby has a key refused again and again through a node that does not own
// it. Once the key is reset, the node must have forgotten the refusal.
func TestRefusalIsRememberedNearby(t *testing.T) {
	nodes := startThree(t, t.Context(), "--redis", redistest.Start(t).URL())
	const acquire = `{"checks":[{"key":"k","limits":[{"window":"1h","max":3}]}]}`
	allowed, near := 0, 0
	eventually(t, "a refusal is remembered", patience, func() bool {
		for _, n := range nodes {
			answer := fetch(t, "POST", n.url+"/v1/acquire", acquire)
			if strings.Contains(answer, `"allowed":true`) {
				allowed++
			}
			if strings.Contains(answer, `"source":"near"`) {
				near++
				if !strings.Contains(answer, `"retry_after_ms":3`) { // a little less than an hour
					t.Fatal(answer)
				}
			}
		}
		return near > 10
	})
	if allowed != 3 {
		t.Errorf("%d were admitted, the limit is 3", allowed)
	}
	for _, n := range nodes { // counts that a batch takes back make room for its later operations
		batch := `{"ops":[{"op":"add","key":"k","n":-1},{"op":"acquire",` + acquire[1:] + `]}`
		if answer := fetch(t, "POST", n.url+"/v1/batch", batch); strings.Contains(answer,
			`"source":"near"`) {
			t.Errorf("a batch is answered out of order: %s", answer)
		}
	}
	// Naming the default namespace means the same key.
	fetch(t, "POST", nodes[0].url+"/v1/reset", `{"ns":"default","key":"k"}`)
	for _, n := range nodes {
		if answer := fetch(t, "POST", n.url+"/v1/acquire", acquire); !strings.Contains(answer,
			`"allowed":true`) {
			t.Errorf("after a reset: %s", answer)
		}
	}
	if metrics := fetch(t, "GET", nodes[0].url+"/metrics", "") + fetch(t, "GET", nodes[1].url+
		"/metrics", ""); !strings.Contains(metrics, "twotier_remembered_refusals_total") {
		t.Error("no metric tells of it")
	}
}

// TestHotKeyWithoutRedis has nodes borrow a hot key, stops Redis, and uses up a limit through all
// of them: without Redis, only the owner decides.
func TestHotKeyWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	nodes := startThree(t, t.Context(), "--redis", server.URL(), "--hot-rate", "50",
		"--flush-interval", "50ms")
	const limit = 3000
	all := untilBorrowed(t, nodes, limit)
	server.Kill()
	eventually(t, "only the owner decides", patience, func() bool {
		more := slowCrowd(t, nodes, limit)
		all.add(more)
		return more.near == 0
	})
	// With the one key only: without Redis, a decision of several owners takes long.
	for more := 1; more > 0; {
		next := crowdOf(t, nodes, 60, func() string { return everybody(limit) })
		all.add(next)
		more = next.allowed
	}
	if all.allowed > limit {
		t.Errorf("%d were admitted, the limit is %d", all.allowed, limit)
	}
	server.Restart(t) // the nodes flush before they stop
}

// TestLimitForEverybody acquires a key that everybody shares, together with one for each user,
// through three nodes at once, until its limit is used up. Exactly the limit is admitted, although
// nodes borrow from the owner.
func TestLimitForEverybody(t *testing.T) {
	nodes := startThree(t, t.Context(), "--redis", redistest.Start(t).URL(), "--hot-rate", "50",
		"--flush-interval", "50ms")
	const limit = 6000
	all := untilBorrowed(t, nodes, limit)
	defer func() {
		if t.Failed() {
			t.Logf("%d were admitted, of %d the outcome is unknown, other errors: %v", all.allowed,
				all.unknown, all.errors)
		}
	}()
	eventually(t, "the limit is used up, and what was lent is back", patience, func() bool {
		more := crowd(t, nodes, limit, 60)
		all.add(more)
		return more.allowed == 0 && all.allowed+all.unknown >= limit
	})
	// Nodes time out on a machine that stands still. Their unknown outcomes may be counted.
	if all.allowed > limit {
		t.Errorf("%d were admitted, the limit is %d", all.allowed, limit)
	}
}

// crowded is the outcome of the acquires of a crowd.
type crowded struct {
	allowed int
	near    int            // those among them that did not involve the owner
	unknown int            // may have been counted
	errors  map[string]int // others, by their text
}

func (c *crowded) add(o crowded) {
	c.allowed, c.near, c.unknown = c.allowed+o.allowed, c.near+o.near, c.unknown+o.unknown
	for text, n := range o.errors {
		c.errors[text] += n
	}
}

// untilBorrowed uses a limit, slowly, until nodes borrow from the key's owner. It returns the
// outcome.
func untilBorrowed(t *testing.T, nodes []*served, limit int) crowded {
	t.Helper()
	all := crowded{errors: map[string]int{}}
	eventually(t, "nodes borrow the key", patience, func() bool {
		more := slowCrowd(t, nodes, limit)
		all.add(more)
		return more.near > 0
	})
	return all
}

// slowCrowd is a crowd slow enough for the limit to last for seconds: it must not be used up before
// nodes borrow.
func slowCrowd(t *testing.T, nodes []*served, limit int) crowded {
	t.Helper()
	time.Sleep(50 * time.Millisecond)
	return crowd(t, nodes, limit, 10)
}

// everybody is a check of the key that everybody shares.
func everybody(limit int) string {
	return fmt.Sprintf(`{"key":"everybody","limits":[{"window":"24h","max":%d}]}`, limit)
}

// crowd sends a batch of acquires of users to each node, at the same time.
func crowd(t *testing.T, nodes []*served, limit, batch int) crowded {
	t.Helper()
	return crowdOf(t, nodes, batch, func() string {
		return fmt.Sprintf(`{"key":"user%d","limits":[{"window":"24h","max":1000000}]},`,
			rand.IntN(100)) + everybody(limit)
	})
}

// crowdOf is crowd with the given checks in each acquire.
func crowdOf(t *testing.T, nodes []*served, batch int, checks func() string) crowded {
	t.Helper()
	answers := make([]string, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		var ops []string
		for range batch {
			ops = append(ops, `{"op":"acquire","checks":[`+checks()+`]}`)
		}
		all.Go(func() {
			answers[i] = fetch(t, "POST", n.url+"/v1/batch", `{"ops":[`+strings.Join(ops, ",")+`]}`)
		})
	}
	all.Wait()
	sum := crowded{errors: map[string]int{}}
	for _, answer := range answers {
		var got struct {
			Results []struct {
				Error *struct{ Detail, Outcome string }
			}
		}
		if err := json.Unmarshal([]byte(answer), &got); err != nil {
			t.Fatalf("%v in %s", err, answer)
		}
		sum.allowed += strings.Count(answer, `{"allowed":true,"checks"`)
		sum.near += strings.Count(answer, `"retry_after_ms":0,"source":"near"`)
		for _, res := range got.Results {
			switch {
			case res.Error == nil:
			case res.Error.Outcome == "unknown":
				sum.unknown++
			default:
				sum.errors[res.Error.Detail]++
			}
		}
	}
	return sum
}
