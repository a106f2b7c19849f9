package main

import (
	"fmt"

	"twotier.dev/twotier/bench/rival"
)

// stores are BenchmarkHTTP's names for the places of counts.
var stores = map[string]string{"memory": "no Redis", "redis": "flushing to Redis"}

func (f *findings) httpGoals() []Goal {
	add := Goal{Goal: "HTTP add at least 90 % of the do-nothing server", Want: 0.9, Least: true,
		Bound: "the more keys, the more of an add waits for memory; with Redis, flushing takes " +
			"its share of the same cores"}
	batch := Goal{Goal: "batches of at least 4,000,000 adds/s", Want: 4e6, Least: true,
		Bound: "waiting for the memory of keys that are not in the processor's cache; with " +
			"Redis, few enough keys may wait that it may suddenly become ten times slower"}
	for _, m := range f.lines["http"].Of("HTTP") {
		of := stores[m.Get("store")] + ", " + m.Get("keys") + " keys"
		if m.Get("adds") == "1" {
			add.add(of, m.Median("ratio"))
		} else {
			batch.add(of, m.Median("adds/s"))
		}
	}
	return []Goal{add, batch}
}

// compareGoals compares rivals over the same Redis: like with like, and twotier's best mode with
// the limiter that it replaces.
func (f *findings) compareGoals() []Goal {
	zipf := Goal{Goal: "at Zipf at least 10x the decisions of the Hash-in-Lua limiter", Want: 10,
		Least: true}
	distinct := Goal{Goal: "with all keys distinct at least 4x", Want: 4, Least: true}
	commands := Goal{Goal: "at Zipf at least 50x fewer Redis commands per decision", Want: 50,
		Least: true,
		Bound: "every changed bucket of a key is one command for each flush: the faster the " +
			"stream, the more events share it; " +
			"decisions on keys that come back from Redis read"}
	pure := Goal{Goal: "pure-Redis mode at least 2x the Lua limiter called one by one", Want: 2,
		Least: true}
	c := f.compare
	zipf.speedup(c, "zipf")
	distinct.speedup(c, "distinct")
	commands.spared(c)
	pure.pure(c)
	return []Goal{zipf, distinct, commands, pure}
}

// speedup compares sustainable rates, which include the time until Redis has everything.
func (g *Goal) speedup(c CompareResult, workload string) {
	lua, nop := c.Row(workload, "hash-lua"), c.Row(workload, "nothing")
	for _, name := range []string{"twotier", "twotier-lib"} {
		r := c.Row(workload, name)
		if r.Batched == nil {
			continue
		}
		g.add(r.Title+", both one by one", ratio(r.Single.Lasting(), lua.Single.Lasting()))
		g.add(r.Title+", both batched", ratio(r.Batched.Lasting(), lua.Batched.Lasting()))
		g.add(r.Title+" batched, Lua one by one", ratio(r.Batched.Lasting(), lua.Single.Lasting()))
		g.Bound += r.Title + ", one by one: " + share(r.Single) + "; batched: " +
			share(r.Batched) + ". "
	}
	if nop.Single != nil {
		g.Bound += fmt.Sprintf("A server that does nothing answers %.1f times as many single "+
			"requests as the Lua limiter, with the same caller on the same cores: no service can "+
			"do better over HTTP one by one.",
			ratio(nop.Single.Lasting(), lua.Single.Lasting()))
	}
}

// spared compares the work of Redis.
func (g *Goal) spared(c CompareResult) {
	lua := c.Row("zipf", "hash-lua")
	lua.Batched = nil // it is called one by one
	for _, name := range []string{"twotier", "twotier-lib", "twotier-3"} {
		r := c.Row("zipf", name)
		g.add(r.Title+", all commands", ratio(lua.Best().Commands(), r.Best().Commands()))
		g.add(r.Title+", script calls", ratio(lua.Best().Scripts(), r.Best().Scripts()))
	}
}

// pure compares limiters that decide in Redis alone.
func (g *Goal) pure(c CompareResult) {
	for _, workload := range []string{"zipf", "distinct"} {
		lua := c.Row(workload, "hash-lua-whole")
		for _, name := range []string{"twotier-redis-mode", "twotier-lib-redis-mode"} {
			r := c.Row(workload, name)
			g.add(r.Title+", one by one, "+workload,
				ratio(r.Single.Lasting(), lua.Single.Lasting()))
			g.add(r.Title+", batched, "+workload, ratio(r.Batched.Lasting(), lua.Single.Lasting()))
			if r.Single != nil {
				g.Bound = share(r.Single)
			}
		}
	}
}

