package main

import (
	"errors"

	"twotier/bench/findings"
	"twotier/bench/measure"
)

// Constants are the prices, all measured. Times are in microseconds of one core, sizes in bytes.
type Constants struct {
	// Base is a decision on a warm key in a batch, by two rules; Single what a call of its own adds; Rule what another rule adds.
	Base   float64 `json:"base_us"`
	Single float64 `json:"single_us"`
	Rule   float64 `json:"rule_us"`
	// Flush and Load are the service's part for one key, New what one that was never seen takes beside being flushed.
	Flush float64 `json:"flush_us"`
	Load  float64 `json:"load_us"`
	New   float64 `json:"new_us"`
	// Forward is what asking another node for one decision in a batch costs both together.
	Forward float64 `json:"forward_us"`
	// Agree is the same for a decision over two keys, on which their owners have to agree.
	Agree float64 `json:"agree_us"`
	// Round is the service's part for a partition that has changed, whatever is in its round.
	Round float64 `json:"round_us"`
	// RedisFlush, RedisRound and RedisLoad are Redis's part, FlushBytes and LoadBytes what goes over the network for a key.
	RedisFlush float64 `json:"redis_flush_us"`
	RedisRound float64 `json:"redis_round_us"`
	RedisLoad  float64 `json:"redis_load_us"`
	RedisNew   float64 `json:"redis_new_us"`
	FlushBytes float64 `json:"flush_bytes"`
	LoadBytes  float64 `json:"load_bytes"`
	// Sizes are those of a key by the number of its events, in order; Overhead is what the process holds beside them, as a factor.
	Sizes    []Size  `json:"sizes"`
	Overhead float64 `json:"overhead"`
}

// Size is what a key with so many events takes up.
type Size struct {
	Events  float64 `json:"events"`
	Service float64 `json:"service_bytes"`
	Redis   float64 `json:"redis_bytes"`
}

// errMissing says which results there must be.
var errMissing = errors.New("plan needs the results of compare (hot, zipf, distinct, with twotier), interval, growth and memory")

// constants takes the prices from results.
func constants(a findings.All) (c Constants, err error) {
	if a.Compare == nil || a.Interval == nil || a.Growth == nil || a.Growth.Result.Cold == nil || a.Memory == nil {
		return c, errMissing
	}
	hot, distinct := a.Compare.Result.Row("hot", "twotier"), a.Compare.Result.Row("distinct", "twotier")
	if hot == nil || distinct == nil {
		return c, errMissing
	}
	c.Base = service(hot.Batched)
	c.Single = max(service(hot.Single)-c.Base, 0)
	st := a.Interval.Result.Steady
	adds := float64(max(st.Load.Operations, 1))
	c.FlushBytes = float64(st.Usage.Work.BytesIn+st.Usage.Work.BytesOut) / adds
	rounds := changed(st.Load.PerSecond*defaultFlush) / (st.Load.PerSecond * defaultFlush) // every key is another
	c.Flush, c.Round = flushAndRound(a.Interval.Result.Points, st.Usage.Service*1e6/adds-c.Base, rounds,
		func(u measure.Usage) float64 { return u.Service })
	c.RedisFlush, c.RedisRound = flushAndRound(a.Interval.Result.Points, st.Usage.Work.CPU*1e6/adds, rounds,
		func(u measure.Usage) float64 { return u.Work.CPU })
	perFlush := distinct.Batched.PerSecond * defaultFlush
	rounds = changed(perFlush) / perFlush
	c.New = max(service(distinct.Batched)-c.Base-c.Flush-rounds*c.Round, 0)
	c.RedisNew = max(distinct.Batched.Per(distinct.Batched.Usage.Work.CPU*1e6)-c.RedisFlush-rounds*c.RedisRound, 0)
	cold := a.Growth.Result.Cold
	c.Load, c.RedisLoad, c.LoadBytes = cold.Load, cold.RedisLoad, cold.Bytes
	c.Rule = slope(a.Growth.Result.Rules, "zipf", func(p findings.GrowthPoint) float64 { return p.Rules })
	// Of the keys of n nodes, (n-1)/n are another's.
	elsewhere := func(p findings.GrowthPoint) float64 { return (p.Nodes - 1) / p.Nodes }
	c.Forward = slope(a.Growth.Result.Nodes, "zipf", elsewhere)
	c.Agree = slope(a.Growth.Result.Nodes, "messages", elsewhere)
	return c, c.sizes(&a.Memory.Result)
}

