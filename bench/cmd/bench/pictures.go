package main

import (
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/plot/plotter"

	"twotier.dev/twotier/bench/drive"
)

// pictures returns the pictures of all findings.
func (f *findings) pictures() (all []Picture) {
	for _, w := range drive.Workloads() {
		all = append(all, throughput(f.compare, w))
	}
	all = append(all, commands(f.compare), latency(f.compare), tradeOff(f.lines["interval"]),
		growingKeys(f.lines["growth"]), growingRules(f.rules))
	return slices.DeleteFunc(all, func(p Picture) bool { return len(p.series) == 0 })
}

// A column is a figure of each rival, 0 if it has none.
type column struct {
	name   string
	figure func(CompareRow) float64
}

// rows adds the rivals of a workload for which the first column has a figure.
func (p Picture) rows(rows []CompareRow, columns ...column) Picture {
	p.logX = true
	for _, r := range rows {
		if r.Single == nil || columns[0].figure(r) == 0 {
			continue
		}
		for i, c := range columns {
			if v := c.figure(r); v > 0 {
				below := float64(i) / float64(len(columns)+1)
				p.point(c.name, v, float64(len(p.labels))+below)
			}
		}
		p.labels = append(p.labels, r.Title+room)
	}
	return p
}

func throughput(c CompareResult, w drive.Workload) Picture {
	return Picture{
		Name: "throughput-" + w.Name, Title: "Decisions per second, " + w.Name,
		Text: "Workload: " + w.About + ". Rates include the time until Redis has everything. " +
			"The axis is logarithmic.",
		xUnit: "decisions per second",
	}.rows(c.Of(w.Name),
		column{"one by one", func(r CompareRow) float64 { return r.Single.Lasting() }},
		column{fmt.Sprintf("%d in a call", c.Batch),
			func(r CompareRow) float64 { return r.Batched.Lasting() }})
}

// commands compares the work of Redis for each rival that uses it, in the rival's most economical
// way.
func commands(c CompareResult) Picture {
	of := func(workload string) column {
		return column{workload, func(r CompareRow) float64 {
			return c.Row(workload, r.Name).Best().Commands()
		}}
	}
	return Picture{
		Name: "redis-commands", Title: "Redis commands for each decision", xUnit: "commands",
		Text: "Including commands within scripts; batched if the limiter supports it.",
	}.rows(c.Of("zipf"), of("zipf"), of("distinct"))
}

func latency(c CompareResult) Picture {
	return Picture{
		Name: "latency-zipf", Title: fmt.Sprintf("Latency at %.0f decisions a second, zipf",
			c.Rate),
		Text:  "Open loop: latencies start when a decision is due. The axis is logarithmic.",
		xUnit: "microseconds",
	}.rows(c.Of("zipf"),
		column{"median", func(r CompareRow) float64 { return float64(r.Open.Latency.P50) }},
		column{"p99", func(r CompareRow) float64 { return float64(r.Open.Latency.P99) }},
		column{"p99.9", func(r CompareRow) float64 { return float64(r.Open.Latency.P999) }})
}

// point adds a figure at x to the line with a name. A logarithmic axis has no place for a 0.
func (p *Picture) point(name string, x, y float64) {
	if y <= 0 && p.logY {
		return
	}
	i := slices.IndexFunc(p.series, func(s series) bool { return s.name == name })
	if i < 0 {
		i, p.series = len(p.series), append(p.series, series{name: name})
	}
	p.series[i].at = append(p.series[i].at, plotter.XY{X: x, Y: y})
}

func tradeOff(r Lines) Picture {
	p := Picture{
		Name: "flush-interval", Title: "Trade-offs of the flush interval",
		Text:  "Both axes are logarithmic; each line has the unit of its name.",
		xUnit: "flush interval, ms", logX: true, logY: true,
	}
	for _, at := range r.Of("Shared") {
		interval, _ := time.ParseDuration(at.Get("interval"))
		ms := float64(interval.Milliseconds())
		p.point("until in Redis, ms", ms, at.Median("redis-p50-ms"))
		p.point("until seen elsewhere, ms", ms, at.Median("other-p50-ms"))
		p.point("Redis commands per 100 decisions", ms,
			100*r.One("Flush/interval="+at.Get("interval")).Median("commands/decision"))
		p.point("overshoot of a key that two count, events", ms, at.Median("overshoot"))
	}
	return p
}

func growingKeys(r Lines) Picture {
	p := Picture{
		Name: "growth-keys", Title: "From ten thousand keys to ten million",
		Text: "A counter in one process.", xUnit: "keys that live", logX: true,
	}
	for _, op := range []string{"add", "acquire"} {
		for _, at := range r.Of("Keys/" + op) {
			p.point(op+", ns", at.Number("keys"), at.Median("core-ns/op"))
		}
	}
	for _, at := range r.Of("Keys/add") {
		p.point("resident, bytes a key", at.Number("keys"), at.Median("resident-B/key"))
	}
	return p
}

func growingRules(r CompareResult) Picture {
	p := Picture{
		Name: "growth-rules", Title: "From one rule to four", xUnit: "rules",
		yUnit: "per second", logY: true,
		Text: "Decisions per second at Zipf, batched if the limiter supports it. The axis is " +
			"logarithmic.",
	}
	for _, at := range r.Rows {
		p.point(at.Name, float64(at.Rules), at.Best().PerSecond)
	}
	return p
}
