package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/redistest"
)

// TestHotKeyIsSpreadAndFoldsBack adds to one key through three nodes until each counts it locally,
// and lets it cool down. No count is lost or doubled on the way, and at the end every node reports
// the same count.
func TestHotKeyIsSpreadAndFoldsBack(t *testing.T) {
	nodes := startThree(t, t.Context(), "--redis", redistest.Start(t).URL(), "--hot-rate", "50",
		"--flush-interval", "50ms")
	const batch = 64
	body := `{"ops":[` + strings.Repeat(`{"op":"add","key":"hot"},`, batch-1) +
		`{"op":"add","key":"hot"}]}`
	total, shared := 0, map[int]bool{}
	eventually(t, "every node counts the key itself", time.Minute, func() bool {
		for i, n := range nodes {
			answer := ask(t, "POST", n.url+"/v1/batch", body)
			total += batch
			if strings.Contains(answer, `"error"`) {
				t.Fatal(answer)
			}
			if strings.Contains(answer, `"source":"shared"`) {
				shared[i] = true
			}
		}
		return len(shared) == len(nodes)
	})
	eventually(t, "the key is its owner's alone", time.Minute, func() bool {
		for _, n := range nodes {
			if v := ask(t, "GET", n.url+"/v1/cluster", ""); !strings.Contains(v,
				`"hot_keys":0,"leased_keys":0,`) {
				return false
			}
		}
		return true
	})
	eventually(t, "every node has all", 30*time.Second, func() bool {
		for _, n := range nodes {
			answer := ask(t, "GET", n.url+"/v1/count?key=hot&window=24h", "")
			if strings.Contains(answer, `"shared"`) ||
				!strings.Contains(answer, fmt.Sprintf(`"count":%d,`, total)) {
				return false
			}
		}
		return true
	})
}

// TestRefusalIsRememberedNearby has a key refused again and again through a node that does not own
// it. Once the key is reset, the node must have forgotten the refusal.
func TestRefusalIsRememberedNearby(t *testing.T) {
	nodes := startThree(t, t.Context(), "--redis", redistest.Start(t).URL())
	const acquire = `{"checks":[{"key":"k","limits":[{"window":"1h","max":3}]}]}`
	allowed, near := 0, 0
	eventually(t, "a refusal is remembered", 30*time.Second, func() bool {
		for _, n := range nodes {
			answer := ask(t, "POST", n.url+"/v1/acquire", acquire)
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
		if answer := ask(t, "POST", n.url+"/v1/batch", batch); strings.Contains(answer,
			`"source":"near"`) {
			t.Errorf("a batch is answered out of order: %s", answer)
		}
	}
	// Naming the default namespace means the same key.
	ask(t, "POST", nodes[0].url+"/v1/reset", `{"ns":"default","key":"k"}`)
	for _, n := range nodes {
		if answer := ask(t, "POST", n.url+"/v1/acquire", acquire); !strings.Contains(answer,
			`"allowed":true`) {
			t.Errorf("after a reset: %s", answer)
		}
	}
	if metrics := ask(t, "GET", nodes[0].url+"/metrics", "") + ask(t, "GET", nodes[1].url+
		"/metrics", ""); !strings.Contains(metrics, "twotier_remembered_refusals_total") {
		t.Error("no metric tells of it")
	}
}

// TestHotKeyWithoutRedis lets all nodes count a hot key locally, stops Redis, and uses up a limit
// through all of them. While the nodes can't meet in Redis, only the owner decides.
func TestHotKeyWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	nodes := startThree(t, t.Context(), "--redis", server.URL(), "--hot-rate", "50",
		"--flush-interval", "50ms")
	const batch = 64
	body := `{"ops":[` + strings.Repeat(`{"op":"add","key":"hot"},`, batch-1) +
		`{"op":"add","key":"hot"}]}`
	total := 0
	all := func(want ...string) bool {
		for _, n := range nodes {
			answer := ask(t, "GET", n.url+"/v1/count?key=hot&window=24h", "")
			for _, text := range want {
				if !strings.Contains(answer, text) {
					return false
				}
			}
		}
		return true
	}
	const shared = `"source":"shared"`
	eventually(t, "every node counts the key itself", time.Minute, func() bool {
		for _, n := range nodes {
			ask(t, "POST", n.url+"/v1/batch", body)
			total += batch
		}
		return all(shared)
	})
	eventually(t, "every node knows what the others counted", 10*time.Second, func() bool {
		return all(shared, fmt.Sprintf(`"count":%d,`, total))
	})
	server.Kill()
	eventually(t, "every node has noticed", 10*time.Second, func() bool {
		for _, n := range nodes {
			if strings.Contains(ask(t, "GET", n.url+"/v1/count?key=hot&window=24h", ""), shared) {
				return false
			}
		}
		return true
	})
	const room = 50
	acquire := fmt.Sprintf(`{"key":"hot","limits":[{"window":"24h","max":%d}]}`, total+room)
	allowed := 0
	for range 2 * room {
		for _, n := range nodes {
			if strings.Contains(ask(t, "POST", n.url+"/v1/acquire", acquire), `"allowed":true`) {
				allowed++
			}
		}
	}
	if allowed != room {
		t.Errorf("%d were admitted, the limit left room for %d", allowed, room)
	}
	server.Restart(t) // the nodes flush before they stop
}
