package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/testing/must"
)

// webhook keeps the requests that it receives, and answers each with the next of its statuses, or
// with the last one.
type webhook struct {
	statuses []int
	hold     chan struct{} // if not nil, answers wait until it is closed

	mu     sync.Mutex
	bodies []string
}

// RoundTrip implements [http.RoundTripper].
func (w *webhook) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.bodies = append(w.bodies, string(body))
	status := http.StatusNoContent
	if len(w.statuses) > 0 {
		status = w.statuses[min(len(w.bodies), len(w.statuses))-1]
	}
	w.mu.Unlock()
	if w.hold != nil {
		select {
		case <-w.hold:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if status == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: status, Body: http.NoBody, Request: r,
		Header: http.Header{"Location": {"http://other.example/"}}}, nil
}

// received returns the keys of all received notifications, and the number of requests.
func (w *webhook) received(t *testing.T) (keys []string, requests int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, body := range w.bodies {
		var list []notification
		must.Succeed(t, json.Unmarshal([]byte(body), &list))
		for _, one := range list {
			keys = append(keys, one.Key)
		}
	}
	return keys, len(w.bodies)
}

// open returns a running notifier that posts to w.
func open(t *testing.T, w *webhook, log io.Writer) *Notifier {
	t.Helper()
	n, err := New(Options{URL: "http://user:secret@hooks.example/secret?token=secret", Node: "a",
		Logger: slog.New(slog.NewTextHandler(log, nil)), transport: w})
	must.Succeed(t, err)
	n.Open()
	return n
}

// closeNow closes a notifier and returns the error.
func closeNow(n *Notifier) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return n.Close(ctx)
}

// cross records a crossing of 80 % of 15 events in a minute by a key.
func cross(n *Notifier, key string) {
	n.Record(&decisions.Decision{Key: []byte(key), Rule: &twotier.Rule{Name: "login", Warn: 80},
		Limits: []twotier.LimitResult{{Window: 60_000, Max: 15, Count: 12}}})
}

// TestNotification compares requests over a connection with the crossings they are about.
func TestNotification(t *testing.T) {
	type request struct{ method, uri, kind, user, body string }
	requests := make(chan request, 10)
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		requests <- request{r.Method, r.RequestURI, r.Header.Get("Content-Type"),
			user + ":" + password, string(body)}
	}))
	defer web.Close()
	n, err := New(Options{Node: "a-1", Version: "1.2",
		URL: strings.Replace(web.URL, "http://", "http://me:pass@", 1) + "/warn?token=x"})
	must.Succeed(t, err)
	limits := []twotier.LimitResult{{Window: 60_000, Max: 50, Count: 2},
		{Window: 86_400_000, Max: 50, Count: 41}}
	n.Record(&decisions.Decision{NS: []byte("sms"), Key: []byte(`k"ä`), Limits: limits,
		Rule: &twotier.Rule{Name: "receiver", Namespace: "sms", Warn: 80}})
	n.Record(&decisions.Decision{Key: []byte("k"), Limits: limits[1:]})
	n.Record(&decisions.Decision{Key: []byte("k"), Limits: limits, Distinct: true,
		Rule: &twotier.Rule{Name: "devices", Warn: 5, State: twotier.RuleShadow}})
	began := time.Now()
	n.Open()
	must.Succeed(t, n.Close(t.Context()))
	got := <-requests
	var list []map[string]any
	must.Succeed(t, json.Unmarshal([]byte(got.body), &list))
	for _, one := range list {
		at, err := time.Parse(time.RFC3339, fmt.Sprint(one["time"]))
		if err != nil || began.Sub(at).Abs() > time.Minute {
			t.Errorf("the time is %v", one["time"])
		}
		delete(one, "time")
	}
	if got.body = fmt.Sprint(list); got != (request{"POST", "/warn?token=x", "application/json",
		"me:pass", `[map[at:80 count:41 key:k"ä max:50 namespace:sms node:a-1 rule:receiver ` +
			"window:24h] map[at:5 count:41 distinct:true key:k max:50 namespace:default " +
			"node:a-1 rule:devices shadow:true window:24h]]"}) {
		t.Errorf("%+v", got)
	}
	if n.Sent() != 2 || n.Dropped() != 0 || len(requests) != 0 {
		t.Errorf("%d sent, %d dropped, %d more requests", n.Sent(), n.Dropped(), len(requests))
	}
}

