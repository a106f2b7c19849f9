package main

import (
	"fmt"
	"math"

	"twotier/bench/drive"
	"twotier/bench/findings"
	"twotier/bench/plot"
)

// picture is one plot.
type picture struct {
	name, title, text string
	svg               []byte
}

func pictures(a findings.All) (all []picture) {
	if a.Compare != nil {
		for _, w := range drive.Workloads() {
			if p, ok := throughput(&a.Compare.Result, w[0], w[1]); ok {
				all = append(all, p)
			}
		}
		all = append(all, commands(&a.Compare.Result), latency(&a.Compare.Result))
	}
	if a.Interval != nil && len(a.Interval.Result.Points) > 1 {
		all = append(all, tradeOff(&a.Interval.Result))
	}
	if a.Growth != nil {
		all = append(all, growth(&a.Growth.Result)...)
	}
	return all
}

func throughput(c *findings.Compare, workload, what string) (picture, bool) {
	var labels []string
	single, batched := plot.Series{Name: "one by one"}, plot.Series{Name: fmt.Sprintf("%d in a call", c.Batch)}
	for _, r := range c.Rows {
		if r.Workload != workload || r.Single == nil {
			continue
		}
		labels = append(labels, r.Title)
		single.Y = append(single.Y, r.Single.Lasting())
		many := math.NaN()
		if r.Batched != nil {
			many = r.Batched.Lasting()
		}
		batched.Y = append(batched.Y, many)
	}
	title := "Decisions per second, " + workload
	return picture{"throughput-" + workload, title, "Workload: " + what + ". Counted until Redis had all of it. The axis is logarithmic.",
		plot.Bars(title, "decisions per second", labels, []plot.Series{single, batched}, true)}, labels != nil
}

// commands compares what is asked of Redis, by those who have one, in the way that spares it most.
func commands(c *findings.Compare) picture {
	var labels []string
	series := []plot.Series{{Name: "zipf"}, {Name: "distinct"}}
	for _, r := range c.Rows {
		if r.Workload != "zipf" || r.Single == nil || r.Single.Usage.Work.Commands == 0 {
			continue
		}
		labels = append(labels, r.Title)
		for i, workload := range []string{"zipf", "distinct"} {
			v := math.NaN()
			if row := c.Row(workload, r.Name); row != nil {
				l := row.Single
				if row.Batched != nil {
					l = row.Batched
				}
				v = l.Per(float64(l.Usage.Work.Commands))
			}
			series[i].Y = append(series[i].Y, v)
		}
	}
	const title = "Redis commands for each decision"
	return picture{"redis-commands", title, "Those within scripts included, batched where there is such a call.",
		plot.Bars(title, "commands", labels, series, false)}
}

func latency(c *findings.Compare) picture {
	var labels []string
	series := []plot.Series{{Name: "median"}, {Name: "p99"}, {Name: "p99.9"}}
	for _, r := range c.Rows {
		if r.Workload != "zipf" || r.Open == nil {
			continue
		}
		labels = append(labels, r.Title)
		for i, v := range []int64{r.Open.Latency.P50, r.Open.Latency.P99, r.Open.Latency.P999} {
			series[i].Y = append(series[i].Y, float64(v))
		}
	}
	title := fmt.Sprintf("Latency at %.0f decisions a second, zipf", c.Rate)
	return picture{"latency-zipf", title, "Open loop: measured from when a decision was due. The axis is logarithmic.",
		plot.Bars(title, "microseconds", labels, series, true)}
}

func tradeOff(in *findings.Interval) picture {
	redis, other := plot.Series{Name: "until in Redis, ms"}, plot.Series{Name: "until seen elsewhere, ms"}
	work, over := plot.Series{Name: "Redis commands per 100 decisions"}, plot.Series{Name: "overshoot of a shared key, events"}
	for _, p := range in.Points {
		n := float64(max(p.Load.Decisions, 1))
		for _, s := range []struct {
			to *plot.Series
			y  float64
		}{{&redis, p.Redis.Median}, {&other, p.Other.Median}, {&work, 100 * float64(p.Usage.Work.Commands) / n}, {&over, p.Overshoot}} {
			s.to.X, s.to.Y = append(s.to.X, p.MS), append(s.to.Y, s.y)
		}
	}
	const title = "What the flush interval trades"
	return picture{"flush-interval", title, "Both axes are logarithmic; each line has the unit of its name.",
		plot.Lines(title, "flush interval, ms", "", []plot.Series{redis, other, work, over}, true, true)}
}

func growth(g *findings.Growth) (all []picture) {
	add, acquire, bytes := plot.Series{Name: "add, ns"}, plot.Series{Name: "acquire, ns"}, plot.Series{Name: "resident, bytes a key"}
	for _, k := range g.Keys {
		for _, s := range []struct {
			to *plot.Series
			y  float64
		}{{&add, k.Add}, {&acquire, k.Acquire}, {&bytes, k.Resident}} {
			s.to.X, s.to.Y = append(s.to.X, k.Keys), append(s.to.Y, s.y)
		}
	}
	if len(g.Keys) > 1 {
		const title = "From ten thousand keys to ten million"
		all = append(all, picture{"growth-keys", title, "A counter in one process.",
			plot.Lines(title, "keys that live", "", []plot.Series{add, acquire, bytes}, true, false)})
	}
	rules := func(p findings.GrowthPoint) float64 { return p.Rules }
	return append(all, scaled(g.Rules, "growth-rules", "From one rule to four", "rules", rules)...)
}

// scaled draws the decisions per second of each limiter along a scale.
func scaled(points []findings.GrowthPoint, name, title, unit string, x func(findings.GrowthPoint) float64) []picture {
	var series []plot.Series
	at := make(map[string]int)
	for _, p := range points {
		i, ok := at[p.Name]
		if !ok {
			i = len(series)
			at[p.Name] = i
			series = append(series, plot.Series{Name: p.Name})
		}
		series[i].X, series[i].Y = append(series[i].X, x(p)), append(series[i].Y, max(p.Single, p.Batched))
	}
	if len(points) < 2 {
		return nil
	}
	return []picture{{name, title, "Decisions per second at Zipf, batched where there is such a call. The axis is logarithmic.",
		plot.Lines(title, unit, "per second", series, false, true)}}
}
