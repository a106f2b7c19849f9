package main

import (
	"fmt"
	"strings"

	"twotier/bench/report"
)

// Result is what is written.
type Result struct {
	Distinct Distinct `json:"distinct"`
	Rows     []Row    `json:"traces"`
	// Missing are the limiters that can't run here, and why.
	Missing []string `json:"missing,omitempty"`
}

const distinctText = `## Every add to a key of its own

%.0f adds per second for %v in batches of 500, each to a new key, into buckets of 1 s and 1 minute (two for each add), all
flushed to one Redis. %.0f per second were taken; a batch took %.1f ms at the 99th percentile, measured from when it was
due. Asked once a second, **%d buckets were pending on average and %d at most** (the bound, five seconds of the stream, is
%d: %s), and %.2f s after the last add none was. Redis then had %d keys. Redis used %.2f µs of processor time for each add in %.4f script
calls, twotier %.2f µs.

`

const tracesText = `## The same traces, the same rules

%d events on 1,000,000 keys, uniform or Zipf (exponent 1.1), at most 15 in any minute and 50 in any hour. The
limiters in Redis decide over 32 connections, one decision for each round trip or 100 in a pipeline, as fast as they can.
twotier is sent the trace in order at %.0f events per second in batches, as acquires under the same rules and, for
counting alone, as adds; it is measured until Redis has acknowledged everything. *Commands* include those within
scripts. What the servers do to connect, and the questions of the benchmark itself, are left out of the counts.

The uniform trace is the worst for twotier: hardly a key comes twice, so an acquire has to read nearly every key from
Redis before it decides, and every flush carries one event for each key.

`

func (r *Result) markdown(o options) string {
	var b strings.Builder
	d := r.Distinct
	verdict := "kept"
	if !d.Bounded {
		verdict = "NOT kept"
	}
	adds := float64(d.Load.Operations)
	fmt.Fprintf(&b, distinctText, o.rate, o.duration, d.Load.PerSecond, float64(d.Load.Latency.P99)/1e3, d.MeanPending,
		d.MaxPending, d.Bound, verdict, d.Drained, d.Keys, d.Work.CPU/adds*1e6, float64(d.Work.Scripts)/adds, d.TwotierCPU/adds*1e6)
	fmt.Fprintf(&b, tracesText, o.events, o.rate)
	head := []string{"way", "trace", "script calls per event", "commands per event", "Redis CPU µs per event",
		"bytes to and from Redis per event", "events/s"}
	var rows [][]string
	for _, row := range r.Rows {
		n := float64(row.Events)
		rows = append(rows, []string{row.Way, row.Trace, fmt.Sprintf("%.4f", float64(row.Work.Scripts)/n),
			fmt.Sprintf("%.2f", float64(row.Work.Commands)/n), fmt.Sprintf("%.2f", row.Work.CPU/n*1e6),
			fmt.Sprintf("%.0f", float64(row.Work.BytesIn+row.Work.BytesOut)/n), fmt.Sprintf("%.0f", row.PerSecond)})
	}
	b.WriteString(report.Table(head, rows))
	for _, m := range r.Missing {
		fmt.Fprintf(&b, "\nNot compared: %s.\n", m)
	}
	return b.String()
}