// TestFirstCrossings records crossings again and again: each is sent once in its window, and
// another key, limit or level is another crossing.
func TestFirstCrossings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(webhook)
		n := open(t, w, io.Discard)
		rule := &twotier.Rule{Name: "login", Warn: 80}
		raised := &twotier.Rule{Name: "login", Warn: 90}
		minute := []twotier.LimitResult{{Window: 60_000, Max: 15, Count: 14}}
		hour := []twotier.LimitResult{{Window: 3_600_000, Max: 15, Count: 12}}
		more := []twotier.LimitResult{{Window: 60_000, Max: 16, Count: 13}}
		all := []decisions.Decision{
			{Key: []byte("minute"), Rule: rule, Limits: minute},
			{Key: []byte("hour"), Rule: rule, Limits: hour},
			{Key: []byte("hour"), Rule: rule, Limits: minute},
			{Key: []byte("minute"), Rule: raised, Limits: minute},
			{Key: []byte("minute"), Rule: rule, Limits: more},
			{Key: []byte("minute"), Rule: &twotier.Rule{Name: "other", Warn: 80}, Limits: minute},
			{Key: []byte("minute"), Rule: rule, Limits: minute, Distinct: true},
			{Key: []byte("minute"), Rule: &twotier.Rule{Name: "login", Namespace: "sms", Warn: 80},
				Limits: minute},
		}
		record := func() {
			for i := range all {
				n.Record(&all[i])
			}
			synctest.Wait()
		}
		for range 3 {
			record()
			time.Sleep(15 * time.Second)
		}
		if keys, _ := w.received(t); len(keys) != len(all) {
			t.Errorf("within a window: %v", keys)
		}
		time.Sleep(15 * time.Second)
		record()
		keys, _ := w.received(t)
		if again := strings.Join(keys[len(all):], " "); again !=
			"minute hour minute minute minute minute minute" {
			t.Errorf("after a minute: %s", again)
		}
		must.Succeed(t, closeNow(n))
	})
}

// TestRetries has the webhook fail in different ways: what may pass is tried again, and anything
// else is dropped at once. No redirect is followed.
func TestRetries(t *testing.T) {
	for _, tt := range []struct {
		name          string
		statuses      []int
		requests      int
		sent, dropped int64
	}{
		{"busy", []int{503, 429, 408, 200}, 4, 1, 0},
		{"gone", []int{0, 0, 204}, 3, 1, 0},
		{"for good", []int{500}, maxAttempts, 0, 1},
		{"refused", []int{400}, 1, 0, 1},
		{"moved", []int{307}, 1, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &webhook{statuses: tt.statuses}
				n := open(t, w, io.Discard)
				cross(n, "k")
				time.Sleep(time.Hour)
				keys, requests := w.received(t)
				if len(keys) != tt.requests || requests != tt.requests || n.Sent() != tt.sent ||
					n.Dropped() != tt.dropped {
					t.Errorf("%d requests, %d sent, %d dropped", requests, n.Sent(), n.Dropped())
				}
				must.Succeed(t, closeNow(n))
			})
		})
	}
}

// TestQueueIsBounded records more crossings than fit while the webhook hangs: nothing waits, the
// rest is dropped and counted, and a dropped key is tried again with its next request.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &webhook{hold: make(chan struct{})}
		n := open(t, w, io.Discard)
		cross(n, "first")
		synctest.Wait() // it is on its way
		for i := range maxQueue + 10 {
			cross(n, fmt.Sprint(i))
		}
		if n.Dropped() != 10 {
			t.Errorf("%d were dropped, want 10", n.Dropped())
		}
		close(w.hold)
		synctest.Wait()
		keys, requests := w.received(t)
		if len(keys) != maxQueue+1 || requests != 1+(maxQueue+maxBatch-1)/maxBatch {
			t.Errorf("%d notifications in %d requests", len(keys), requests)
		}
		cross(n, fmt.Sprint(maxQueue))
		cross(n, fmt.Sprint(maxQueue-1))
		must.Succeed(t, closeNow(n))
		if keys, _ := w.received(t); keys[len(keys)-1] != fmt.Sprint(maxQueue) ||
			n.Sent() != maxQueue+2 {
			t.Errorf("%d sent, the last is %s", n.Sent(), keys[len(keys)-1])
		}
	})
}