// flushAndRound tells the price of a key from that of a round. The steady stream says what one key and so many rounds cost; the
// shortest and the longest flush interval, under the same load, flush different numbers of keys in different numbers of
// rounds and are alike in everything else. Where the two can't be told apart, a key has all of it, and always a quarter:
// rounds are bounded by the number of partitions and keys are not, so a mistake on that side grows with the load.
func flushAndRound(
	points []findings.IntervalPoint, steady, rounds float64, cpu func(measure.Usage) float64,
) (flush, round float64) {
	flush = max(steady, 0)
	if len(points) < 2 {
		return flush, 0
	}
	var keys, calls, cost [2]float64
	for i, p := range []findings.IntervalPoint{points[0], points[len(points)-1]} {
		n := float64(max(p.Load.Decisions, 1))
		perFlush := zipfDifferent(zipfKeys, n/p.Load.Seconds*p.MS/1e3)
		keys[i] = perFlush / (p.MS / 1e3) / (n / p.Load.Seconds)
		calls[i], cost[i] = changed(perFlush)/(p.MS/1e3)/(n/p.Load.Seconds), cpu(p.Usage)*1e6/n
	}
	dk, dc, dv := keys[0]-keys[1], calls[0]-calls[1], cost[0]-cost[1]
	if det := dc - rounds*dk; det > 0 {
		round = min(max((dv-steady*dk)/det, 0), 0.75*steady/max(rounds, 1e-9))
	}
	return max(steady-rounds*round, 0), round
}

// service is the service's microseconds for each decision.
func service(l *findings.Loop) float64 { return l.Per(l.Usage.Service * 1e6) }

// slope is the service's microseconds for a decision of a workload over x, by least squares; 0 where it would fall.
func slope(points []findings.GrowthPoint, workload string, x func(findings.GrowthPoint) float64) float64 {
	var n, sx, sy, sxx, sxy float64
	for _, p := range points {
		if p.Name != "twotier" || p.Workload != workload {
			continue
		}
		at, y := x(p), p.Usage.Service*1e6/float64(max(p.Decisions, 1))
		n, sx, sy, sxx, sxy = n+1, sx+at, sy+y, sxx+at*at, sxy+at*y
	}
	if d := n*sxx - sx*sx; n > 1 && d > 0 {
		return max((n*sxy-sx*sy)/d, 0)
	}
	return 0
}

// sizes reads what keys take up. The factor is that of keys with one event, which are most.
func (c *Constants) sizes(m *findings.Memory) error {
	events := map[string]float64{"1 event": 1, "30 events in 24 h": 30, "every bucket live": 215}
	for _, r := range m.Rows {
		if n := events[r.Shape]; r.Way == "twotier" && n > 0 {
			c.Sizes = append(c.Sizes, Size{n, r.Counted, r.Redis})
			if n == 1 && r.Counted > 0 {
				c.Overhead = max(r.Resident/r.Counted, 1)
			}
		}
	}
	if len(c.Sizes) == 0 {
		return errMissing
	}
	return nil
}

// size interpolates between the shapes that were measured; above the last, every bucket is live and nothing grows.
func (c *Constants) size(events float64) Size {
	for i := 1; i < len(c.Sizes); i++ {
		a, b := c.Sizes[i-1], c.Sizes[i]
		if events <= b.Events {
			t := max(events-a.Events, 0) / (b.Events - a.Events)
			return Size{events, a.Service + t*(b.Service-a.Service), a.Redis + t*(b.Redis-a.Redis)}
		}
	}
	last := c.Sizes[len(c.Sizes)-1]
	return Size{events, last.Service, last.Redis}
}
