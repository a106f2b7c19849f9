package main

import (
	"fmt"
	"strings"

	"twotier/bench/report"
)

// Result is what is written.
type Result struct {
	Cold  *ColdPoint  `json:"cold,omitempty"`
	Keys  []KeysPoint `json:"keys"`
	Rules []LoopPoint `json:"rules"`
	Nodes []LoopPoint `json:"nodes"`
}

const keysText = `## Keys

A counter in this process, over a store that keeps nothing, with so many keys that live, one event each; then random ones on all
cores. *Add* and *acquire* (two rules) are nanoseconds of one core, of which *floor* is drawing and naming the key. *Server*
is a server of its own in memory, in batches of 1,000 adds.

`

const coldText = `## Cold keys

What a counter that starts with an empty memory on a Redis with %d keys, one event each, pays for reading one of them back: %.2f µs
of its processor time and %.2f of Redis's, and %.0f bytes to and from it.

`

const rulesText = `
## Rules

Decisions per second on the Zipf workload under the first one to four of: 15 in a minute, 50 in an hour, 200 in 24 hours, 30 in ten
minutes; one by one and 200 in a call.

`

const nodesText = `
## Nodes

twotier over one Redis; every node is asked in turn, whoever owns a key. *zipf* is one key under two rules, *messages* two keys under
two rules each, which several nodes have to agree on when the keys have different owners. All nodes, the generator and Redis
share the machine's cores, so this shows what belonging to a cluster costs, not what more machines would give.

`

func (r *Result) markdown() string {
	var b strings.Builder
	if p := r.Cold; p != nil {
		fmt.Fprintf(&b, coldText, p.Keys, p.Load, p.RedisLoad, p.Bytes)
	}
	b.WriteString(keysText)
	var rows [][]string
	for _, p := range r.Keys {
		rows = append(rows, report.Cells("%d|%.0f|%.0f|%.0f|%.0f|%.0f|%.2f", p.Keys, p.Add, p.Acquire, p.Floor, p.Resident,
			p.Counted, p.Server/1e6))
	}
	head := []string{"keys", "add ns", "acquire ns", "floor ns", "resident bytes a key", "counted", "server, million adds/s"}
	b.WriteString(report.Table(head, rows))
	b.WriteString(rulesText)
	rows = nil
	for _, p := range r.Rules {
		rows = append(rows, append([]string{p.Name, fmt.Sprint(p.Rules)}, p.cells()...))
	}
	head = []string{"single/s", "batched/s", "driver CPU s/M", "service", "Redis", "commands/decision"}
	b.WriteString(report.Table(append([]string{"limiter", "rules"}, head...), rows))
	b.WriteString(nodesText)
	rows = nil
	for _, p := range r.Nodes {
		rows = append(rows, append([]string{p.Workload, fmt.Sprint(p.Nodes)}, p.cells()...))
	}
	b.WriteString(report.Table(append([]string{"workload", "nodes"}, head...), rows))
	return b.String()
}

func (p *LoopPoint) cells() []string {
	u := p.Usage
	return report.Cells("%.0f|%.0f|%.2f|%.2f|%.2f|%.3f", p.Single, p.Batched, p.per(u.Driver*1e6), p.per(u.Service*1e6),
		p.per(u.Work.CPU*1e6), p.per(float64(u.Work.Commands)))
}