// TestClose closes a notifier whose webhook fails: each waiting notification is tried once more,
// and the error counts those that were dropped.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &webhook{statuses: []int{500}}
		n := open(t, w, io.Discard)
		cross(n, "a")
		synctest.Wait() // the first attempt has failed
		cross(n, "b")
		began := time.Now()
		if err := closeNow(n); err == nil || !strings.Contains(err.Error(), "2 notifications") {
			t.Errorf("a webhook that fails: %v", err)
		}
		if keys, _ := w.received(t); strings.Join(keys, "") != "aab" || time.Since(began) > 0 {
			t.Errorf("%s after %v", keys, time.Since(began))
		}
		cross(n, "c")
		if err := closeNow(n); err != nil || n.Dropped() != 3 {
			t.Errorf("again: %v, %d dropped", err, n.Dropped())
		}
	})
}

// TestLogHidesTheURL logs failures, each once until a request succeeds, with the host alone.
func TestLogHidesTheURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n := open(t, &webhook{statuses: []int{400, 301, 200, 0}}, &log)
		for _, key := range []string{"a", "b", "c", "d"} {
			cross(n, key)
			time.Sleep(time.Hour)
		}
		must.Succeed(t, closeNow(n))
		text := log.String()
		if strings.Contains(text, "secret") || strings.Count(text, "WARN") != 2 ||
			strings.Count(text, "sent again") != 1 || !strings.Contains(text, "400 Bad Request") ||
			!strings.Contains(text, "connection refused") ||
			strings.Count(text, "host=hooks.example") != 3 {
			t.Error(text)
		}
	})
	if _, err := New(Options{URL: "http://secret%zz"}); err == nil ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("the error of a bad URL is %v", err)
	}
}

// TestRecentIsBounded fills the memory of crossings: it holds at least a generation of the last
// ones, and forgets older ones.
func TestRecentIsBounded(t *testing.T) {
	r := newRecent()
	const times = 5 * generation
	for i := range uint64(times) {
		r.add(i, time.Hour)
	}
	if n := len(r.newer) + len(r.older); n > 2*generation {
		t.Errorf("it holds %d", n)
	}
	if !r.has(times-generation, time.Minute) || r.has(times-1, time.Hour) ||
		r.has(times-2*generation-1, 0) {
		t.Error("it remembers others than the last ones")
	}
}

// TestCalendarCrossings notifies once in each calendar period of a limit, and names the period.
func TestCalendarCrossings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(webhook)
		n := open(t, w, io.Discard)
		rule := &twotier.Rule{Name: "quota", Warn: 80}
		cross := func(window string) {
			period, err := twotier.ParsePeriod(window)
			must.Succeed(t, err)
			n.Record(&decisions.Decision{Key: []byte(window), Rule: rule,
				Limits: []twotier.LimitResult{{Period: period, Max: 15, Count: 12}}})
			synctest.Wait()
		}
		// The clock of the bubble begins at midnight in UTC.
		for range 24 {
			cross("day")
			time.Sleep(time.Hour)
		}
		if keys, _ := w.received(t); len(keys) != 1 {
			t.Errorf("within a day: %v", keys)
		}
		if want := `"window":"day"`; !strings.Contains(w.bodies[0], want) {
			t.Errorf("%s, want %s", w.bodies[0], want)
		}
		cross("day")
		cross("day.6")
		if keys, _ := w.received(t); len(keys) != 3 {
			t.Errorf("on the next day, and of another period: %v", keys)
		}
		must.Succeed(t, closeNow(n))
	})
}
