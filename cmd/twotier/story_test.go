package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/demo"
)

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
	if err := json.Unmarshal([]byte(fetch(d.t, "GET", url+"/v1/demo", "")), &p); err != nil {
		d.t.Fatal(err)
	}
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
	if got := steer(t, d.urls[1], "", "kill"); got != 401 {
		t.Errorf("status %d without a token", got)
	}
	if got := steer(t, d.urls[1], d.token, "kill"); got != 200 {
		t.Errorf("status %d with the token", got)
	}
	eventually(t, "another proof", patience, func() bool {
		return strings.Contains(d.out.String(), "=> proof:2:")
	})
	eventually(t, "b is back once more", patience, func() bool {
		return strings.Count(d.out.String(), "The story is over") == 2
	})
	d.end(before)
	d.agrees()
}

// agrees checks that all nodes have counted the same at the end.
func (d *tour) agrees() {
	d.t.Helper()
	m := regexp.MustCompile(`counted (\d+) times through all nodes; a says (\d+), b says (\d+), ` +
		`c says (\d+)\n(?:(\d+) more may)?`).FindStringSubmatch(d.out.String())
	if m == nil || m[2] != m[3] || m[2] != m[4] || m[1] != m[2] && m[5] == "" {
		d.t.Errorf("the counts differ: %q in\n%s", m, d.out.String())
	}
}

// steer sends an order and returns the status of the answer.
func steer(t *testing.T, url, token, play string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/demo",
		strings.NewReader(fmt.Sprintf(`{"play":%q}`, play)))
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close() // only the status counts
	return response.StatusCode
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

// TestDemoWithoutAStory has the rule on, and no call to steer a story.
func TestDemoWithoutAStory(t *testing.T) {
	before := runtime.NumGoroutine()
	d := startTour(t, "0s")
	if got := steer(t, d.urls[0], d.token, "kill"); got != 404 {
		t.Errorf("status %d", got)
	}
	if rules := fetch(t, "GET", d.urls[2]+"/v1/rules", ""); !strings.Contains(rules, `"on"`) {
		t.Errorf("rules %s", rules)
	}
	d.end(before)
	if strings.Contains(d.out.String(), "[1/6]") {
		t.Errorf("told\n%s", d.out.String())
	}
}
