package demo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/demo"
	"twotier.dev/twotier/internal/testing/must"
)

// nobody is a cluster that can't be changed.
type nobody struct{}

func (nobody) Kill(int) error                        { return nil }
func (nobody) Start(context.Context, int) error      { return nil }
func (nobody) KeyOf(_ int, prefix string) (k string) { return prefix }

// paper collects announcements.
type paper struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *paper) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *paper) count(text string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Count(p.text.String(), text)
}

// clients returns a client of each node, until the end of the test.
func clients(t *testing.T, urls ...string) []*client.Client {
	t.Helper()
	list, err := demo.Clients(urls)
	must.Succeed(t, err)
	t.Cleanup(func() {
		for _, c := range list {
			must.Succeed(t, c.Close(context.Background()))
		}
	})
	return list
}

// startStory starts a story over a node that answers nothing.
func startStory(t *testing.T, step time.Duration) (*demo.Story, *paper) {
	t.Helper()
	node := httptest.NewServer(&counter{fails: true})
	t.Cleanup(node.Close)
	urls := []string{node.URL, node.URL, node.URL}
	out := new(paper)
	s := demo.NewStory(demo.StoryOptions{Step: step, Token: "t", Cluster: nobody{}, Out: out})
	if p := s.Progress(); p.Chapter != -1 || p.Over || len(p.Chapters) != 6 {
		t.Errorf("before it begins: %+v", p)
	}
	s.Open(t.Context(), urls, []string{"a", "b", "c"}, demo.NewTraffic(clients(t, urls...), 300))
	t.Cleanup(s.Close)
	return s, out
}

// TestStoryGoesOnWhenAChapterFails announces the failure, and plays the other chapters.
func TestStoryGoesOnWhenAChapterFails(t *testing.T) {
	s, out := startStory(t, time.Millisecond)
	until(t, "end", func() bool { return s.Progress().Over })
	if n := out.count("this did not work: "); n != 6 {
		t.Errorf("%d chapters have failed", n)
	}
	if p := s.Progress(); p.Chapter != 5 || p.LeftMS != 0 ||
		!strings.Contains(p.Problem, "503") {
		t.Errorf("at the end: %+v", p)
	}
	if err := s.Steer("traffic"); err != nil {
		t.Error(err)
	}
	until(t, "second end", func() bool { return out.count("The story is over") == 2 })
}

// TestStoryIsSteered repeats a chapter, goes on, and goes to a chapter by its name.
func TestStoryIsSteered(t *testing.T) {
	s, out := startStory(t, time.Hour)
	reaches := func(text string, times int) {
		t.Helper()
		until(t, text, func() bool { return out.count(text) == times })
	}
	reaches("[1/6]", 1)
	for _, step := range []struct {
		to, text string
		times    int
	}{{"next", "[2/6]", 1}, {"again", "[2/6]", 2}, {"kill", "[5/6]", 1}, {"next", "[6/6]", 1},
		{"next", "[1/6]", 2}} {
		if err := s.Steer(step.to); err != nil {
			t.Error(err)
		}
		reaches(step.text, step.times)
	}
	if p := s.Progress(); p.Chapter != 0 || p.LeftMS < 1 || p.Over {
		t.Errorf("%+v", p)
	}
	if err := s.Steer("nowhere"); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("to nowhere: %v", err)
	}
}

// counter is a fake node that never forgets and allows three events per limited key.
type counter struct {
	mu    sync.Mutex
	keys  map[string]int64
	fails bool
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.Header().Set("Twotier-Process", "fake")
	if c.fails {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var request struct{ Ops []struct{ Op, Key string } }
	if r.URL.Path != "/v1/batch" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	results := []any{}
	for _, o := range request.Ops {
		result := map[string]any{"source": "memory"}
		if o.Op == "count" {
			result["counts"] = []any{map[string]any{"count": c.keys[o.Key]}}
		} else {
			c.keys[o.Key]++
			result["allowed"] = c.keys[o.Key] <= 3
		}
		results = append(results, result)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"results": results})
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
	traffic := demo.NewTraffic(clients(t, a.URL, b.URL), 2000)
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
