package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/internal/demo"
	"twotier.dev/twotier/internal/testing/must"
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

// call calls a node, with headers and their values in turn, and returns the answer.
func call(t *testing.T, method, address, body string, header ...string) (status int,
	answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address,
		strings.NewReader(body))
	must.Succeed(t, err)
	request.Close = true
	request.Header.Set("Content-Type", "application/json")
	for pair := range slices.Chunk(header, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	response, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return response.StatusCode, string(text)
}

// fetch is call for an answer with status 200.
func fetch(t *testing.T, method, address, body string) string {
	t.Helper()
	status, answer := call(t, method, address, body)
	if status != http.StatusOK {
		t.Fatalf("%s: status %d, %s", address, status, answer)
	}
	return answer
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

// TestDemoEndsByItself starts a demo while another one has its ports.
func TestDemoEndsByItself(t *testing.T) {
	before := runtime.NumGoroutine()
	d := startTour(t, "0s")
	var short, errs output
	args := []string{"demo", "--for", "1s", "--step", "0s"}
	if code := run(t.Context(), args, nil, &short, &errs); code != exitOK {
		t.Errorf("status %d, %s", code, errs.String())
	}
	if strings.Contains(short.String(), demoListens[0]) {
		t.Errorf("the port is taken:\n%s", short.String())
	}
	agree(t, short.String())
	d.end(before)
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

// tour is a demo that runs.
type tour struct {
	t         *testing.T
	out, errs output
	stop      context.CancelFunc
	status    chan int
	token     string
	urls      []string
}

// startTour starts a demo with chapters of this length.
func startTour(t *testing.T, step string) *tour {
	t.Helper()
	reserveDemo(t)
	ctx, stop := context.WithCancel(t.Context())
	d := &tour{t: t, stop: stop, status: make(chan int, 1)}
	go func() {
		d.status <- run(ctx, []string{"demo", "--rate", "90", "--step", step}, nil, &d.out, &d.errs)
	}()
	eventually(t, "started", patience, func() bool {
		return strings.Contains(d.out.String(), "Ctrl-C ends it")
	})
	link := regexp.MustCompile(`open (http://127\.0\.0\.1:\d+)/#demo=(\w+) `).
		FindStringSubmatch(d.out.String())
	if link == nil {
		t.Fatalf("no link in\n%s", d.out.String())
	}
	d.token = link[2]
	for _, m := range regexp.MustCompile(`(?m)^  node [abc]  (http://127\.0\.0\.1:\d+)/ `).
		FindAllStringSubmatch(d.out.String(), -1) {
		d.urls = append(d.urls, m[1])
	}
	return d
}

// end stops the demo as Ctrl-C does, and checks that it ends well and leaves nothing.
func (d *tour) end(goroutines int) {
	d.t.Helper()
	d.stop()
	if code := <-d.status; code != exitOK {
		d.t.Errorf("status %d, %s\n%s", code, d.out.String(), d.errs.String())
	}
	for _, url := range d.urls {
		if !isRefused(url) {
			d.t.Errorf("%s is still there", url)
		}
	}
	eventually(d.t, "all goroutines gone", patience,
		func() bool { return runtime.NumGoroutine() <= goroutines })
}

// isRefused reports whether nobody listens at the address of a URL.
func isRefused(url string) bool {
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err == nil {
		_ = conn.Close() // it was only a question
	}
	return err != nil
}

// progress asks a node how far the story is.
func (d *tour) progress(url string) (p demo.Progress) {
	d.t.Helper()
	must.Succeed(d.t, json.Unmarshal([]byte(fetch(d.t, "GET", url+"/v1/demo", "")), &p))
	return p
}

// told matches the announcements of a whole story, in order, with a space for each line break.
var told = []string{
	`\[1/6\] Logins, and an attacker `,
	`=> 203.0.113.66: [1-9]\d* logins, 0 refused. The others: [1-9]\d* logins, 0 refused. `,
	`\[2/6\] The rule in shadow `,
	`=> 203.0.113.66: \d+ logins, 0 refused, [1-9]\d* would have been. The others: [1-9]\d* ` +
		`logins, 0 refused. `,
	`\[3/6\] The rule is on `,
	`=> 203.0.113.66: \d+ logins, [1-9]\d* refused. The others: [1-9]\d* logins, 0 refused. `,
	`\[4/6\] A ban `,
	`=> Banned until \d\d:\d\d:\d\d. Since then, 203.0.113.66: (\d+) logins, (\d+) refused. ` +
		`The others: [1-9]\d* logins, 0 refused. `,
	`\[5/6\] A node is killed `,
	`=> proof:1:\d+: 200 counted before the kill, 100 after it. a reports 300, b is dead, ` +
		`c reports 300. `,
	`\[6/6\] The node is back `,
	`=> proof:1:\d+: 400 counted in all, the last 100 through b. a reports 400, b reports 400, ` +
		`c reports 400. `,
	`The story is over`,
}

// TestDemoTellsAStory runs the whole story: everything is announced in order, only the attacker is
// refused, and not before the rule is on; the killed node refuses connections, and comes back with
// all counts. A chapter is repeated with the token.
func TestDemoTellsAStory(t *testing.T) {
	before := runtime.NumGoroutine()
	d := startTour(t, "2s")
	eventually(t, "node b is killed", patience, func() bool {
		return d.progress(d.urls[0]).Chapter == 4 && isRefused(d.urls[1])
	})
	eventually(t, "the story is over", patience, func() bool {
		return strings.Contains(d.out.String(), "The story is over")
	})
	m := regexp.MustCompile(strings.Join(told, `.*?`)).
		FindStringSubmatch(strings.Join(strings.Fields(d.out.String()), " "))
	if m == nil {
		t.Fatalf("told\n%s\n%s", d.out.String(), d.errs.String())
	}
	if m[1] != m[2] {
		t.Errorf("the banned attacker made %s logins, and %s were refused", m[1], m[2])
	}
	if strings.Contains(d.out.String(), "this did not work") {
		t.Errorf("told\n%s", d.out.String())
	}
	for _, url := range d.urls {
		if p := d.progress(url); !p.Over || p.Chapter != 5 {
			t.Errorf("%s shows %+v", url, p)
		}
	}
	if got := d.kill(1, ""); got != 401 {
		t.Errorf("status %d without a token", got)
	}
	if got := d.kill(1, d.token); got != 200 {
		t.Errorf("status %d with the token", got)
	}
	eventually(t, "another proof", patience, func() bool {
		return strings.Contains(d.out.String(), "=> proof:2:")
	})
	eventually(t, "b is back once more", patience, func() bool {
		return strings.Count(d.out.String(), "The story is over") == 2
	})
	d.end(before)
	agree(t, d.out.String())
}

// agree checks that all nodes of a demo have counted the same, by its last lines.
func agree(t *testing.T, out string) {
	t.Helper()
	m := regexp.MustCompile(`counted (\d+) times through all nodes; a says (\d+), b says (\d+), ` +
		`c says (\d+)\n(?:(\d+) more may)?`).FindStringSubmatch(out)
	if m == nil || m[1] == "0" || m[2] != m[3] || m[2] != m[4] || m[1] != m[2] && m[5] == "" {
		t.Errorf("the counts differ: %q in\n%s", m, out)
	}
}

// kill orders the chapter of the kill at a node, and returns the status of the answer.
func (d *tour) kill(at int, token string) (status int) {
	d.t.Helper()
	var header []string
	if token != "" {
		header = []string{"Authorization", "Bearer " + token}
	}
	status, _ = call(d.t, http.MethodPost, d.urls[at]+"/v1/demo", `{"play":"kill"}`, header...)
	return status
}

// TestDemoStopsInAnyChapter presses Ctrl-C as each chapter begins.
func TestDemoStopsInAnyChapter(t *testing.T) {
	for chapter := 2; chapter <= 6; chapter++ {
		t.Run(fmt.Sprint(chapter), func(t *testing.T) {
			before := runtime.NumGoroutine()
			d := startTour(t, "100ms")
			eventually(t, "the chapter", patience, func() bool {
				return strings.Contains(d.out.String(), fmt.Sprintf("\n[%d/6] ", chapter))
			})
			d.end(before)
		})
	}
}

// TestDemoWithoutAStory has the rule on, and no call to steer a story. Every node counts, and
// reports the counts of all.
func TestDemoWithoutAStory(t *testing.T) {
	before := runtime.NumGoroutine()
	d := startTour(t, "0s")
	if got := d.kill(0, d.token); got != 404 {
		t.Errorf("status %d", got)
	}
	if rules := fetch(t, "GET", d.urls[2]+"/v1/rules", ""); !strings.Contains(rules, `"on"`) {
		t.Errorf("rules %s", rules)
	}
	for k := range 20 { // enough that every node owns some
		for i, u := range d.urls {
			fetch(t, "POST", u+"/v1/add", fmt.Sprintf(`{"key":"test:%d","n":%d}`, k, i+1))
		}
		for _, u := range d.urls {
			if got := fetch(t, "GET", fmt.Sprintf("%s/v1/count?key=test:%d&window=24h", u, k),
				""); !strings.Contains(got, `"count":6,`) {
				t.Errorf("%s: %s, want 6", u, got)
			}
		}
	}
	eventually(t, "traffic", patience, func() bool {
		return !strings.Contains(fetch(t, "GET", d.urls[0]+"/v1/count?key=demo&window=24h", ""),
			`"count":0,`)
	})
	d.end(before)
	// Nodes can't be reached while the machine stands still.
	if out := d.out.String(); strings.Contains(out, "[1/6]") || !strings.Contains(out,
		"; 0 requests failed\n") && !strings.Contains(d.errs.String(), "can't be reached") {
		t.Errorf("told\n%s", out)
	}
	agree(t, d.out.String())
}
