package resp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/resp"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/leaparray"
)

// TestSameAnswersAsHTTP sends the same random operations, valid and invalid, through HTTP and RESP
// to two counters whose clocks agree. Every HTTP answer must have the equivalent RESP answer. Their
// ladder has one level, so that the counters agree however much either has folded.
func TestSameAnswersAsHTTP(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 14))
	ladder, err := leaparray.NewLadder(0, leaparray.Level{Width: time.Minute, Count: 24*60 + 1})
	must.Succeed(t, err)
	overHTTP, overRESP := newServiceBy(t, ladder), newServiceBy(t, ladder)
	ask := serveHTTP(t, overHTTP)
	c := dial(t, serve(t, resp.Options{Service: overRESP}))
	said := map[string]int{}
	for range 300 {
		step := rnd.Int64N(40_000)
		overHTTP.now.Add(step)
		overRESP.now.Add(step)
		asks := make([]operation, 1+rnd.IntN(40))
		pipeline := ""
		for i := range asks {
			asks[i] = draw(rnd, overHTTP.now.Load())
			pipeline += encode(asks[i].words()...)
		}
		c.send(pipeline)
		for i, want := range ask(asks) {
			said[strings.Fields(want)[0]]++
			if got := c.reply(); unprefixed(got) != unprefixed(want) {
				t.Fatalf("%q: RESP answers %s, HTTP %s", asks[i].words(), got, want)
			}
		}
	}
	for _, kind := range []string{"[1", "[0", "OK", "-ERR"} {
		if said[kind] == 0 {
			t.Errorf("no answer was %s...: %v", kind, said)
		}
	}
}

// operation is an operation in either protocol. Encoded as JSON, it is the body of an HTTP request.
type operation struct {
	Op          string     `json:"op"`
	NS          string     `json:"ns,omitempty"`
	Key         string     `json:"key,omitempty"`
	N           *int64     `json:"n,omitempty"`
	TS          int64      `json:"ts,omitempty"`
	At          int64      `json:"at,omitempty"`
	Ack         string     `json:"ack,omitempty"`
	CountDenied bool       `json:"count_denied,omitempty"`
	DryRun      bool       `json:"dry_run,omitempty"`
	Limits      []limit    `json:"limits,omitempty"`
	Window      string     `json:"window,omitempty"`
	Checks      []oneCheck `json:"checks,omitempty"`
}

type limit struct {
	Window string `json:"window"`
	Max    int64  `json:"max"`
}

type oneCheck struct {
	NS     string  `json:"ns,omitempty"`
	Key    string  `json:"key"`
	N      *int64  `json:"n,omitempty"`
	Limits []limit `json:"limits"`
}

// draw returns a random operation; some of them are refused.
func draw(rnd *rand.Rand, now int64) operation {
	pick := func(from ...string) string { return from[rnd.IntN(len(from))] }
	rare := func(odds int) bool { return rnd.IntN(odds) == 0 }
	check := func() oneCheck {
		c := oneCheck{NS: pick("", "", "default", "login"),
			Key: pick("a", "b", "c", "d", "schlüssel", "{a}b")}
		if rare(3) {
			n := 1 + rnd.Int64N(4)
			c.N = &n
		}
		for range 1 + rnd.IntN(3) {
			c.Limits = append(c.Limits, limit{pick("1s", "30s", "1m", "37m", "24h", "1d"),
				rnd.Int64N(60)})
		}
		if !rare(10) {
			return c
		}
		mistake(rnd, &c)
		return c
	}
	o := operation{Op: pick("add", "count", "acquire", "acquire")}
	c := check()
	o.NS, o.Key = c.NS, c.Key
	if o.Op == "count" {
		for i, l := range c.Limits {
			o.Window += [...]string{"", ","}[min(i, 1)] + l.Window
		}
		if rare(5) {
			o.At = now - rnd.Int64N(100_000_000)
		}
		return o
	}
	if o.N = c.N; rare(5) {
		o.TS = now - rnd.Int64N(100_000_000)
	}
	o.Ack = pick("", "", "memory", "redis")
	if o.Op == "add" {
		return o
	}
	o.CountDenied, o.DryRun = rare(6), rare(4)
	if rare(3) {
		o.NS, o.Key, o.N, o.Checks = "", "", nil, []oneCheck{c, check()}
		o.Checks = append(o.Checks, slices.Repeat([]oneCheck{check()}, rnd.IntN(2))...)
		return o
	}
	o.Limits = c.Limits
	return o
}

