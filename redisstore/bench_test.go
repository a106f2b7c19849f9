package redisstore_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/companions"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// BenchmarkFlush flushes one event of each of many keys, in rounds as a counter cuts them. The keys
// are new and known to be new; new, but read because that is not known; known; or known but read.
// redis-µs/key is the processor time of Redis.
func BenchmarkFlush(b *testing.B) {
	for _, kind := range []string{"new", "unread", "known", "cold"} {
		for _, each := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%s/%d", kind, each), func(b *testing.B) {
				benchmarkFlush(b, kind, each)
			})
		}
	}
}

// benchmarkFlush flushes rounds of the given number of keys. One operation flushes about 512 keys.
func benchmarkFlush(b *testing.B, kind string, each int) {
	srv := redistest.Start(b)
	s := open(b, redisstore.Options{URL: srv.URL(),
		Expiry: redisstore.Expiry(redistest.Expiry(b, srv))})
	l := defaultLadder(b)
	rounds := make([]*syncer.Round, 512/each)
	for p := range rounds {
		rounds[p] = &syncer.Round{Partition: p, Writer: "w", Keys: make([]syncer.KeyRound, each)}
	}
	cpu, memory, history := 0.0, int64(0), content{}
	for n := 0; b.Loop(); n++ {
		if n == 1 {
			cpu, memory = usedCPU(b, srv), usedMemory(b, srv)
		}
		known := kind == "known" || kind == "cold"
		folds := n%32 == 31
		history.count(leaparray.Moment(t0+int64(n)*1000), l, known && folds)
		all := history.buckets()
		slices.SortFunc(all, syncer.Bucket.Compare)
		for p, r := range rounds {
			r.Seq, r.Now = r.Seq+1, t0+int64(n)*1000
			for i := range r.Keys {
				nextEvent(&r.Keys[i], kind, p*each+i, n)
				if k := &r.Keys[i]; kind == "known" {
					k.Content, k.Rewrite, k.ContentLog = all, folds || n == 0, 0
					if k.Rewrite {
						k.ContentLog = syncer.WholeLog
					}
				}
			}
		}
		s.Exchange(context.Background(), rounds)
		for _, r := range rounds {
			if r.Err != nil || r.Lost {
				b.Fatal(r.Err, r.Lost)
			}
			r.Acked = r.Seq
		}
	}
	keys := float64(b.N-1) * float64(len(rounds)*each)
	b.ReportMetric((usedCPU(b, srv)-cpu)*1e6/keys, "redis-µs/key")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/keys, "µs/key")
	if kind == "new" || kind == "unread" {
		b.ReportMetric(float64(usedMemory(b, srv)-memory)/keys, "redis-B/key")
	}
	b.ReportMetric(0, "ns/op")
}

// count counts an event of a key, which may fold, as each of the known keys does.
func (c content) count(at leaparray.Stretch, l *leaparray.Ladder, folds bool) {
	if c[at]++; folds {
		c.fold(l, at.Start, at.Start-63_000)
	}
}

// nextEvent prepares the n-th flush of the i-th key, which counts one event in the n-th second.
func nextEvent(k *syncer.KeyRound, kind string, i, n int) {
	isNew := kind == "new" || kind == "unread"
	if isNew || n == 0 {
		*k = syncer.KeyRound{Key: fmt.Appendf(nil, "user:%d:%d", n, i), TTL: 172_800_000,
			New: kind == "new"}
	}
	k.Load = kind == "unread" || kind == "cold"
	k.Adds = append(k.Adds[:0], counts(leaparray.Moment(t0+int64(n)*1000), 1))
}

