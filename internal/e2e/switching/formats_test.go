package switching

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
)

// TestHashOfSubWindows switches over from a script that counts in sub-windows: each leaves when the
// script would have forgotten it. The sub-window of the present goes on.
func TestHashOfSubWindows(t *testing.T) {
	b := newBed(t)
	now := time.Now().UnixMilli()
	start := now / minute * minute
	for i := range int64(30) { // two in each of fifteen sub-windows
		if b.eval("hash", "h:ann", now-(i/2)*minute, minute, 60, 40) != 1 {
			t.Fatal("the script has refused")
		}
	}
	r, err := b.tryImport("--pattern", "h:{key}")
	if err == nil || r.FailedKeys != 1 || !strings.Contains(r.Failed[0].Error, "--width") {
		t.Errorf("an index without --width: %+v %v", r, err)
	}
	args := []string{"--pattern", "h:{key}", "--width", "1m"}
	if r := b.imports(args...); r.Counted != 30 || r.Formats["hash"] != 1 {
		t.Errorf("%+v", r)
	}
	if n := b.count("ann", "1h"); n.Max != 30 || n.Min != 30 {
		t.Errorf("counted %+v", n)
	}
	age := time.Duration(time.Now().UnixMilli()-start+4*minute) * time.Millisecond
	for window, want := range map[time.Duration]int64{age + time.Second: 10,
		age - time.Second: 8} { // starts of the five newest sub-windows, and of four
		got := b.count("ann", fmt.Sprint(window.Milliseconds(), "ms"))
		if got.Min > want || got.Max < want {
			t.Errorf("%v: %+v, want %d", window, got, want)
		}
	}
	b.eval("hash", "h:ann", time.Now().UnixMilli(), minute, 60, 40)
	if r := b.imports(args...); r.Counted != 1 || r.Repeated != 30 {
		t.Errorf("after one more: %+v", r)
	}
	for i := range 10 {
		if v := b.acquire("ann", "1h", 40); v.Allowed != (i < 9) {
			t.Errorf("event %d of 40: %+v", 32+i, v)
		}
	}
}

// TestHashOfStarts imports fields that are the start of their sub-window in seconds, and a field
// that is no time.
func TestHashOfStarts(t *testing.T) {
	b := newBed(t)
	now := time.Now().Unix()
	b.old.HSet(t.Context(), "h:ann", now-300, 4, now-60, 3, "limit", 50)
	if r := b.imports("--pattern", "h:{key}"); r.Counted != 7 || r.Unreadable != 1 {
		t.Errorf("%+v", r)
	}
	for window, want := range map[string]int64{"2m": 3, "10m": 7} {
		if n := b.count("ann", window); n.Min != want || n.Max != want {
			t.Errorf("%s: %+v", window, n)
		}
	}
}

// TestFixedWindow switches over from INCR and EXPIRE, as in articles: a key that is at its limit is
// refused until its window would have ended.
func TestFixedWindow(t *testing.T) {
	b := newBed(t)
	for i := range 6 {
		if passed := b.eval("incr", "rl:1.2.3.4", 8000, 5) == 1; passed != (i < 5) {
			t.Fatalf("event %d: %v", i, passed)
		}
	}
	end, err := b.old.PExpireTime(t.Context(), "rl:1.2.3.4").Result()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--pattern", "rl:{key}", "--as", "ip:{key}", "--format", "fixed",
		"--window", "8s"}
	if r := b.imports(args...); r.Counted != 6 {
		t.Errorf("%+v", r)
	}
	if r := b.imports(args...); r.Counted != 0 || r.Repeated != 6 {
		t.Errorf("repeated: %+v", r)
	}
	left := end.Milliseconds() - time.Now().UnixMilli()
	v := b.acquire("ip:1.2.3.4", "8s", 5)
	if v.Allowed || v.Retry > left+20 || v.Retry < left-500 {
		t.Errorf("%+v, want a refusal for %d ms", v, left)
	}
	time.Sleep(time.Until(time.UnixMilli(end.Milliseconds() + 20)))
	if v := b.acquire("ip:1.2.3.4", "8s", 5); !v.Allowed {
		t.Errorf("after the window: %+v", v)
	}
	b.old.Set(t.Context(), "rl:forever", 3, 0)
	if r, err := b.tryImport(args...); err == nil || r.FailedKeys != 1 ||
		!strings.Contains(r.Failed[0].Error, "time to live") {
		t.Errorf("a key that stays: %+v %v", r, err)
	}
}

// TestEnvoyWindows imports the keys of envoyproxy/ratelimit, DOMAIN_KEY_VALUE_START, under the key
// and the namespace that --grpc uses.
func TestEnvoyWindows(t *testing.T) {
	b := newBed(t, "--grpc", "127.0.0.1:0", "--rules", must.File(t, "rules.yaml", `
domain: edge
descriptors:
  - key: remote_address
    rate_limit: {unit: hour, requests_per_unit: 100}
`))
	start := time.Now().Unix() / 3600 * 3600
	b.old.Set(t.Context(), fmt.Sprint("edge_remote_address_192.0.2.7_", start), 100, time.Hour)
	b.old.Set(t.Context(), fmt.Sprint("edge_remote_address_192.0.2.8_", start), 99, time.Hour)
	r := b.imports("--pattern", "edge_remote_address_{key}_{start}", "--as",
		"remote_address={key}", "--ns", "edge")
	if r.Counted != 199 || r.Formats["fixed"] != 2 {
		t.Errorf("%+v", r)
	}
	for address, want := range map[string]int{"192.0.2.7": 429, "192.0.2.8": 200} {
		body := fmt.Sprintf(`{"domain":"edge","descriptors":[{"entries":[{"key":"remote_address",`+
			`"value":%q}]}]}`, address)
		if status, text, err := b.server.Post("/json", body); err != nil || status != want {
			t.Errorf("%s: %d %s %v, want %d", address, status, text, err, want)
		}
	}
}

// TestRedisCell imports a theoretical arrival time in nanoseconds, which is how redis-cell stores
// it: the module is not built here. It lets events pass when CL.THROTTLE would have.
func TestRedisCell(t *testing.T) {
	b := newBed(t)
	// CL.THROTTLE ann 9 10 10: ten at once, then one each second. Seven are in use.
	arrival := time.Now().Add(6500 * time.Millisecond)
	b.old.Set(t.Context(), "ann", arrival.UnixNano(), time.Minute)
	args := []string{"--pattern", "{key}", "--format", "redis-cell", "--limit", "10/10s"}
	if r := b.imports(args...); r.Counted != 7 {
		t.Errorf("%+v", r)
	}
	if r := b.imports(args...); r.Counted != 0 {
		t.Errorf("repeated: %+v", r)
	}
	if n := b.count("ann", "10s"); n.Max > 7 || n.Max < 4 {
		t.Errorf("in use: %+v", n)
	}
	time.Sleep(time.Until(arrival.Add(10 * time.Millisecond)))
	if n := b.count("ann", "10s"); n.Max != 0 {
		t.Errorf("nothing is in use any more: %+v", n)
	}
}