// mistake makes a single mistake: of several, each protocol may name a different one.
func mistake(rnd *rand.Rand, c *oneCheck) {
	pick := func(from ...string) string { return from[rnd.IntN(len(from))] }
	c.N = nil
	switch rnd.IntN(5) {
	case 0:
		c.NS = pick("a b", "ü", strings.Repeat("n", 65))
	case 1:
		c.Key = pick("\x01", "a\x7f", strings.Repeat("k", 257))
	case 2:
		c.Limits[0].Window = pick("0s", "400d", "minute", "1.5ms", "25h", "99999999999d")
	case 3:
		c.Limits[0].Max = -1
	case 4:
		n := []int64{0, -3, 1 << 31, -1 << 31}[rnd.IntN(4)]
		c.N = &n
	}
}

// words returns the command for o.
func (o *operation) words() []string {
	words := []string{"TT." + strings.ToUpper(o.Op)}
	check := func(c oneCheck) {
		words = append(words, c.Key)
		if c.NS != "" {
			words = append(words, "NS", c.NS)
		}
		if c.N != nil {
			words = append(words, "N", strconv.FormatInt(*c.N, 10))
		}
		for _, l := range c.Limits {
			words = append(words, "LIMIT", l.Window, strconv.FormatInt(l.Max, 10))
		}
	}
	switch {
	case o.Op == "count":
		words = append(append(words, o.Key), strings.Split(o.Window, ",")...)
		words = append(words, "BOUNDS")
		if o.NS != "" {
			words = append(words, "NS", o.NS)
		}
	case len(o.Checks) == 0:
		check(oneCheck{o.NS, o.Key, o.N, o.Limits})
	default:
		for i, c := range o.Checks {
			if i > 0 {
				words = append(words, "KEY")
			}
			check(c)
		}
	}
	for name, v := range map[string]int64{"TS": o.TS, "AT": o.At} {
		if v != 0 {
			words = append(words, name, strconv.FormatInt(v, 10))
		}
	}
	if o.Ack != "" {
		words = append(words, "ACK", o.Ack)
	}
	if o.CountDenied {
		words = append(words, "COUNTDENIED")
	}
	if o.DryRun {
		words = append(words, "DryRun")
	}
	return words
}

// answer is the HTTP answer to an operation.
type answer struct {
	Error *struct {
		Status int    `json:"status"`
		Detail string `json:"detail"`
	} `json:"error"`
	Allowed    bool    `json:"allowed"`
	RetryAfter int64   `json:"retry_after_ms"`
	Limits     []state `json:"limits"`
	Checks     []struct {
		Limits []state `json:"limits"`
	} `json:"checks"`
	Counts []struct{ Count, Min, Max int64 } `json:"counts"`
}

type state struct{ Count, Remaining int64 }

// reply returns the RESP reply that corresponds to the answer.
func (a *answer) reply(op string) string {
	var numbers []int64
	switch {
	case a.Error != nil && a.Error.Status == http.StatusUnprocessableEntity:
		return "-ERR " + a.Error.Detail
	case a.Error != nil:
		return fmt.Sprintf("status %d: %s", a.Error.Status, a.Error.Detail)
	case op == "add":
		return "OK"
	case op == "count":
		for _, c := range a.Counts {
			numbers = append(numbers, c.Count, c.Min, c.Max)
		}
	default:
		numbers = []int64{0, a.RetryAfter}
		if a.Allowed {
			numbers[0] = 1
		}
		for _, c := range a.Checks {
			a.Limits = append(a.Limits, c.Limits...)
		}
		for _, l := range a.Limits {
			numbers = append(numbers, l.Count, l.Remaining)
		}
	}
	return strings.ReplaceAll(fmt.Sprint(numbers), ",", "")
}

// serveHTTP serves a service over HTTP. It returns a function that sends a batch and returns the
// RESP replies to expect.
func serveHTTP(t *testing.T, s *service) func([]operation) []string {
	t.Helper()
	h, err := httpapi.New(httpapi.Options{Service: s, Listen: "127.0.0.1:0"})
	must.Succeed(t, err)
	must.Succeed(t, h.Open(t.Context()))
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		must.Succeed(t, h.Close(ctx))
	})
	return func(ops []operation) (want []string) {
		t.Helper()
		body, err := json.Marshal(map[string]any{"ops": ops})
		must.Succeed(t, err)
		res, err := http.Post("http://"+h.Addr().String()+"/v1/batch", "application/json",
			bytes.NewReader(body))
		must.Succeed(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		var got struct{ Results []answer }
		if err != nil || json.Unmarshal(text, &got) != nil || len(got.Results) != len(ops) {
			t.Fatalf("HTTP answers %s, %v", text, err)
		}
		for i := range got.Results {
			want = append(want, got.Results[i].reply(ops[i].Op))
		}
		return want
	}
}

// unprefixed returns an answer without the name of the first check: RESP does not know yet that
// other checks follow.
func unprefixed(answer string) string { return strings.Replace(answer, "checks[0].", "", 1) }
