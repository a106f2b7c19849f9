package redisstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
)

// BenchmarkNewKeyCommands measures the cost in Redis of each step of making a new key, in a script
// that does nothing else for 256 keys: the names alone, with arguments for each key, and commands
// that could make the key. One operation makes 2,560 keys with one event.
func BenchmarkNewKeyCommands(b *testing.B) {
	const field = `'1763000000123','1'`
	const model = `redis.call('HSET','tt:{p17}!m',` + field + `)
		redis.call('PEXPIREAT','tt:{p17}!m','1996000000000')`
	each := func(commands string) string {
		return `for i = 1, #KEYS do local k, try = KEYS[i], redis.pcall ` + commands + ` end`
	}
	for _, bc := range []struct {
		name, script string
		args         int
	}{
		{"names", ``, 0},
		{"names+1arg", ``, 1},
		{"names+2args", ``, 2},
		{"names+3args", ``, 3},
		{"EXISTS", each(`try('EXISTS', k)`), 0},
		{"EXISTS-of-all", `redis.pcall('EXISTS', unpack(KEYS))`, 0},
		{"HSET", each(`try('HSET', k, ` + field + `)`), 0},
		{"HINCRBY", each(`try('HINCRBY', k, ` + field + `)`), 0},
		{"HINCRBY+PEXPIRE", each(`try('HINCRBY', k, ` + field + `)
			try('PEXPIRE', k, '172800000')`), 0},
		{"HINCRBY+HLEN+PEXPIRE", each(`try('HINCRBY', k, ` + field + `) try('HLEN', k)
			try('PEXPIRE', k, '172800000')`), 0},
		{"HINCRBY+PEXPIREAT", each(`try('HINCRBY', k, ` + field + `)
			try('PEXPIREAT', k, '1996000000000')`), 0},
		{"SET-PX-NX", each(`try('SET', k, '1763000000123:1', 'PX', '172800000', 'NX')`), 0},
		{"RESTORE", model + ` local d = redis.call('DUMP', 'tt:{p17}!m') ` +
			each(`try('RESTORE', k, '172800000', d)`), 0},
		{"RESTORE-ABSTTL", model + ` local d = redis.call('DUMP', 'tt:{p17}!m') ` +
			each(`try('RESTORE', k, '1996000000000', d, 'ABSTTL')`), 0},
		{"COPY", model + each(`try('COPY', 'tt:{p17}!m', k)`), 0},
	} {
		b.Run(bc.name, func(b *testing.B) { benchmarkCommands(b, bc.script, bc.args) })
	}
}

// BenchmarkKnownKeyCommands measures the cost in Redis of one more event in keys that have one:
// counted, or set to a number that only the owner of the key could know. Each script first makes
// the key.
func BenchmarkKnownKeyCommands(b *testing.B) {
	each := func(commands string) string {
		return `for i = 1, #KEYS do local k, try = KEYS[i], redis.pcall
			try('HINCRBY', k, '1763000000123', '1') ` + commands + ` end`
	}
	var counted, set string
	for _, event := range []string{`'1763000060001'`, `'1763000060002'`, `'1763000060003'`} {
		counted += ` try('HINCRBY', k, ` + event + `, '1')`
		set += `, ` + event + `, '1'`
	}
	const event = `, k, '1763000060001', '1')`
	for _, bc := range []struct{ name, commands string }{
		{"made", ""},
		{"HINCRBY", `try('HINCRBY'` + event},
		{"HINCRBY+HLEN", `try('HINCRBY'` + event + ` try('HLEN', k)`},
		{"HSETNX", `try('HSETNX'` + event},
		{"HSET", `try('HSET'` + event},
		{"3-HINCRBY", counted},
		{"HSET-of-3", `try('HSET', k` + set + `)`},
	} {
		b.Run(bc.name, func(b *testing.B) { benchmarkCommands(b, each(bc.commands), 0) })
	}
}

// benchmarkCommands runs a script for new keys, with args arguments for each.
func benchmarkCommands(b *testing.B, script string, args int) {
	const calls, keys = 10, 256
	srv := redistest.Start(b)
	opt, err := redis.ParseURL(srv.URL())
	must.Succeed(b, err)
	client := redis.NewClient(opt)
	b.Cleanup(func() { _ = client.Close() })
	sha, err := client.ScriptLoad(b.Context(), script+` return 0`).Result()
	must.Succeed(b, err)
	cpu, memory := 0.0, int64(0)
	for n := 0; b.Loop(); n++ {
		if n == 1 {
			cpu, memory = usedCPU(b, srv), usedMemory(b, srv)
		}
		_, err := client.Pipelined(b.Context(), func(pipe redis.Pipeliner) error {
			for c := range calls {
				pipe.Do(context.Background(), callOf(sha, (n*calls+c)*keys, keys, args)...)
			}
			return nil
		})
		must.Succeed(b, err)
	}
	made := float64(b.N-1) * calls * keys
	b.ReportMetric((usedCPU(b, srv)-cpu)*1e6/made, "redis-µs/key")
	b.ReportMetric(float64(usedMemory(b, srv)-memory)/made, "redis-B/key")
	b.ReportMetric(0, "ns/op")
}

// callOf returns a call of a script for keys, counted from first, with up to three arguments for
// each, as in a round.
func callOf(sha string, first, keys, args int) []any {
	line := []any{"evalsha", sha, keys}
	for i := range keys {
		line = append(line, fmt.Sprintf("tt:{p17}:default:user:%07d", first+i))
	}
	each := []any{"1", "1763000000123", "1"}
	for range keys {
		line = append(line, each[:args]...)
	}
	return line
}
