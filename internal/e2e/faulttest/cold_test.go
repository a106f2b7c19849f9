package faulttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// coldBed is a node whose keys are at their limits in Redis, but not in memory.
type coldBed struct {
	*bed
	onCold string
	next   int
}

// TestOnColdIsForAnOutageAlone asks for keys at their limits while Redis answers, but not with
// their counts: a replica without its primary, a server that loads its data, a value of another
// type. No such request is decided, whatever on-cold is. Then Redis is gone, and on-cold decides.
func TestOnColdIsForAnOutageAlone(t *testing.T) {
	for _, onCold := range []string{"allow", "deny"} {
		t.Run(onCold, func(t *testing.T) {
			slow := redistest.Config("key-load-delay 4000",
				"loading-process-events-interval-bytes 1024")
			b := &coldBed{newBed(t, []redistest.Option{slow}, "--on-cold", onCold,
				"--request-timeout", "1s"), onCold, 0}
			b.fill(40)
			b.masterDown()
			b.foreign()
			b.loading()
			b.down()
		})
	}
}

// TestColdKeysInShadow asks for a key that is not in memory while Redis is down: in shadow, on-cold
// does not refuse it.
func TestColdKeysInShadow(t *testing.T) {
	b := &coldBed{newBed(t, nil, "--on-cold", "deny", "--shadow"), "allow", 0}
	b.fill(1)
	b.redis.Kill()
	b.degraded()
	key := b.key()
	proctest.Until(t, "memory alone decides", func() bool {
		status, body := b.ask(key)
		return status == 200 && strings.Contains(body, `"degraded":true`)
	})
	if _, body := b.ask("other-key"); !strings.Contains(body, `"allowed":true`) {
		t.Error(body)
	}
	status, body, err := b.node.Post("/v1/distinct",
		`{"key":"values","values":["a"],"limits":[{"window":"1h","max":3}]}`)
	if err != nil || status != 200 || !strings.Contains(string(body), `"over":false`) {
		t.Errorf("%d %s, %v", status, body, err)
	}
}

// fill counts keys to their limit of 3, and starts a node that has none of them in memory.
func (b *coldBed) fill(keys int) {
	b.T.Helper()
	for i := range keys {
		b.node.MustPost("/v1/add", fmt.Sprintf(`{"key":"full-%d","n":3}`, i))
	}
	b.node.Flushed()
	b.node.Kill()
	b.restart()
	b.node.MustPost("/v1/add", `{"key":"other","ack":"redis"}`)
}

// key returns a key that has not been asked for yet.
func (b *coldBed) key() string {
	b.next++
	return fmt.Sprint("full-", b.next-1)
}

// ask acquires a key.
func (b *coldBed) ask(key string) (status int, body string) {
	b.T.Helper()
	status, got, err := b.node.Post("/v1/acquire",
		fmt.Sprintf(`{"key":%q,"limits":[{"window":"1h","max":3}]}`, key))
	must.Succeed(b.T, err)
	return status, string(got)
}

// undecided asks for some keys and checks that none of the requests is decided.
func (b *coldBed) undecided(why string) {
	b.T.Helper()
	for range 5 {
		status, body := b.ask(b.key())
		if status != 503 || !strings.Contains(body, ":unavailable") {
			b.T.Errorf("%s: %d %s", why, status, body)
		}
	}
}

// masterDown makes Redis a replica that has no primary and serves nothing.
func (b *coldBed) masterDown() {
	b.T.Helper()
	b.do("CONFIG", "SET", "replica-serve-stale-data", "no")
	b.do("REPLICAOF", "127.0.0.1", "1")
	b.undecided("MASTERDOWN")
	b.do("REPLICAOF", "NO", "ONE")
	b.served("after MASTERDOWN")
}

// served waits until keys are decided by the counts in Redis.
func (b *coldBed) served(when string) {
	b.T.Helper()
	key := b.key()
	proctest.Until(b.T, "a key is refused by its limit "+when, func() bool {
		status, body := b.ask(key)
		if strings.Contains(body, `"allowed":true`) && !strings.Contains(body, `"degraded":true`) {
			b.T.Fatalf("%s: %s", when, body)
		}
		return status == 200 && !strings.Contains(body, `"degraded":true`)
	})
}