// BenchmarkLoad loads one key of each of many partitions, like a counter whose callers ask for keys
// outside its memory.
func BenchmarkLoad(b *testing.B) {
	srv := redistest.Start(b)
	s := open(b, redisstore.Options{URL: srv.URL()})
	const partitions = 64
	rounds := make([]*syncer.Round, partitions)
	for p := range rounds {
		rounds[p] = &syncer.Round{Partition: p, Writer: "w", Seq: 1,
			Keys: []syncer.KeyRound{{Key: []byte("user"), TTL: 172_800_000, Adds: []syncer.Bucket{
				counts(leaparray.Moment(t0), 1), counts(leaparray.Moment(t0+1), 1),
				counts(second, 1)}}}}
	}
	s.Exchange(context.Background(), rounds)
	for _, r := range rounds {
		r.Seq, r.ReadOnly, r.Keys[0] = 0, true, syncer.KeyRound{Key: r.Keys[0].Key, Load: true}
	}
	before := usedCPU(b, srv)
	for b.Loop() {
		s.Exchange(context.Background(), rounds)
		for _, r := range rounds {
			if r.Err != nil || r.Lost || len(r.Keys[0].Loaded) != 3 {
				b.Fatal(r.Err, r.Lost, r.Keys[0].Loaded)
			}
		}
	}
	keys := float64(b.N) * partitions
	b.ReportMetric((usedCPU(b, srv)-before)*1e6/keys, "redis-µs/key")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/keys, "µs/key")
	b.ReportMetric(0, "ns/op")
}

// usedCPU returns the processor time that a server has used, in seconds.
func usedCPU(b *testing.B, srv *redistest.Server) (s float64) {
	info := srv.Do("INFO", "cpu").String()
	for _, m := range regexp.MustCompile(`used_cpu_(?:user|sys):([0-9.]+)`).FindAllStringSubmatch(info, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			b.Fatal(err)
		}
		s += v
	}
	return s
}

// usedMemory returns the memory that a server has allocated, in bytes.
func usedMemory(b *testing.B, srv *redistest.Server) int64 {
	info := srv.Do("INFO", "memory").String()
	m := regexp.MustCompile(`used_memory:(\d+)`).FindStringSubmatch(info)
	if m == nil {
		b.Fatal(info)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

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

// BenchmarkValuesBytes reports what keys cost in memory, and in Redis, that have so many different
// values over a day.
func BenchmarkValuesBytes(b *testing.B) {
	for _, n := range []int{1, 3, 30, 300, 3000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			server := redistest.Start(b)
			store := open(b, redisstore.Options{URL: server.URL(),
				Placement: twotier.Placement{Partitions: 1}})
			const keys = 200
			for b.Loop() {
				flushAll(b, server)
				c, err := syncer.New(syncer.Options{Store: store, Placement: store.Placement()})
				must.Succeed(b, err)
				must.Succeed(b, c.Open(b.Context()))
				before, now := c.Stats().MemoryBytes, time.Now().UnixMilli()
				var res twotier.Result
				for k := range keys {
					check := twotier.Check{Kind: twotier.ValuesCheck, N: 1}
					check.NS, check.Key = twotier.ValuesKey(nil, fmt.Append(nil, "key", k))
					for i := range n {
						check.Values = []uint64{companions.HashValue(0, fmt.Append(nil, i))}
						op := twotier.Op{TS: now - int64(n-i)*(86_400_000/int64(n)),
							Checks: []twotier.Check{check}}
						must.Succeed(b, c.Do(b.Context(), &op, &res))
					}
				}
				must.Succeed(b, c.Flush(b.Context()))
				b.ReportMetric(float64(c.Stats().MemoryBytes-before)/keys, "B/key")
				used := int64(0)
				for k := range keys {
					name := fmt.Sprintf("tt:{p0}:@values/default:/key%d", k)
					bytes, err := server.Do("MEMORY", "USAGE", name, "SAMPLES", "0").Int64()
					must.Succeed(b, err)
					used += bytes
				}
				b.ReportMetric(float64(used)/keys, "Redis-B/key")
				must.Succeed(b, c.Close(b.Context()))
			}
		})
	}
}
