package main

import (
	"fmt"
	"slices"

	"twotier/bench/findings"
)

func httpGoals(a findings.All) []Goal {
	add := Goal{Goal: "HTTP add at least 90 % of the do-nothing server", Want: 0.9, Least: true,
		Bound: "the more keys, the more of an add waits for memory; with Redis, flushing takes its share of the same cores"}
	batch := Goal{Goal: "batches of at least 4,000,000 adds/s", Want: 4e6, Least: true,
		Bound: "waiting for the memory of keys that are not in the processor's cache; what is flushed"}
	if a.HTTP != nil {
		for _, c := range a.HTTP.Result.Comparisons {
			var ratios []float64
			for _, p := range c.Pairs {
				ratios = append(ratios, p.Rate)
			}
			add.add(fmt.Sprintf("%s, %s, %d keys", c.Generator, c.Store, c.Space), findings.Median(ratios))
		}
		for _, b := range a.HTTP.Result.Batches {
			var rates []float64
			for _, r := range b.Rounds {
				rates = append(rates, r.PerSecond)
			}
			batch.add(fmt.Sprintf("%s, %d keys", b.Store, b.Space), findings.Median(rates))
		}
	}
	return []Goal{add, batch}
}

// compareGoals compares over the same Redis: like with like, and what one gets in the best way against what one had.
func compareGoals(a findings.All) []Goal {
	zipf := Goal{Goal: "at Zipf at least 10x the decisions of the Hash-in-Lua limiter", Want: 10, Least: true}
	distinct := Goal{Goal: "with all keys distinct at least 4x", Want: 4, Least: true}
	commands := Goal{Goal: "at Zipf at least 50x fewer Redis commands per decision", Want: 50, Least: true,
		Bound: "every changed bucket of a key is one command for each flush: the faster the stream, the more events share it; " +
			"decisions on keys that come back from Redis read"}
	pure := Goal{Goal: "pure-Redis mode at least 2x the Lua limiter called one by one", Want: 2, Least: true}
	if a.Compare == nil {
		return []Goal{zipf, distinct, commands, pure}
	}
	c := &a.Compare.Result
	for _, g := range []struct {
		goal     *Goal
		workload string
	}{{&zipf, "zipf"}, {&distinct, "distinct"}} {
		speedup(g.goal, c, g.workload)
	}
	if lua := c.Row("zipf", "hash-lua"); lua != nil {
		for _, name := range []string{"twotier", "twotier-lib", "twotier-3"} {
			if r := c.Row("zipf", name); r != nil && r.Batched != nil {
				own, theirs := r.Batched.Usage.Work, lua.Single.Usage.Work
				commands.add(r.Title+", all commands", ratio(lua.Single.Per(float64(theirs.Commands)), r.Batched.Per(float64(own.Commands))))
				commands.add(r.Title+", script calls", ratio(lua.Single.Per(float64(theirs.Scripts)), r.Batched.Per(float64(own.Scripts))))
			}
		}
	}
	for _, workload := range []string{"zipf", "distinct"} {
		lua := c.Row(workload, "hash-lua-whole")
		for _, name := range []string{"twotier-redis-mode", "twotier-lib-redis-mode"} {
			if r := c.Row(workload, name); r != nil && lua != nil {
				pure.add(r.Title+", one by one, "+workload, ratio(r.Single.Lasting(), lua.Single.Lasting()))
				pure.add(r.Title+", batched, "+workload, ratio(r.Batched.Lasting(), lua.Single.Lasting()))
				pure.Bound = share(r.Single)
			}
		}
	}
	return []Goal{zipf, distinct, commands, pure}
}

// speedup compares rates that can be kept up: until Redis has everything.
func speedup(g *Goal, c *findings.Compare, workload string) {
	lua := c.Row(workload, "hash-lua")
	if lua == nil {
		return
	}
	for _, name := range []string{"twotier", "twotier-lib"} {
		r := c.Row(workload, name)
		if r == nil || r.Batched == nil || lua.Batched == nil {
			continue
		}
		g.add(r.Title+", both one by one", ratio(r.Single.Lasting(), lua.Single.Lasting()))
		g.add(r.Title+", both batched", ratio(r.Batched.Lasting(), lua.Batched.Lasting()))
		g.add(r.Title+" batched, Lua one by one", ratio(r.Batched.Lasting(), lua.Single.Lasting()))
		g.Bound += r.Title + ", one by one: " + share(r.Single) + "; batched: " + share(r.Batched) + ". "
	}
	if nop := c.Row(workload, "nothing"); nop != nil {
		g.Bound += fmt.Sprintf("A server that does nothing answers %.1f times as many single requests as the Lua limiter, with the same caller "+
			"on the same cores: over HTTP one by one there is no more to be had.", ratio(nop.Single.Lasting(), lua.Single.Lasting()))
	}
}

