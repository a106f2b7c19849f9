package mirror_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/hostname"
	"twotier.dev/twotier/internal/mirror"
)

// stuck is a twotier that does not answer until it is released.
type stuck struct{ release chan struct{} }

func (s stuck) Batch(ctx context.Context, ops []client.Op) ([]client.Result, error) {
	select {
	case <-ctx.Done():
	case <-s.release:
	}
	return nil, errBatch
}

// TestQueueIsBounded fills the queue while twotier does not answer: more verdicts are dropped and
// counted, in number and in bytes, and Accept never waits.
func TestQueueIsBounded(t *testing.T) {
	s := stuck{make(chan struct{})}
	m := open(t, mirror.Options{Twotier: s, MaxWaiting: 100})
	m.Accept(one("first", start, 1, true)) // this one is on its way
	until(t, func() bool { return m.Report().Waiting == 0 })
	dropped := 0
	for i := range int64(150) {
		dropped += m.Accept(one("ann", start+i, 1, true))
	}
	if r := m.Report(); dropped != 50 || r.Dropped != 50 || r.Waiting != 100 {
		t.Errorf("want 50 dropped and 100 waiting: %d, %s", dropped, r.Summary())
	}
	close(s.release)
	until(t, func() bool { return m.Report().Waiting == 0 })
	if dropped := m.Accept(one("ann", start, 1, true)); dropped != 0 {
		t.Error("what has been compared still occupies the queue")
	}
	m.Close(t.Context())
	if r := m.Report(); r.Errors != 102 || r.Waiting != 0 || r.LastError != errBatch.Error() {
		t.Errorf("want 102 errors: %s", r)
	}
}

// TestQueueIsBoundedInBytes checks that long verdicts are dropped before there are too many.
func TestQueueIsBoundedInBytes(t *testing.T) {
	s := stuck{make(chan struct{})}
	defer close(s.release)
	m := open(t, mirror.Options{Twotier: s})
	long := one(strings.Repeat("k", 1<<20), start, 1, true)
	dropped := 0
	for range 200 {
		dropped += m.Accept(long)
	}
	if waiting := 200 - dropped; waiting < 32 || waiting > 65 {
		t.Errorf("%d MiB wait, want at most 64", waiting)
	}
}

// TestCloseDropsWhatIsLate checks that Close ends with its context, and accounts for the rest.
func TestCloseDropsWhatIsLate(t *testing.T) {
	m := open(t, mirror.Options{Twotier: stuck{make(chan struct{})}})
	m.Accept(one("first", start, 1, true))
	until(t, func() bool { return m.Report().Waiting == 0 })
	m.Accept(one("ann", start, 1, true))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	m.Close(ctx)
	if r := m.Report(); r.Dropped != 1 || r.Errors != 1 || r.Waiting != 0 {
		t.Errorf("want one error and one drop: %s", r.Summary())
	}
}

// TestReportIsBounded compares differences of many keys: the report keeps the keys that differ
// most.
func TestReportIsBounded(t *testing.T) {
	m := open(t, mirror.Options{Twotier: newLog()})
	for i := range int64(8) {
		m.Accept(one("ann", start+i, 1, true))
	}
	for i := range int64(6000) {
		m.Accept(one(fmt.Sprint("key:", i), start+i, most+1, true))
	}
	m.Close(t.Context())
	r := m.Report()
	if r.Stricter != 6003 || len(r.Keys) != 20 || r.KeysLeftOut != 6001-20 ||
		r.Keys[0].Key != "ann" || r.Keys[0].Stricter != 3 {
		t.Errorf("want ann and 19 others of 6001 keys: %d left out\n%s", r.KeysLeftOut, r)
	}
}

