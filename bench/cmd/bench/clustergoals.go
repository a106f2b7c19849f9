package main

import "fmt"

// The goals of clusters and of the endpoints for Redis clients and Envoy.

const sameCores = "all nodes, the caller and Redis share two cores: the cost of cluster " +
	"membership comes out of the same processor time"

func (f *findings) clusterGoals() []Goal {
	carry := Goal{Goal: "three nodes carry at least 0.75 of what one does, on the same cores",
		Want: 0.75, Least: true, Bound: sameCores}
	messages := Goal{Goal: "message control with hash tags: three nodes carry at least 0.6 of " +
		"what one does, on the same cores", Want: 0.6, Least: true, Bound: sameCores}
	for _, row := range f.controlRows("messages-nodes") {
		if row.Name == "twotier-tagged-3" {
			messages.add("limits as "+row.Limits, row.Relative.Median)
		}
	}
	over := Goal{Goal: "a limit that everybody shares is never exceeded", Want: 0}
	asked := Goal{Goal: "messages for 100 decisions on a limit that everybody shares, below",
		Want: 1, Bound: "users of other nodes are forwarded, too"}
	alone := map[string]float64{}
	for _, h := range f.lines["hot"].Of("Hot") {
		rate, limit := h.Median("decisions/s"), h.Get("limit")
		of := map[bool]string{true: "limit 1000000", false: "never reached"}[limit == "1000000"] +
			", users of " + map[string]string{"own": "the node that is asked",
			"any": "any node"}[h.Get("users")]
		if h.Get("nodes") == "1" {
			alone[limit] = rate
			continue
		}
		carry.add("a limit that everybody shares: "+of, ratio(rate, alone[limit]))
		over.note(of, h.Median("over"))
		asked.add(of, 100*h.Median("messages/decision"))
	}
	early := Goal{Goal: "refused early for what is lent: below 1 % of a limit of 10,000 and more",
		Want: 1, Bound: "lent and unused parts of the limit"}
	for _, e := range f.lines["hot"].Of("Early") {
		early.note("limit "+e.Get("limit")+", in %", 100*e.Median("early"))
	}
	return []Goal{messages, carry, over, asked, early, f.forwardGoal(), f.quietGoal()}
}

// forwardGoal compares the costs of batches with keys of another node and with keys of the
// receiver.
func (f *findings) forwardGoal() Goal {
	g := Goal{Goal: "a forwarded batch costs at most 1.5 times the processor time of its owner",
		Want: 1.5, Bound: "forward-cpu.md has the profile"}
	owner := map[string]float64{}
	for _, b := range f.lines["forward"].Of("Forward") {
		of := fmt.Sprintf("%s %s", b.Get("size"), b.Get("kind"))
		switch cost := b.Least("service-us/op"); {
		case b.Number("size") == 1:
		case b.Get("way") == "owner":
			owner[of] = cost
		case b.Get("way") == "forwarded":
			g.add(of, ratio(cost, owner[of]))
		}
	}
	return g
}

// quietGoal compares latencies with and without a flush.
func (f *findings) quietGoal() Goal {
	g := Goal{Goal: "p99 of acquires at half the highest rate: with Redis at most 1.5 times that " +
		"without", Want: 1.5, Bound: "Redis and the flush take their share of the same two cores"}
	for _, b := range f.lines["quietflush"].Of("QuietFlush") {
		of := "known keys"
		if b.Get("keys") == "distinct" {
			of = "new keys"
		}
		g.add(of, b.Median("p99-ratio"))
	}
	return g
}

// endpointGoals compares the endpoints for Redis clients and for Envoy with their alternatives.
func (f *findings) endpointGoals() []Goal {
	const bound = "resp.md has the processor time of each server"
	least := func(goal string, want float64, of string, value float64) Goal {
		g := Goal{Goal: goal, Want: want, Least: true, Bound: bound}
		g.add(of, value)
		return g
	}
	r := f.resp
	cpu := Goal{Goal: "Redis behind TT.ACQUIRE: at most 0.35 of the processor time of INCR",
		Want: 0.35, Bound: "most keys are new: Redis makes them, in a script"}
	cpu.add("one by one", ratio(r.Of(wayTwotier, 1).RedisUS, r.Of(wayIncr, 1).ServerUS))
	goals := []Goal{
		least("TT.ACQUIRE at least 0.85 of a command that does nothing", 0.85, "one by one",
			r.Ratio(wayNothing, 1)),
		least("TT.ACQUIRE at least 1.2 times the Hash limiter's EVAL", 1.2, "one by one",
			r.Ratio(wayScript, 1)),
		least("TT.ACQUIRE at -P 16 at least 4 times the Hash limiter's EVAL", 4, "-P 16",
			r.Ratio(wayScript, 16)), cpu,
	}
	envoy := Goal{Goal: "Envoy: at least 3 times envoyproxy/ratelimit", Want: 3, Least: true,
		Bound: "gRPC itself, on both sides of the connection"}
	ours, theirs := f.lines["envoy"].One("Envoy/service=twotier"),
		f.lines["envoy"].One("Envoy/service=envoyproxy")
	perCPU := func(b *Benchmark) float64 {
		return ratio(1, b.Median("service-us/call")+b.Median("redis-us/call"))
	}
	envoy.add("calls per second", ratio(ours.Median("calls/s"), theirs.Median("calls/s")))
	envoy.add("calls per processor second", ratio(perCPU(ours), perCPU(theirs)))
	return append(goals, envoy)
}
