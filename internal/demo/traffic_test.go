package demo_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/internal/demo"
)

// counter is a fake node that never forgets and allows three events per limited key.
type counter struct {
	mu    sync.Mutex
	keys  map[string]int64
	fails bool
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var event struct{ Key string }
	if r.Method == http.MethodGet {
		_ = json.NewEncoder(w).
			Encode(
				map[string]any{"counts": []any{map[string]any{"count": c.keys[r.URL.Query().
					Get("key")]}}})
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.keys[event.Key]++
	_ = json.NewEncoder(w).Encode(map[string]any{"allowed": c.keys[event.Key] <= 3})
}

func (c *counter) seen(prefix string) (keys int, events int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, n := range c.keys {
		if strings.HasPrefix(k, prefix) {
			keys, events = keys+1, events+n
		}
	}
	return keys, events
}

// until waits until a condition holds.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s", what)
		}
	}
}

func TestTraffic(t *testing.T) {
	c := &counter{keys: map[string]int64{}}
	a, b := httptest.NewServer(c), httptest.NewServer(c)
	defer a.Close()
	defer b.Close()
	traffic := demo.NewTraffic([]string{a.URL, b.URL + "/"}, 2000)
	traffic.Open(t.Context())
	until(t, "refusal and several users", func() bool {
		users, _ := c.seen("user:")
		addresses, _ := c.seen("ip:198.18.")
		return traffic.Stats().Attacker.Refused > 0 && traffic.Stats().Counted > 5 && users > 20 &&
			addresses > 20
	})
	c.mu.Lock()
	c.fails = true
	c.mu.Unlock()
	until(t, "failure", func() bool { return traffic.Stats().Failed > 0 })
	if _, err := traffic.Ask(t.Context(), 0); err == nil ||
		!strings.Contains(err.Error(), "503") {
		t.Errorf("asked in vain: %v", err)
	}
	traffic.Close()
	traffic.Close()
	c.mu.Lock()
	c.fails = false
	c.mu.Unlock()
	st := traffic.Stats()
	for node := range 2 {
		n, err := traffic.Ask(t.Context(), node)
		if err != nil || n != st.Counted {
			t.Errorf("counted %d, node %d says %d, %v", st.Counted, node, n, err)
		}
	}
	for prefix, l := range map[string]demo.Logins{"ip:198.18.": st.Others,
		demo.Attacker: st.Attacker} {
		if _, limited := c.seen(prefix); limited != l.Allowed+l.Refused {
			t.Errorf("%d events of %s, %+v", limited, prefix, st)
		}
	}
}
