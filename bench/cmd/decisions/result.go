package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"twotier/bench/limiter"
	"twotier/bench/report"
	"twotier/bench/trace"
)

// Result is what is written.
type Result struct {
	Seed      uint64  `json:"seed"`
	Receivers int     `json:"receivers"`
	Hours     float64 `json:"hours"`
	// Messages are the tallies of the message-control day, the exact log's first.
	Messages []*Tally `json:"messages"`
	// Live are the tallies of the live trace, of those with a clock of their own, too.
	Live []*Tally `json:"live"`
	// Worked is the outcome of each worked example in the order of Messages.
	Worked []Worked `json:"worked_examples"`
	// Missing are the limiters that can't run here, and why.
	Missing []string `json:"missing,omitempty"`
}

// Worked is one worked example with how many of its last tries each limiter admitted.
type Worked struct {
	Title    string `json:"title"`
	Admitted []int  `json:"admitted"`
}

// play sends the trace and the examples through every limiter. Eleven o'clock is a full hour in the recent past.
func (r *Result) play(ctx context.Context, field []limiter.Limiter, events []trace.Event, now time.Time) error {
	for _, l := range field {
		t, err := replay(ctx, l, events)
		if err != nil {
			return err
		}
		r.Messages = append(r.Messages, t)
		t.compare(r.Messages[0])
	}
	eleven := now.Truncate(time.Hour).Add(-2 * time.Hour).UnixMilli()
	for i, e := range examples {
		w := Worked{Title: e.Title}
		for _, l := range field {
			n, err := e.run(ctx, l, "worked"+strconv.Itoa(i), eleven)
			if err != nil {
				return err
			}
			w.Admitted = append(w.Admitted, n)
		}
		r.Worked = append(r.Worked, w)
	}
	return nil
}

const introduction = `## A day of message control

%d messages to %d receivers over %.1f simulated hours, seed %d, with day, night and bursts. Each must hold to four rules at
once: 15 in any minute and 50 in any 24 hours for its receiver, 2 in any 59 seconds and 5 in any 59 minutes for its
receiver and content. Every limiter gets the same events with the same times, in order. Each is judged by an exact log
of what *it* had admitted: *over-admitted* are events that passed though a true window already held the limit,
*refused early* are events that did not though all true windows had room. *Beyond* counts those among them that one
width of the sub-windows does not explain (1 s for windows up to a minute, 1 minute up to an hour, 15 minutes up to a
day; the Hashes have the same widths as twotier). *Excess* is the most that any true window held above its limit.

`

const explanation = `
## Why they differ

- **zset log** and **stream** keep every admitted event and decide as the exact log does. What this costs is memory and
  work per event, not decisions: see compare.md and memory.md.
- **twotier** decides on the whole oldest bucket: it counts up to one bucket width too much and refuses early by at most
  that, and lets nothing through that a true window has no room for.
- **hash, whole oldest** reads its sub-windows in the same way, and errs in the same way.
- **hash, last n** sums the last n sub-windows, the present and unfinished one included: it looks back less far than
  the window is long, and lets through what falls into the difference.
- **incr fixed window** forgets everything at the turn of a calendar window: up to twice the limit can pass around it. It
  never refuses early, because the part of the calendar window that has passed lies within the true one.
- *Differs* counts decisions unlike the exact log's on the same trace. It includes consequences: what was admitted
  wrongly fills later windows, and what was refused leaves room in them.
`

const live = `
## Live, with clocks of their own

%d events of %d keys as they happen, to all limiters at the same time, with bursts; at most 20 in any 3 seconds and 50 in any 10
seconds. Each is judged as above at the time at which it was asked. twotier works in the background at its usual flush interval.

`

func tallyRows(tallies []*Tally, differs bool) (rows [][]string) {
	for _, t := range tallies {
		row := []string{t.Name, itoa(t.Admitted), itoa(t.Over), itoa(t.OverBeyond),
			strconv.FormatInt(t.WorstExcess, 10), itoa(t.Early), itoa(t.EarlyBeyond)}
		if differs {
			row = append(row, itoa(t.Differs))
		}
		rows = append(rows, row)
	}
	return rows
}

func (r *Result) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, introduction, r.Messages[0].Events, r.Receivers, r.Hours, r.Seed)
	head := []string{"limiter", "admitted", "over-admitted", "beyond", "excess", "refused early", "beyond", "differs"}
	b.WriteString(report.Table(head, tallyRows(r.Messages, true)))
	for _, m := range r.Missing {
		fmt.Fprintf(&b, "\nNot compared: %s.\n", m)
	}
	if len(r.Live) > 0 {
		fmt.Fprintf(&b, live, r.Live[0].Events, liveKeys)
		b.WriteString(report.Table(head[:len(head)-1], tallyRows(r.Live, false)))
	}
	b.WriteString("\n## Worked examples: at most 10 in any 5 minutes\n\nHow many of the last tries each limiter admits:\n\n")
	b.WriteString(r.workedTable())
	b.WriteString(explanation)
	return b.String()
}

func (r *Result) workedTable() string {
	head := []string{"limiter"}
	rows := make([][]string, len(r.Messages))
	for i, t := range r.Messages {
		rows[i] = []string{t.Name}
	}
	for _, w := range r.Worked {
		head = append(head, w.Title)
		for i, n := range w.Admitted {
			rows[i] = append(rows[i], itoa(n))
		}
	}
	return report.Table(head, rows)
}

func itoa(n int) string { return strconv.Itoa(n) }