// share says where the processor time went.
func share(l *findings.Loop) string {
	u := l.Usage
	all := u.Driver + u.Service + u.Work.CPU
	if all == 0 {
		return ""
	}
	return fmt.Sprintf("processor time is %.0f %% the caller's, %.0f %% the service's, %.0f %% Redis's",
		100*u.Driver/all, 100*u.Service/all, 100*u.Work.CPU/all)
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func memoryGoals(a findings.All) []Goal {
	g := Goal{Goal: "at most 150 bytes for a cold key in memory", Want: 150,
		Bound: "resident: the room that a growing table and garbage collection need; the rest is names, buckets and the index"}
	if a.Memory != nil {
		for _, r := range a.Memory.Result.Rows {
			if r.Way == "twotier" && r.Shape == "1 event" {
				g.add("counted by the server", r.Counted)
				g.add("resident", r.Resident)
			}
		}
		p := a.Memory.Result.Pauses
		g.add(fmt.Sprintf("a library's process at %d keys", p.Keys), p.BytesPerKey)
	}
	return []Goal{g}
}

func growthGoals(a findings.All) []Goal {
	g := Goal{Goal: "cost of an operation flat within 2x from 10,000 to 10,000,000 keys", Want: 2,
		Bound: "ten thousand keys fit into the processor's cache, ten million don't: each operation waits for memory a few times"}
	if a.Growth == nil || len(a.Growth.Result.Keys) < 2 {
		return []Goal{g}
	}
	keys := a.Growth.Result.Keys
	var adds, acquires, servers []float64
	for _, k := range keys {
		adds, acquires, servers = append(adds, k.Add), append(acquires, k.Acquire), append(servers, k.Server)
	}
	scope := fmt.Sprintf(", %s to %s keys", figure(keys[0].Keys), figure(keys[len(keys)-1].Keys))
	for _, s := range []struct {
		of     string
		values []float64
	}{{"add", adds}, {"acquire", acquires}, {"server, batched adds", servers}} {
		g.add(s.of+scope, slices.Max(s.values)/slices.Min(s.values))
	}
	return []Goal{g}
}

func messageGoals(a findings.All) []Goal {
	rate := Goal{Goal: "message control: 100,000 a second with p99 under 5 ms", Want: 100_000, Least: true}
	mean := Goal{Goal: "message control at 100,000 a second: mean latency under 50 ms", Want: 50}
	if a.Messages == nil {
		return []Goal{rate, mean}
	}
	for _, s := range a.Messages.Result.Searches {
		if s.Name != "twotier" && s.Name != "twotier-lib" {
			continue
		}
		of := fmt.Sprintf("%s, %d a call", s.Title, s.Batch)
		rate.add(of, s.Highest)
		mean.add(of, s.AtTarget.Latency.Mean/1e3)
		rate.Bound = share(&findings.Loop{Result: s.Held, Usage: s.Usage}) +
			"; nearly every message writes two keys that Redis does not have yet"
	}
	mean.Bound = rate.Bound
	return []Goal{rate, mean}
}

func lossGoals(a findings.All) []Goal {
	if a.Loss == nil {
		return nil
	}
	var goals []Goal
	for _, k := range a.Loss.Result.Kills {
		// What is on its way to Redis when the process is killed comes on top of the interval.
		g := Goal{Goal: "kill -9, " + k.Setting + ": lost, in ms of the stream", Want: k.BoundMS * 1.25, Bound: "the flush interval"}
		if i := slices.IndexFunc(goals, func(o Goal) bool { return o.Goal == g.Goal }); i >= 0 {
			goals[i].Readings = append(goals[i].Readings, Reading{"again", k.LostMS})
			continue
		}
		g.Readings = []Reading{{"lost", k.LostMS}}
		goals = append(goals, g)
	}
	return goals
}