// foreign replaces a key by a value of another type.
func (b *coldBed) foreign() {
	b.T.Helper()
	b.do("SET", b.Hash("full-39"), "foreign")
	for range 5 {
		if status, body := b.ask("full-39"); status != 503 {
			b.T.Errorf("a foreign value: %d %s", status, body)
		}
		if status, body := b.ask(b.key()); status != 200 || strings.Contains(body, `"degraded":true`) {
			b.T.Errorf("a key beside a foreign value: %d %s", status, body)
		}
	}
	b.do("DEL", b.Hash("full-39"))
}

// loading restarts Redis with much data to load.
func (b *coldBed) loading() {
	b.T.Helper()
	b.do("EVAL", `for i = 1, 10000 do redis.call('SET', 'pad' .. i, string.rep('x', 100)) end
		return 1`, 0)
	b.do("SAVE")
	b.redis.Kill()
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		b.redis.Restart(b.T)
	}()
	isLoading := func() bool {
		err := b.redis.Do("PING").Err()
		return err != nil && strings.HasPrefix(err.Error(), "LOADING")
	}
	proctest.Until(b.T, "Redis is loading", isLoading)
	time.Sleep(3 * time.Second) // the node has noticed, and asks each partition again
	b.undecided("LOADING")
	if !isLoading() {
		b.T.Error("Redis has loaded its data before the end: this shows nothing")
	}
	b.do("CONFIG", "SET", "key-load-delay", "0")
	<-loaded
	b.served("after LOADING")
}

// down ends Redis.
func (b *coldBed) down() {
	b.T.Helper()
	b.redis.Kill()
	b.degraded()
	key := b.key()
	proctest.Until(b.T, "on-cold decides", func() bool {
		status, body := b.ask(key)
		return status == 200 && strings.Contains(body, `"degraded":true`) &&
			strings.Contains(body, `"allowed":true`) == (b.onCold == "allow")
	})
}

// encoding is Lua that encodes numbers and cells as a key's log has them. MOST is the largest
// number of events.
const encoding = `
local function v(n)
	local s = ''
	while n >= 128 do s, n = s .. string.char(n % 128 + 128), math.floor(n / 128) end
	return s .. string.char(n)
end
local function cell(t, n) return '\1' .. v(t) .. v(n < 0 and -2 * n - 1 or 2 * n) end
local function log(...) redis.call('HSET', KEYS[1], 'd', table.concat({...})) end
local function page(i, t)
	return 'c\1' .. v(math.floor(t / 2 ^ 24)) .. v(i), v(t % 2 ^ 24) .. '\2'
end
local MOST, now, before = string.rep('\255', 9) .. '\1', tonumber(ARGV[1]), tonumber(ARGV[2])
`

// plants returns scripts that put foreign values under our keys. A script receives the Hash, the
// present millisecond and one a second earlier.
func plants() map[string]string {
	return map[string]string{
		"string":   `redis.call('SET', KEYS[1], 'foreign')`,
		"list":     `redis.call('RPUSH', KEYS[1], 'foreign')`,
		"set":      `redis.call('SADD', KEYS[1], ARGV[1])`,
		"zset":     `redis.call('ZADD', KEYS[1], 1, ARGV[1])`,
		"stream":   `redis.call('XADD', KEYS[1], '*', ARGV[1], '1')`,
		"negative": `log(cell(now, -5), cell(before, -5))`,
		"most":     `log('\1', v(now), '\254', string.sub(MOST, 2), '\1', v(before), '\254', string.sub(MOST, 2))`,
		"beyond":   `log('\1', v(now), '\255', MOST)`,
		"older":    `log(cell(before - 60000, -5), cell(before - 120000, 3))`,
		"several":  `for i = 1, 10 do log(redis.call('HGET', KEYS[1], 'd') or '', cell(before - 60000 * i, 10 ^ 18)) end`,
		"text":     `redis.call('HSET', KEYS[1], 'd', 'many')`,
		"names":    `redis.call('HSET', KEYS[1], 'a', '1', '-10', '2', '1e3', '3', '99999999999999999999999', '4')`,
		"ahead":    `log(cell(now + 86400000, 7))`,
		"fields":   many(`page(i, now - 1000 * i)`),
		"junk":     many(`'field' .. i, 'x'`),
	}
}

