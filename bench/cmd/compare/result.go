package main

import (
	"fmt"
	"strings"

	"twotier/bench/drive"
	"twotier/bench/findings"
	"twotier/bench/report"
)

// Result is what is written.
type Result struct {
	Workers  int     `json:"workers"`
	Batch    int     `json:"batch"`
	Rate     float64 `json:"rate"`
	Duration string  `json:"duration"`
	Rows     []Row   `json:"rows"`
}

func (r *Row) progress() string {
	if r.Skipped != "" {
		return fmt.Sprintf("%-10s %-24s skipped: %s", r.Workload, r.Title, r.Skipped)
	}
	line := fmt.Sprintf("%-10s %-24s %9.0f/s", r.Workload, r.Name, r.Single.PerSecond)
	if r.Batched != nil {
		line += fmt.Sprintf(", in batches %9.0f/s", r.Batched.PerSecond)
	}
	return line + fmt.Sprintf(", at %.0f/s p99 %d µs", r.Rate(), r.Open.Latency.P99)
}

// Rate is that of the open loop.
func (r *Row) Rate() float64 { return r.Open.Options.Rate }

const introduction = `Every limiter gets the same decisions from the same driver on the same machine, and its own servers, started
anew for each workload. %d callers ask for one decision at a time (*single*), or 8 for %d at a time (*batched*, where there is such a
call), as fast as they are answered, for %s, *lasting* if the time is counted in that Redis then takes to have all of it; then for one at a time at %.0f a second whether or not answers have come (*open*; its
latencies are measured from when a decision was due). Limiters marked *own clock* can't be told the time of an event.
Processor time is in seconds for each million decisions: of the *driver*, which draws them and runs what is a library or
the client of Redis; of the limiter's own *service* processes; and of *Redis*. *Commands* of Redis include those within
scripts; *calls* are scripts; *reads* are how often it read from a connection. All are measured until Redis has
acknowledged everything.

`

func (r *Result) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, introduction, r.Workers, r.Batch, r.Duration, r.Rate)
	for _, w := range drive.Workloads() {
		if rows := r.of(w[0]); rows != nil {
			fmt.Fprintf(&b, "## %s: %s\n\n%s\n%s", w[0], w[1], speed(rows), work(rows))
			if w[0] == "distinct" {
				b.WriteString("\n" + memoryText + memory(rows))
			}
			for _, row := range rows {
				if row.Skipped != "" {
					fmt.Fprintf(&b, "\nNot compared: %s.\n", row.Skipped)
				}
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func (r *Result) of(workload string) (rows []Row) {
	for _, row := range r.Rows {
		if row.Workload == workload {
			rows = append(rows, row)
		}
	}
	return rows
}

func speed(rows []Row) string {
	head := []string{"limiter", "single/s", "lasting", "batched/s", "lasting", "admitted", "p50 µs open", "p99", "p99.9", "max", "unsent"}
	var cells [][]string
	for _, r := range rows {
		if r.Skipped != "" {
			continue
		}
		batched, lasting := "–", "–"
		if r.Batched != nil {
			batched, lasting = fmt.Sprintf("%.0f", r.Batched.PerSecond), fmt.Sprintf("%.0f", r.Batched.Lasting())
		}
		l := r.Open.Latency
		cells = append(cells, report.Cells("%s|%.0f|%.0f|%s|%s|%.1f %%|%d|%d|%d|%d|%d", r.Title, r.Single.PerSecond, r.Single.Lasting(), batched, lasting,
			100*r.Single.Per(float64(r.Single.Admitted)), l.P50, l.P99, l.P999, l.Max, r.Open.Unsent))
	}
	return report.Table(head, cells)
}

func work(rows []Row) string {
	head := []string{"limiter", "loop", "driver CPU s/M", "service", "Redis", "commands/decision", "calls", "reads",
		"bytes to and from Redis", "allocs"}
	var cells [][]string
	for _, r := range rows {
		for _, l := range []struct {
			name string
			*findings.Loop
		}{{"single", r.Single}, {"batched", r.Batched}} {
			if l.Loop == nil {
				continue
			}
			u := l.Usage
			cells = append(cells, report.Cells("%s|%s|%.2f|%.2f|%.2f|%.3f|%.4f|%.4f|%.0f|%.1f", r.Title, l.name,
				l.Per(u.Driver*1e6), l.Per(u.Service*1e6), l.Per(u.Work.CPU*1e6), l.Per(float64(u.Work.Commands)),
				l.Per(float64(u.Work.Scripts)), l.Per(float64(u.Work.Reads)), l.Per(float64(u.Work.BytesIn+u.Work.BytesOut)),
				l.Per(float64(u.Mallocs))))
		}
	}
	return report.Table(head, cells)
}

const memoryText = `Bytes for each key, with one event: the live heap of a library or the resident memory of servers, with what garbage
collection keeps in reserve; of that, what twotier's servers count as theirs; and Redis.

`

func memory(rows []Row) string {
	var cells [][]string
	for _, r := range rows {
		if r.Memory.Keys == 0 {
			continue
		}
		m := r.Memory
		per := func(v int64) float64 { return float64(max(v, 0)) / float64(m.Keys) }
		cells = append(cells, report.Cells("%s|%d|%.0f|%.0f|%.0f", r.Title, m.Keys, per(m.Service), per(m.Counted), per(m.Redis)))
	}
	return report.Table([]string{"limiter", "keys", "service", "counted", "Redis"}, cells)
}