// TestOrderOfArrival delivers verdicts in the wrong order, and at the same time: they are compared
// in the order of their times, and allowed events before the refusals that they cause.
func TestOrderOfArrival(t *testing.T) {
	log := newLog()
	m := open(t, mirror.Options{Twotier: log})
	for _, i := range []int64{3, 0, 7, 1, 6, 2, 5, 4} {
		m.Accept(one("ann", start+i/4, 1, i < most))
	}
	m.Close(t.Context())
	if r := m.Report(); r.Agreed != 8 {
		t.Errorf("want complete agreement:\n%s", r)
	}
	m = open(t, mirror.Options{Twotier: newLog()})
	m.Accept(one("ann", start+1, 1, false))
	time.Sleep(10 * time.Millisecond) // the refused one waits for these
	m.Accept(one("ann", start, most, true))
	m.Accept(one("ann", start+2, 1, false))
	until(t, func() bool { return m.Report().Compared == 3 })
	if r := m.Report(); r.Agreed != 3 {
		t.Errorf("want complete agreement:\n%s", r)
	}
}

// post sends a body to a mirror.
func post(t *testing.T, h http.Handler, kind, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", kind)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestHandler sends verdicts and mistakes over HTTP, and reads the report in both forms.
func TestHandler(t *testing.T) {
	log := newLog()
	m := open(t, mirror.Options{Twotier: log})
	h := m.Handler(hostname.Check{})
	const verdicts = `{"key":"ann","n":2,"ts":1800000029000,"limits":[{"window":"1d","max":3}],"allowed":true}
{"checks":[{"key":"ann"},{"key":"bob","n":0,"rules":["r"]}],"ns":"","allowed":false}`
	w := post(t, h, "application/json; charset=utf-8", verdicts)
	if w.Code != http.StatusAccepted || w.Body.String() != `{"accepted":2,"dropped":0}`+"\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	until(t, func() bool { return m.Report().Compared+m.Report().Errors == 2 })
	first, second := log.asked[0], log.asked[1]
	if first.Key != "ann" || first.N != 2 || first.At.UnixMilli() != 1800000029000 ||
		first.Limits[0].Window != 24*time.Hour || !first.Charge {
		t.Errorf("%+v", first)
	}
	if len(second.Checks) != 2 || !second.Checks[1].Peek || second.Checks[1].Rules[0] != "r" ||
		second.Checks[0].Limits[0].Max != most || second.At.UnixMilli() != start || !second.DryRun {
		t.Errorf("%+v", second)
	}
	for body, want := range map[string]string{
		``:                                   `no verdict`,
		`{"key":"a"}`:                        `verdict 1: allowed: missing`,
		`{"allowed":true}`:                   `key: missing`,
		`{"key":"a","allowed":1}`:            `allowed`,
		`{"key":"a","allow":true}`:           `unknown field \"allow\"`,
		`{"key":"a","allowed":true}x`:        `verdict 2: invalid character`,
		`{"key":"a","allowed":true,"n":-1}`:  `n: -1 is not a number from 0`,
		`{"key":"a","allowed":true,"ts":-1}`: `ts: -1 is not a time`,
		`{"key":"a","allowed":true,"checks":[{"key":"b"}]}`:                  `checks: want either`,
		`{"allowed":true,"checks":[{"key":"b"},{"n":1}]}`:                    `checks[1].key: missing`,
		`{"key":"a","allowed":true,"limits":[{"window":"1q","max":1}]}`:      `limits[0].window: \"1q\"`,
		`{"key":"a","allowed":true,"limits":[{"window":"1us","max":1}]}`:     `whole milliseconds`,
		`{"key":"a","allowed":true,"limits":[{"window":"century","max":1}]}`: `\"century\"`,
		`{"key":"a","allowed":true,"limits":[{"window":"month","max":-1}]}`:  `max: -1`,
	} {
		if w := post(t, h, "application/json", body); w.Code != http.StatusBadRequest ||
			!strings.Contains(w.Body.String(), want) ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s, want %s", body, w.Code, w.Body, want)
		}
	}
	if w := post(t, h, "text/plain", verdicts); w.Code != http.StatusUnsupportedMediaType {
		t.Errorf("text/plain: %d %s", w.Code, w.Body)
	}
	if w := post(t, h, "application/json", strings.Repeat(" ", 1<<20+1)); w.Code !=
		http.StatusRequestEntityTooLarge {
		t.Errorf("too long: %d %s", w.Code, w.Body)
	}
	checkReports(t, h)
}

