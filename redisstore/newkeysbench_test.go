package redisstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/redistest"
)

// BenchmarkNewKeyCommands is what the parts of making a new key cost Redis, each in a script that
// does nothing else for 256 keys: the names alone, with arguments for each key, and commands that
// could make the key. One operation makes 2,560 keys with one event under the default ladder.
func BenchmarkNewKeyCommands(b *testing.B) {
	const fields = `'17630000000','1','293833331','1','19588882','1'`
	const model = `redis.call('HSET','tt:{p17}!m',` + fields + `)
		redis.call('PEXPIRE','tt:{p17}!m','172800000')`
	each := func(commands string) string {
		return `for i = 1, #KEYS do local k, call = KEYS[i], redis.call ` + commands + ` end`
	}
	for _, bc := range []struct {
		name, script string
		args         int
	}{
		{"names", ``, 0},
		{"names+10args", ``, 10},
		{"names+10args+tonumber", each(`for j = 1, 4 do local n = tonumber(ARGV[10*(i-1)+j]) end`), 10},
		{"EXISTS", each(`call('EXISTS', k)`), 0},
		{"EXISTS-of-all", `redis.call('EXISTS', unpack(KEYS))`, 0},
		{"SET-PX", each(`call('SET', k, '1', 'PX', '172800000')`), 0},
		{"HSET-one-field", each(`call('HSET', k, '17630000000', '1')`), 0},
		{"HSET", each(`call('HSET', k, ` + fields + `)`), 0},
		{"HINCRBYx3", each(`call('HINCRBY', k, '17630000000', '1')
			call('HINCRBY', k, '293833331', '1') call('HINCRBY', k, '19588882', '1')`), 0},
		{"EXISTS+HSET-one-field+PEXPIRE", each(`call('EXISTS', k)
			call('HSET', k, '17630000000', '1') call('PEXPIRE', k, '172800000')`), 0},
		{"EXISTS+HSET+PEXPIRE", each(`call('EXISTS', k) call('HSET', k, ` + fields + `)
			call('PEXPIRE', k, '172800000')`), 0},
		{"RESTORE", model + ` local d = redis.call('DUMP', 'tt:{p17}!m') ` +
			each(`call('RESTORE', k, '172800000', d)`), 0},
		{"COPY", model + each(`call('COPY', 'tt:{p17}!m', k)`), 0},
	} {
		b.Run(bc.name, func(b *testing.B) { benchmarkCommands(b, bc.script, bc.args) })
	}
}

// benchmarkCommands runs a script for new keys, with so many arguments for each.
func benchmarkCommands(b *testing.B, script string, args int) {
	const calls, keys = 10, 256
	srv := redistest.Start(b)
	opt, err := redis.ParseURL(srv.URL())
	if err != nil {
		b.Fatal(err)
	}
	client := redis.NewClient(opt)
	b.Cleanup(func() { _ = client.Close() })
	sha, err := client.ScriptLoad(b.Context(), script+` return 0`).Result()
	if err != nil {
		b.Fatal(err)
	}
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
		if err != nil {
			b.Fatal(err)
		}
	}
	made := float64(b.N-1) * calls * keys
	b.ReportMetric((usedCPU(b, srv)-cpu)*1e6/made, "redis-µs/key")
	b.ReportMetric(float64(usedMemory(b, srv)-memory)/made, "redis-B/key")
	b.ReportMetric(0, "ns/op")
}

// callOf returns a call of a script for keys, counted from first, with what a round could say about
// each of them.
func callOf(sha string, first, keys, args int) []any {
	line := []any{"evalsha", sha, keys}
	for i := range keys {
		line = append(line, fmt.Sprintf("tt:{p17}:default:user:%07d", first+i))
	}
	each := []any{"12", "172800000", "3", "0", "17630000000", "1", "293833331", "1", "19588882", "1"}
	for range keys {
		line = append(line, each[:args]...)
	}
	return line
}
