package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/redistest"
)

// output collects the output of a command.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// patience bounds everything that happens soon. It is long because the machine may be busy.
const patience = 5 * time.Minute

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, within time.Duration, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}

// fetch calls a node and returns the answer.
func fetch(t *testing.T, method, address, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s, %v", address, response.Status, answer, err)
	}
	return string(answer)
}

// TestDemo starts a demo, counts through every node, reads the same count from each, and stops the
// demo as Ctrl-C does.
func TestDemo(t *testing.T) {
	before := runtime.NumGoroutine()
	ctx, stop := context.WithCancel(t.Context())
	var out, errs output
	status := make(chan int, 1)
	go func() { status <- run(ctx, []string{"demo", "--rate", "90"}, nil, &out, &errs) }()
	eventually(t, "started", patience, func() bool {
		return strings.Contains(out.String(), "Ctrl-C ends it")
	})
	var urls []string
	for _, m := range regexp.MustCompile(`(?m)^  node [abc]  (http://127\.0\.0\.1:\d+)/ `).
		FindAllStringSubmatch(out.String(), -1) {
		urls = append(urls, m[1])
	}
	if len(urls) != demoNodes {
		t.Fatalf("%d nodes in\n%s", len(urls), out.String())
	}
	for k := range 20 { // enough that every node owns some
		for i, u := range urls {
			fetch(t, "POST", u+"/v1/add", fmt.Sprintf(`{"key":"test:%d","n":%d}`, k, i+1))
		}
		for _, u := range urls {
			if got := fetch(t, "GET", fmt.Sprintf("%s/v1/count?key=test:%d&window=24h", u, k),
				""); !strings.Contains(got, `"count":6,`) {
				t.Errorf("%s: %s, want 6", u, got)
			}
		}
	}
	for _, u := range urls {
		if got := fetch(t, "GET", u+"/", ""); !strings.Contains(got, "<title>twotier</title>") {
			t.Errorf("%s has no dashboard", u)
		}
	}
	eventually(t, "traffic", patience, func() bool {
		return !strings.Contains(fetch(t, "GET", urls[0]+"/v1/count?key=demo&window=24h", ""),
			`"count":0,`)
	})
	stop()
	if code := <-status; code != exitOK {
		t.Errorf("status %d, %s", code, errs.String())
	}
	sameCounts(t, out.String(), errs.String())
	// memberlist needs some seconds to end its last goroutines.
	eventually(t, "all goroutines gone", patience,
		func() bool { return runtime.NumGoroutine() <= before })
}

// sameCounts checks the last lines that a demo prints. If the machine has kept nodes from
// contacting each other for seconds, requests may have failed, and counts may be under way.
func sameCounts(t *testing.T, out, errs string) {
	t.Helper()
	m := regexp.MustCompile(
		`counted (\d+) times through all nodes; a says (\d+), b says (\d+), c says (\d+)\n`).
		FindStringSubmatch(out)
	if m != nil && strings.Contains(errs, "can't be reached") {
		t.Logf("the machine stood still: %q", m)
		return
	}
	if m == nil || m[1] == "0" || m[2] != m[1] || m[3] != m[1] || m[4] != m[1] {
		t.Errorf("the counts differ: %q in\n%s", m, out)
	}
	if !strings.Contains(out, "; 0 requests failed\n") {
		t.Errorf("requests failed:\n%s", out)
	}
}

// reserveDemo gives demos addresses that no other test uses, on this machine, until t ends.
func reserveDemo(t *testing.T) {
	t.Helper()
	before := demoListens
	t.Cleanup(func() { demoListens = before })
	for i := range demoListens {
		demoListens[i] = redistest.Reserve(t)
	}
}

// TestDemoEndsByItself also starts the demo while another one has its ports.
func TestDemoEndsByItself(t *testing.T) {
	reserveDemo(t)
	before := runtime.NumGoroutine()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var long, short, errs output
	status := make(chan int, 1)
	go func() {
		status <- run(ctx, []string{"demo", "--rate", "1", "--step", "0s"}, nil, &long, &errs)
	}()
	eventually(t, "started", patience, func() bool {
		return strings.Contains(long.String(), "Ctrl-C ends it")
	})
	if code := run(t.Context(), []string{"demo", "--for", "1s"}, nil, &short,
		&errs); code != exitOK {
		t.Errorf("status %d, %s", code, errs.String())
	}
	sameCounts(t, short.String(), errs.String())
	if strings.Contains(short.String(), demoListens[0]) {
		t.Errorf("the port is taken:\n%s", short.String())
	}
	stop()
	if code := <-status; code != exitOK {
		t.Errorf("status %d, %s", code, errs.String())
	}
	eventually(t, "all goroutines gone", patience,
		func() bool { return runtime.NumGoroutine() <= before })
}

// TestDemoStoppedAtOnce stops a demo while it starts.
func TestDemoStoppedAtOnce(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var out, errs output
	if code := run(ctx, []string{"demo"}, nil, &out, &errs); code != exitOK {
		t.Errorf("status %d, %s", code, errs.String())
	}
}
