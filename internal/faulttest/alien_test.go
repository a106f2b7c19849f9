package faulttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// plants are values that somebody else has put under keys of ours. The script has the Hash, the
// present bucket of the finest level and that of a minute.
func plants() map[string]string {
	return map[string]string{
		"string":   `redis.call('SET', KEYS[1], 'foreign')`,
		"list":     `redis.call('RPUSH', KEYS[1], 'foreign')`,
		"set":      `redis.call('SADD', KEYS[1], ARGV[1])`,
		"zset":     `redis.call('ZADD', KEYS[1], 1, ARGV[1])`,
		"stream":   `redis.call('XADD', KEYS[1], '*', ARGV[1], '1')`,
		"negative": `redis.call('HSET', KEYS[1], ARGV[1], '-5', ARGV[2], '-5')`,
		"most":     `redis.call('HSET', KEYS[1], ARGV[1], '9223372036854775807', ARGV[2], '9223372036854775807')`,
		"beyond":   `redis.call('HSET', KEYS[1], ARGV[1], '99999999999999999999', ARGV[2], '99999999999999999999')`,
		"text":     `redis.call('HSET', KEYS[1], ARGV[1], 'many', ARGV[2], 'some')`,
		"names":    `redis.call('HSET', KEYS[1], 'a', '1', '-10', '2', '1e3', '3', '99999999999999999999999', '4')`,
		"ahead":    `redis.call('HSET', KEYS[1], string.format('%.0f', ARGV[1] + 10 * 86400), '7')`,
		"fields":   `for i = 1, 100000 do redis.call('HSET', KEYS[1], string.format('%.0f', ARGV[1] - 10 * i), '1') end`,
		"junk":     `for i = 1, 100000 do redis.call('HSET', KEYS[1], 'field' .. i, 'x') end`,
	}
}

// TestFault8AlienData has a Redis in which somebody else has been at keys of ours. Such a key is
// answered honestly: by a refusal that says why, marked as degraded, or by what is there; never
// with more than its limit or as if all were well with what can't be read. A bucket below zero is
// what is there: what was taken back may have come first. Others are not held up.
func TestFault8AlienData(t *testing.T) {
	broken := []string{"string", "list", "set", "zset", "stream", "beyond", "text"}
	for _, mode := range []string{"two-tier", "redis"} {
		t.Run(mode, func(t *testing.T) {
			b := newBed(t, nil, "--mode", mode)
			for name, script := range plants() {
				now := time.Now().UnixMilli()
				b.do("EVAL", script+" return 1", 1, b.hash(name), fmt.Sprint(now/1000*10), fmt.Sprint(now/60_000*10+1))
				status, body, err := b.node.Post("/v1/acquire", fmt.Sprintf(`{"key":%q,"limits":[{"window":"1m","max":10},{"window":"1h","max":10}]}`, name))
				out := string(body)
				said := status == 503 || strings.Contains(out, `"degraded":true`)
				switch {
				case err != nil || status != 200 && status != 503 || name != "negative" && strings.Contains(out, `"count":-`):
					t.Errorf("%s: %d %s %v", name, status, out, err)
				case slices.Contains(broken, name) && !said:
					t.Errorf("%s: %s: it does not say that the key can't be read", name, out)
				case name == "most" && !said && strings.Contains(out, `"allowed":true`):
					t.Errorf("%s: %s: more than the limit is let through", name, out)
				}
				if status, body := b.node.Get("/v1/count?key=" + name + "&window=1m,24h"); name != "negative" && strings.Contains(string(body), `"count":-`) {
					t.Errorf("%s: counted: %d %s", name, status, body)
				}
				began := time.Now()
				b.node.MustPost("/v1/add", `{"key":"other","ack":"redis"}`)
				t.Logf("%s: %s: %d; somebody else waits %v", mode, name, status, time.Since(began).Round(time.Millisecond))
			}
			if a := b.node.Count("other", "1m"); a.Counts[0].Max != int64(len(plants())) || a.Degraded {
				t.Errorf("another key: %+v", a)
			}
		})
	}
}
