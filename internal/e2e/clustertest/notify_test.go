package clustertest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"twotier.dev/twotier/internal/testing/proctest"
)

// TestWebhook comes near the limits of a rule through two nodes: each node posts the first crossing
// of each limit that it sees, and a stop sends what is still waiting. No log has the URL.
func TestWebhook(t *testing.T) {
	type notification struct {
		Node, Namespace, Key, Rule, Window string
		Max, Count, At                     int64
	}
	var mu sync.Mutex
	var all []notification
	busy := true
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if busy {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var list []notification
		if err := json.Unmarshal(body, &list); err != nil || r.URL.Path != "/very-secret" {
			t.Errorf("%s: %s, %v", r.URL, body, err)
		}
		all = append(all, list...)
	}))
	t.Cleanup(web.Close)
	received := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		return len(all)
	}
	c := start(t, 2, "--notify-url", web.URL+"/very-secret", "--rules", configured(t,
		"rules: [{name: receiver, namespace: sms, limits: [5/24h, 10/1h], warn: 60%}]"))
	for i := range 6 {
		c.Nodes[i%2].MustPost("/v1/acquire", `{"ns":"sms","key":"k","rules":["receiver"]}`)
	}
	mu.Lock()
	busy = false
	mu.Unlock()
	proctest.Until(t, "both nodes have notified", func() bool { return received() == 2 })
	mu.Lock()
	for _, one := range all {
		if one.Key != "k" || one.Namespace != "sms" || one.Rule != "receiver" || one.Max != 5 ||
			one.At != 60 || one.Window != "24h" || one.Count < 3 || one.Node == "" {
			t.Errorf("%+v", one)
		}
	}
	if all[0].Node == all[1].Node || all[0].Count+all[1].Count != 7 {
		t.Errorf("%+v", all)
	}
	all, busy = nil, true
	mu.Unlock()
	c.Nodes[0].MustPost("/v1/acquire", `{"ns":"sms","key":"l","n":4,"rules":["receiver"]}`)
	mu.Lock()
	busy = false
	mu.Unlock()
	log := &c.Nodes[0].Log
	c.Stop(0)
	if received() != 1 {
		t.Errorf("a stop sends %+v", all)
	}
	for _, text := range []string{log.String(), c.Nodes[1].Log.String()} {
		if strings.Contains(text, "very-secret") {
			t.Error(text)
		}
	}
	if n := c.Nodes[1].Metric("twotier_notifications_total", `outcome="sent"`); n != 1 {
		t.Errorf("node 1 counts %d notifications", n)
	}
}