func checkReports(t *testing.T, h http.Handler) {
	t.Helper()
	get := func(path string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		text, err := io.ReadAll(w.Body)
		if err != nil || w.Code != http.StatusOK {
			t.Fatalf("%s: %d, %v", path, w.Code, err)
		}
		return string(text)
	}
	var r mirror.Report
	if err := json.Unmarshal([]byte(get("/")), &r); err != nil || r.Invalid != 16 ||
		r.LastInvalid == "" || r.Reasons == nil || r.Keys == nil {
		t.Errorf("%+v, %v", r, err)
	}
	if text := get("/text"); !strings.Contains(text, "invalid 16") {
		t.Error(text)
	}
}

// TestSummaryOfNothing: a share of no verdicts is not printed.
func TestSummaryOfNothing(t *testing.T) {
	r := &mirror.Report{Agreement: 1, Invalid: 2}
	if got := r.Summary(); got != "0 compared; waiting 0, dropped 0, errors 0, invalid 2" {
		t.Error(got)
	}
}

// TestUnknownCallsAreReported reports them after the compared verdicts.
func TestUnknownCallsAreReported(t *testing.T) {
	r := &mirror.Report{Compared: 1, Agreed: 1, Agreement: 1, UnknownCalls: 3, LastUnknown: "5f3a"}
	const want = "\n3 EVALSHA of a script not in --mapping: 5f3a (add sha:)\n"
	if got := r.String(); !strings.Contains(got, want) || strings.Contains(r.Summary(), "5f3a") {
		t.Error(got)
	}
}

// TestBestModel: a model that predicts few verdicts is not mentioned.
func TestBestModel(t *testing.T) {
	for model, want := range map[mirror.Reason]string{
		mirror.CountsRefused:    "a model that counts refused requests (97%)",
		mirror.FixedWindow:      "a model with windows that begin at multiples",
		mirror.FirstEventWindow: "a model with windows that begin with their first event",
		mirror.WeightedWindow:   "a model that estimates the sliding window",
		mirror.TokenBucket:      "a model that refills continuously",
	} {
		r := &mirror.Report{Compared: 100, Agreed: 30, Agreement: 0.3,
			Keys:   []mirror.KeyReport{{Key: "ann"}},
			Models: []mirror.ModelShare{{Model: model, Share: 0.97}}}
		if got := r.String(); !strings.Contains(got, "the old limiter is best predicted by "+want) {
			t.Errorf("%s: %s", model, got)
		}
		r.Models[0].Share = 0.397
		if got := r.String(); strings.Contains(got, "predicted") {
			t.Errorf("39.7%%: %s", got)
		}
	}
}

var background = http.Client{Timeout: time.Second}

func sendVerdict(url, key string, allowed bool) {
	body, _ := json.Marshal(map[string]any{"key": key, "rules": []string{"login"},
		"allowed": allowed})
	answer, err := background.Post(url, "application/json", bytes.NewReader(body))
	if err == nil { // without a mirror, all goes on as before
		answer.Body.Close()
	}
}

// The application posts what its old limiter has decided, and goes on.
func Example() {
	m, err := mirror.New(mirror.Options{Twotier: newLog()})
	if err != nil {
		panic(err)
	}
	m.Open(context.Background())
	defer m.Close(context.Background())
	server := httptest.NewServer(m.Handler(hostname.Check{}))
	defer server.Close()

	oldLimiter := func(string) bool { return true }

	allowed := oldLimiter("ann")
	sendVerdict(server.URL, "user:ann", allowed)

	m.Close(context.Background())
	fmt.Println(m.Report().Agreed, "of", m.Report().Compared)
	// Output: 1 of 1
}
