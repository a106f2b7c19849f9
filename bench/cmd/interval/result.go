package main

import (
	"fmt"
	"strings"

	"twotier/bench/report"
)

// Result is what is written.
type Result struct {
	Points []Point `json:"points"`
	Steady Steady  `json:"steady"`
}

const pointsText = `## From one flush to the next

A server takes %.0f decisions a second on a million keys (Zipf, two rules) in batches of %d for %v: *commands*, script *calls* and
processor time are Redis's for each decision or million of them. Beside it, two counters share a Redis: *in Redis* is how
long an add takes to be stored there, *elsewhere* how long until the other counter, which shares the key, sees it, in
milliseconds. For *overshoot*, each of the two asks %d times a second for one key with room for %d; it is what they admit beyond
that. One counter by itself never overshoots: this is what sharing a key, or a split of the cluster, can cost.

`

const steadyText = `
## Every add to a key of its own

%.0f adds per second for %.0f s in batches of 500, each to a new key and into three buckets, all flushed to one Redis.
%.0f per second were taken; a batch took %.1f ms at the 99th percentile, measured from when it was due. Asked once a second,
**%d buckets were pending on average and %d at most** (the bound, five seconds of the stream, is %d: %s), and %.2f s after
the last add none was. Redis used %.2f µs of processor time for each add in %.4f script calls, twotier %.2f µs.
`

func (r *Result) markdown(o options) string {
	var b strings.Builder
	fmt.Fprintf(&b, pointsText, o.rate, batch, o.duration, triedPerSecond, overshootLimit)
	head := []string{"flush interval", "commands", "calls", "Redis CPU s/M", "service CPU s/M", "p99 of a batch, µs",
		"in Redis, median", "p90", "elsewhere, median", "p90", "overshoot"}
	var rows [][]string
	for _, p := range r.Points {
		w := p.Usage.Work
		rows = append(rows, report.Cells("%.0f ms|%.3f|%.4f|%.2f|%.2f|%d|%.1f|%.1f|%.1f|%.1f|%d", p.IntervalMS,
			p.per(float64(w.Commands)), p.per(float64(w.Scripts)), p.per(w.CPU*1e6), p.per(p.Usage.Service*1e6),
			p.Load.Latency.P99, p.Redis.Median, p.Redis.P90, p.Other.Median, p.Other.P90, p.Overshoot))
	}
	b.WriteString(report.Table(head, rows))
	d := r.Steady
	verdict := "kept"
	if !d.Bounded {
		verdict = "NOT kept"
	}
	adds := float64(max(d.Load.Operations, 1))
	fmt.Fprintf(&b, steadyText, d.Load.Options.Rate, d.Load.Seconds, d.Load.PerSecond, float64(d.Load.Latency.P99)/1e3, d.MeanPending,
		d.MaxPending, d.Bound, verdict, d.Drained, d.Usage.Work.CPU/adds*1e6, float64(d.Usage.Work.Scripts)/adds, d.Usage.Service/adds*1e6)
	return b.String()
}
