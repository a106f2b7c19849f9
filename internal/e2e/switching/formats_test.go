package switching

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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

// addZSet runs the script of a sliding log at a time, and adds the event to the log if it passed.
func (b *bed) addZSet(key string, ts, window int64, limit int, log *log) bool {
	passed := b.eval("zset", key, ts, window, limit, fmt.Sprint(ts, "-", len(*log))) == 1
	if passed {
		*log = append(*log, ts)
	}
	return passed
}

// TestZSetKeepsItsDay switches a limiter over that is at 50 of 50 in 24 hours: the next event is
// refused until the oldest is a day old, and passes then.
func TestZSetKeepsItsDay(t *testing.T) {
	b := newBed(t)
	var log log
	oldest := time.Now().UnixMilli() - day + 8000
	for i := range int64(50) {
		if !b.addZSet("limit:ann:zset", oldest+i*(day-10_000)/50, day, 50, &log) {
			t.Fatal("the script has refused too early")
		}
	}
	if b.addZSet("limit:ann:zset", time.Now().UnixMilli(), day, 50, &log) {
		t.Fatal("the script has let the 51st event pass")
	}
	args := []string{"--pattern", "limit:{key}:zset"}
	if r := b.imports(append(args, "--dry-run")...); r.Counted != 50 || r.Formats["zset"] != 1 {
		t.Errorf("dry run: %+v", r)
	}
	if n := b.count("ann", "24h"); n.Max != 0 {
		t.Errorf("the dry run has counted %+v", n)
	}
	if r := b.imports(args...); r.Counted != 50 || r.Repeated != 0 {
		t.Errorf("%+v", r)
	}
	for window, ms := range map[string]int64{"1m": minute, "6h": day / 4, "23h": day - 60*minute} {
		if got, want := b.count("ann", window), log.within(ms); got.Min != want || got.Max != want {
			t.Errorf("%s: %+v, want %d", window, got, want)
		}
	}
	v := b.acquire("ann", "24h", 50)
	left := oldest + day - time.Now().UnixMilli()
	if v.Allowed || v.Retry < left || v.Retry > left+3000 {
		t.Fatalf("the 51st event: %+v, want a refusal for some %d ms", v, left)
	}
	time.Sleep(time.Until(time.UnixMilli(oldest + day + 50)))
	if v := b.acquire("ann", "24h", 50); !v.Allowed {
		t.Errorf("the oldest event is a day old: %+v", v)
	}
	if v := b.acquire("ann", "24h", 50); v.Allowed {
		t.Errorf("only one event has left: %+v", v)
	}
}

// TestImportTwice repeats an import, with later events and while the limiter forgets old ones: it
// adds the new events.
func TestImportTwice(t *testing.T) {
	b := newBed(t)
	var log log
	args := []string{"--pattern", "rl:{key}"}
	now := time.Now().UnixMilli()
	for i := range int64(20) {
		b.addZSet("rl:bob", now-55_000+i*1000, minute, 100, &log)
	}
	if r := b.imports(args...); r.Counted != 20 {
		t.Errorf("first: %+v", r)
	}
	if r := b.imports(args...); r.Counted != 0 || r.Repeated != 20 {
		t.Errorf("repeated: %+v", r)
	}
	until := time.Now().UnixMilli()
	for range 5 {
		time.Sleep(3 * time.Millisecond)
		b.addZSet("rl:bob", time.Now().UnixMilli(), 50_000, 100, &log) // forgets some
	}
	if r := b.imports(append(args, "--until", fmt.Sprint(until))...); r.Counted != 0 ||
		r.Later != 5 {
		t.Errorf("until before the new events: %+v", r)
	}
	if r := b.imports(args...); r.Counted != 5 {
		t.Errorf("with new events: %+v", r)
	}
	if r := b.imports(args...); r.Counted != 0 {
		t.Errorf("repeated: %+v", r)
	}
	if n := b.count("bob", "1h"); n.Max != 25 || n.Min != 25 {
		t.Errorf("counted %+v, want 25", n)
	}
	// Another source of the same names counts in addition.
	if r := b.imports(append(args, "--source", "other")...); r.Counted == 0 || r.Repeated != 0 {
		t.Errorf("another source: %+v", r)
	}
}

// TestUnitsOfScores imports scores in all units, and reports scores that are no times.
func TestUnitsOfScores(t *testing.T) {
	b := newBed(t)
	at := time.Now().Add(-time.Minute)
	for unit, score := range map[string]float64{"s": float64(at.UnixMilli()) / 1000,
		"ms": float64(at.UnixMilli()), "us": float64(at.UnixMicro()),
		"ns": float64(at.UnixNano())} {
		b.old.ZAdd(t.Context(), "u:"+unit, redis.Z{Score: score, Member: "a"})
	}
	for i, score := range []float64{-5, 12, 1e25} {
		b.old.ZAdd(t.Context(), "u:ms", redis.Z{Score: score, Member: i})
		b.old.ZAdd(t.Context(), "absurd", redis.Z{Score: score, Member: i})
	}
	r := b.imports("--pattern", "u:{key}")
	if r.Counted != 4 || r.Unreadable != 3 {
		t.Errorf("%+v", r)
	}
	for _, unit := range []string{"s", "ms", "us", "ns"} {
		if n := b.count(unit, "2m"); n.Min != 1 || n.Max != 1 {
			t.Errorf("%s: %+v", unit, n)
		}
		if n := b.count(unit, "30s"); n.Max != 0 {
			t.Errorf("%s: %+v, a minute ago", unit, n)
		}
	}
	r, err := b.tryImport("--pattern", "abs{key}")
	if err == nil || r.FailedKeys != 1 || r.Failed[0].Key != "absurd" ||
		!strings.Contains(r.Failed[0].Error, "--unit") {
		t.Errorf("%+v %v", r, err)
	}
}

// TestKeysThatCannotBeImported are named with a remedy, and all others are imported.
func TestKeysThatCannotBeImported(t *testing.T) {
	b := newBed(t)
	now := float64(time.Now().UnixMilli())
	long := strings.Repeat("x", 300)
	for _, key := range []string{"fine", long, "line\nfeed"} {
		b.old.ZAdd(t.Context(), "k:"+key, redis.Z{Score: now, Member: "a"})
	}
	b.old.ZAdd(t.Context(), "k:old", redis.Z{Score: now - 3*float64(day), Member: "a"})
	b.old.ZAdd(t.Context(), "k:ahead", redis.Z{Score: now + 60_000, Member: "a"})
	b.old.Set(t.Context(), "k:string", "5", 0)
	b.old.RPush(t.Context(), "k:list", "5")
	r, err := b.tryImport("--pattern", "k:{key}")
	if err == nil || r.Counted != 1 || r.TooOld != 1 || r.Ahead != 1 || r.FailedKeys != 4 {
		t.Errorf("%+v %v", r, err)
	}
	var texts []string
	for _, f := range r.Failed {
		texts = append(texts, f.Key[:4]+" "+f.Error)
	}
	all := strings.Join(texts, "\n")
	for _, want := range []string{"k:xx its key in twotier would have 300 bytes", "--as",
		"k:st is a string: name the limiter with --format",
		"k:li no element is an event: element 5 is no time",
		`k:li its key in twotier would be "line\nfeed"`} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in %s", want, all)
		}
	}
	if b.count("fine", "1h").Max != 1 {
		t.Error("the other key was not imported")
	}
}
