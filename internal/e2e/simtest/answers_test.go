package simtest

import (
	"context"
	"slices"
	"time"

	"twotier.dev/twotier/internal/node"
)

// checkedWindows are the windows that nodes are asked for at the end. Each is read from another
// level: of a quarter of an hour, and of a minute.
var checkedWindows = [...]int64{dayMS, hourMS}

// answers is what a node answers about keys.
type answers map[string]answer

type answer struct {
	counts [len(checkedWindows)]int64
	err    error
}

// ask asks every node about keys.
func (w *world) ask(keys []string) map[*proc]answers {
	nodes := map[*proc]answers{}
	for _, p := range w.alive() {
		nodes[p] = answers{}
		for some := range slices.Chunk(keys, 200) {
			p.readAll(some, nodes[p])
		}
	}
	return nodes
}

// readAll asks a node about keys, all at the same time.
func (p *proc) readAll(keys []string, said answers) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var limits []node.Limit
	for _, window := range checkedWindows {
		limits = append(limits, node.Limit{Window: window})
	}
	ops, res := make([]node.Op, len(keys)), make([]node.Result, len(keys))
	for i, key := range keys {
		ops[i] = node.Op{Kind: node.Count, Checks: []node.Check{{Key: []byte(key), Limits: limits}}}
	}
	p.node.DoAll(ctx, ops, res)
	for i, key := range keys {
		a := answer{err: res[i].Err}
		if a.err == nil {
			for j, limit := range res[i].Checks[0].Limits {
				a.counts[j] = limit.Hi
			}
		}
		said[key] = a
	}
}