// many returns a script that sets 100,000 fields. One by one they would keep Redis busy for long.
func many(field string) string {
	return `for n = 0, 99 do local a = {} for i = 1000 * n + 1, 1000 * n + 1000 do
		a[#a + 1], a[#a + 2] = ` + field + ` end
		redis.call('HSET', KEYS[1], unpack(a)) end`
}

// broken lists the plants that can't be read or can't be counts.
var broken = []string{"string", "list", "set", "zset", "stream", "beyond", "text"}

// TestFault8AlienData uses a Redis in which another program has changed our keys. The answer to a
// request for such a key must be correct: an error that gives the reason, an answer marked
// degraded, or the value in Redis. Answers must never exceed the limit, and never present a value
// as valid that can't be read or can't be a count. Other keys are not delayed.
func TestFault8AlienData(t *testing.T) {
	t.Run("keys that are taken for new", func(t *testing.T) {
		b := newBed(t, nil, "--mode", "two-tier", "--redis-timeout", "1m",
			"--request-timeout", "1m", "--partitions", "1")
		b.node.MustPost("/v1/add", `{"key":"new","ack":"redis"}`)
		b.plant()
	})
	for _, mode := range []string{"two-tier", "redis"} {
		t.Run(mode, func(t *testing.T) {
			newBed(t, nil, "--mode", mode, "--redis-timeout", "1m",
				"--request-timeout", "1m").plant()
		})
		t.Run(mode+" in a Redis Cluster", func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, 3, 0)
			b := newSingle(t, cluster, "--mode", mode, "--redis-timeout", "1m",
				"--request-timeout", "1m")
			b.restart()
			b.plant()
		})
	}
}

// plant puts each plant under a separate key, asks for that key, and counts another key.
func (b *bed) plant() {
	b.T.Helper()
	for name, script := range plants() {
		now := time.Now().UnixMilli()
		moments := []any{now, now - 1000}
		if err := b.Direct.Eval(b.T.Context(), encoding+script+" return 1", []string{b.Hash(name)},
			moments...).Err(); err != nil {
			b.T.Fatalf("%s: %v", name, err)
		}
		b.asked(name)
		began := time.Now()
		b.node.MustPost("/v1/add", `{"key":"other","ack":"redis"}`)
		b.T.Logf("%s: somebody else waits %v", name, time.Since(began).Round(time.Millisecond))
	}
	if a := b.node.Count("other", "24h"); a.Counts[0].Max != int64(len(plants())) || a.Degraded {
		b.T.Errorf("another key: %+v", a)
	}
}

// asked acquires a planted key and reads its count and its series.
func (b *bed) asked(name string) {
	b.T.Helper()
	limits := `"limits":[{"window":"1m","max":10},{"window":"1h","max":10}]`
	acquire := func() (status int, body string) {
		status, got, err := b.node.Post("/v1/acquire", fmt.Sprintf(`{"key":%q,%s}`, name, limits))
		must.Succeed(b.T, err)
		return status, string(got)
	}
	status, body := acquire()
	if status == 503 || strings.Contains(body, `"allowed":true`) {
		// A node that knows, now or soon, which keys exist takes this one for new until it is
		// flushed.
		b.node.Post("/v1/add", fmt.Sprintf(`{"key":%q,"ack":"redis"}`, name))
		status, body = acquire()
	}
	passed := b.honest(name, status, body) && strings.Contains(body, `"allowed":true`)
	if passed && (name == "most" || name == "several") {
		b.T.Errorf("%s: %s: more than the limit is let through", name, body)
	}
	for _, call := range []string{"count?window=1m,24h&key=", "series?window=1h&key="} {
		status, body := b.node.Get("/v1/" + call + name)
		b.honest(name, status, string(body))
	}
}

// honest checks an answer about a planted key. It reports whether the answer claims to be complete.
func (b *bed) honest(name string, status int, body string) (whole bool) {
	b.T.Helper()
	whole = status != 503 && !strings.Contains(body, `"degraded":true`)
	switch {
	case status != 200 && status != 503 || strings.Contains(body, `"count":-`) ||
		strings.Contains(body, `,-`):
		b.T.Errorf("%s: %d %s", name, status, body)
	case whole && slices.Contains(broken, name):
		b.T.Errorf("%s: %s: it does not say that the key can't be read", name, body)
	}
	return whole
}
