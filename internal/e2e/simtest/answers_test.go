package simtest

import (
	"context"
	"slices"
	"time"

	"twotier.dev/twotier"
)

// answers are a node's answers about keys.
type answers map[string]answer

// bounds are the bounds of a count.
type bounds struct{ lo, hi int64 }

type answer struct {
	counts []bounds // by window
	within moments
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
	var limits []twotier.Limit
	for _, window := range p.w.windows() {
		limits = append(limits, twotier.Limit{Window: window})
	}
	ops, res := make([]twotier.Op, len(keys)), make([]twotier.Result, len(keys))
	for i, key := range keys {
		check := twotier.Check{Key: []byte(key), Limits: limits}
		ops[i] = twotier.Op{Kind: twotier.Count, Checks: []twotier.Check{check}}
	}
	from := time.Now()
	p.node.DoAll(ctx, ops, res)
	within := moments{from, time.Now()}
	for i, key := range keys {
		a := answer{err: res[i].Err, within: within}
		if a.err == nil {
			for _, limit := range res[i].Checks[0].Limits {
				a.counts = append(a.counts, bounds{limit.Lo, limit.Hi})
			}
		}
		said[key] = a
	}
}