// share describes the division of the processor time.
func share(r *rival.Run) string {
	u := r.Usage
	all := u.Driver + u.Service + u.Redis.CPU
	if all == 0 {
		return ""
	}
	return fmt.Sprintf("processor time is %.0f %% the caller's, %.0f %% the service's, %.0f %% "+
		"Redis's",
		100*u.Driver/all, 100*u.Service/all, 100*u.Redis.CPU/all)
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func (f *findings) memoryGoals() []Goal {
	g := Goal{Goal: "at most 150 bytes for a cold key in memory", Want: 150,
		Bound: "resident: the room that a growing table and garbage collection need; the rest is " +
			"names, buckets and the index"}
	cold := f.lines["memory"].One("Bytes/events=one/way=twotier")
	g.add("counted by the server", cold.Median("counted-B/key"))
	g.add("resident", cold.Median("resident-B/key"))
	p := f.lines["memory"].One("Pauses")
	g.add(fmt.Sprintf("a library's process at %s keys", p.Get("keys")),
		ratio(p.Median("resident-B"), p.Number("keys")))
	return []Goal{g}
}

func (f *findings) growthGoals() []Goal {
	g := Goal{Goal: "cost of an operation flat within 2x from 10,000 to 10,000,000 keys", Want: 2,
		Bound: "ten thousand keys fit into the processor's cache, ten million don't: each " +
			"operation waits for memory a few times"}
	for _, s := range []struct{ of, op, unit string }{
		{"add", "add", "core-ns/op"}, {"acquire", "acquire", "core-ns/op"},
		{"server, batched adds", "server", "adds/s"},
	} {
		var costs []float64
		all := f.lines["growth"].Of("Keys/" + s.op)
		for _, at := range all {
			costs = append(costs, at.Median(s.unit))
		}
		if len(all) > 1 {
			r := spread(costs)
			g.add(fmt.Sprintf("%s, %s to %s keys", s.of, all[0].Get("keys"),
				all[len(all)-1].Get("keys")), ratio(r.Most, r.Least))
		}
	}
	return []Goal{g}
}

func (f *findings) messageGoals() []Goal {
	rate := Goal{Goal: "message control: 100,000 a second with p99 under 5 ms", Want: 100_000,
		Least: true}
	mean := Goal{Goal: "message control at 100,000 a second: mean latency under 50 ms", Want: 50}
	for _, s := range f.messages.Searches {
		if s.Name != "twotier" && s.Name != "twotier-lib" {
			continue
		}
		of := fmt.Sprintf("%s, %d a call", s.Title, s.Batch)
		rate.add(of, s.Highest)
		mean.add(of, s.AtTarget.Latency.Mean/1e3)
		rate.Bound = share(&rival.Run{Usage: s.Usage}) + "; nearly every message writes two keys " +
			"that Redis does not have yet"
		mean.Bound = rate.Bound
	}
	return append([]Goal{rate, mean}, f.controlGoals()...)
}

// controlGoals returns the goals of many messages in a call, with hash tags.
func (f *findings) controlGoals() []Goal {
	held := Goal{Goal: "message control with hash tags, every user new: 100,000 a second for a " +
		"minute", Want: 100_000, Least: true,
		Bound: "every message writes two keys that Redis does not have"}
	mean := Goal{Goal: "the same: mean latency of a call at most 50 ms", Want: 50,
		Bound: held.Bound}
	known := Goal{Goal: "the same with known users: 180,000 a second", Want: 180_000, Least: true}
	for _, row := range f.controlRows("messages-new") {
		held.add(row.Name, row.Lasting())
		mean.add(row.Name, row.Latency.Mean/1e3)
	}
	for _, row := range f.controlRows("messages-known") {
		known.add("limits as "+row.Limits, row.Lasting())
		known.Bound = share(&row.Run)
	}
	return []Goal{held, mean, known}
}

// controlRows returns the rows of a command, or none if it was not run.
func (f *findings) controlRows(name string) []ControlRow {
	if r := f.control[name]; r != nil {
		return r.Rows()
	}
	return nil
}

func (f *findings) lossGoals() (goals []Goal) {
	for _, k := range f.lines["loss"].Of("Kill") {
		// Rounds in flight to Redis when the process is killed add to the interval.
		g := Goal{Goal: "kill -9, " + k.Get("setting") + ": lost, in ms of the stream",
			Want: k.Median("bound-ms") * 1.25, Bound: "the flush interval"}
		g.note("at most", k.spread("lost-ms").Most)
		goals = append(goals, g)
	}
	return goals
}
