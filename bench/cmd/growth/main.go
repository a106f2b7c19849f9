package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"strings"
	"time"

	"twotier/bench/report"
	"twotier/bench/rival"
)

type options struct {
	maxKeys  int
	nodes    int
	parts    string
	duration time.Duration
	out      string
}

func main() {
	var o options
	flag.IntVar(&o.maxKeys, "max-keys", 10_000_000, "most `keys`, ten thousand times a power of ten")
	flag.IntVar(&o.nodes, "nodes", 5, "most `nodes`")
	flag.StringVar(&o.parts, "parts", "cold,keys,rules,nodes", "what to measure, with commas")
	flag.DurationVar(&o.duration, "duration", 2*time.Second, "of one measurement")
	flag.StringVar(&o.out, "out", "results", "`directory` of the results")
	rival.Main(func(ctx context.Context, env *rival.Env) error { return run(ctx, env, o) })
}

func run(ctx context.Context, env *rival.Env, o options) (err error) {
	var r Result
	if strings.Contains(o.parts, "cold") {
		if r.Cold, err = cold(ctx); err != nil {
			return fmt.Errorf("cold: %w", err)
		}
		log.Printf("cold keys: %+v", *r.Cold)
	}
	if strings.Contains(o.parts, "keys") {
		if err := r.growKeys(ctx, env, o); err != nil {
			return err
		}
	}
	if strings.Contains(o.parts, "rules") {
		if r.Rules, err = o.rules(ctx, env); err != nil {
			return fmt.Errorf("rules: %w", err)
		}
	}
	if strings.Contains(o.parts, "nodes") {
		if r.Nodes, err = o.clusters(ctx, env); err != nil {
			return fmt.Errorf("nodes: %w", err)
		}
	}
	fmt.Print(r.markdown())
	return report.Report{
		Name: "growth", Title: "How costs grow",
		Command: fmt.Sprintf("go run ./cmd/growth -parts %s -max-keys %d -nodes %d -duration %v", o.parts, o.maxKeys, o.nodes, o.duration),
		Data:    r, Body: r.markdown(),
	}.Write(ctx, o.out)
}

// growKeys measures at ten thousand keys, and at ten times as many up to the most.
func (r *Result) growKeys(ctx context.Context, env *rival.Env, o options) error {
	for keys := 10_000; keys <= o.maxKeys; keys *= 10 {
		p, err := o.keys(ctx, env, keys)
		if err != nil {
			return fmt.Errorf("%d keys: %w", keys, err)
		}
		log.Printf("%d keys: add %.0f ns, acquire %.0f ns, %.0f bytes a key", p.Keys, p.Add, p.Acquire, p.Resident)
		r.Keys = append(r.Keys, *p)
	}
	return nil
}
