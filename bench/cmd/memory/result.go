package main

import (
	"fmt"
	"strconv"
	"strings"

	"twotier/bench/report"
)

// Result is what is written.
type Result struct {
	Rows   []Row  `json:"rows"`
	Pauses Pauses `json:"pauses"`
	// Missing are the limiters that can't run here, and why.
	Missing []string `json:"missing,omitempty"`
}

const rowsText = `## Bytes for each key

Keys are 16 bytes. Events lie at the same times for all: one now; thirty spread evenly over a day; or one in every second
of the last minute, every minute of the last hour and every quarter of the last day. Everybody counts them for windows
of a minute, an hour and a day, with room for all. *Redis* is the growth of used_memory, *Redis keys* how many keys
there are for each of ours (the Hash limiters have one for each width of sub-windows, the fixed windows one for each
rule; counters of windows that are over have been deleted, as they would have expired). For twotier *counted* is what it
accounts for itself, *resident* the growth of the process, which also holds what the Go runtime keeps in reserve.

`

const pausesText = `
## Garbage collection with %d keys in one process

One event for each key: %.2f GiB resident, %.0f bytes a key. %d collections were forced while one goroutine went on
counting (%.0f adds/s); a collection took %.0f ms, nearly all of it beside the program. It was stopped %d times: at
most **%.0f µs at the 99th percentile**, %.0f µs at the median, %.0f µs at the worst.
`

func (r *Result) markdown() string {
	var b strings.Builder
	b.WriteString(rowsText)
	head := []string{"way", "events", "keys", "Redis", "Redis keys", "twotier counted", "twotier resident"}
	var rows [][]string
	for _, row := range r.Rows {
		cells := []string{row.Way, row.Shape, strconv.Itoa(row.Keys), fmt.Sprintf("%.0f", row.Redis),
			fmt.Sprintf("%.2f", row.RedisKeys), "", ""}
		if row.Counted > 0 {
			cells[5], cells[6] = fmt.Sprintf("%.0f", row.Counted), fmt.Sprintf("%.0f", row.Resident)
		}
		rows = append(rows, cells)
	}
	b.WriteString(report.Table(head, rows))
	for _, m := range r.Missing {
		fmt.Fprintf(&b, "\nNot compared: %s.\n", m)
	}
	p := r.Pauses
	fmt.Fprintf(&b, pausesText, p.Keys, float64(p.Bytes)/(1<<30), p.BytesPerKey, p.Cycles, p.Adds, p.CycleMS, p.Stops,
		p.P99, p.P50, p.Max)
	return b.String()
}
