package main

import (
	"context"
	"flag"
	"fmt"
	"log"

	"twotier/bench/report"
	"twotier/bench/rival"
)

type options struct {
	one, thirty, every int
	pauseKeys, cycles  int
	out                string
}

func main() {
	var o options
	flag.IntVar(&o.one, "one", 1_000_000, "`keys` with one event, in thousands")
	flag.IntVar(&o.thirty, "thirty", 100_000, "`keys` with thirty events, in thousands")
	flag.IntVar(&o.every, "every", 20_000, "`keys` with every bucket live, in thousands")
	flag.IntVar(&o.pauseKeys, "pause-keys", 10_000_000, "`keys` of the process whose garbage collections are timed")
	flag.IntVar(&o.cycles, "cycles", 100, "garbage `collections` to time")
	flag.StringVar(&o.out, "out", "results", "`directory` of the results")
	rival.Main(func(ctx context.Context, env *rival.Env) error { return run(ctx, env, o) })
}

func run(ctx context.Context, env *rival.Env, o options) (err error) {
	var r Result
	for _, sh := range shapes(o.one, o.thirty, o.every) {
		if err := r.measure(ctx, env, sh); err != nil {
			return fmt.Errorf("%s: %w", sh.name, err)
		}
	}
	if r.Pauses, err = pauses(ctx, o.pauseKeys, o.cycles); err != nil {
		return err
	}
	body := r.markdown()
	fmt.Print(body)
	return report.Report{
		Name: "memory", Title: "What a key costs",
		Command: fmt.Sprintf("go run ./cmd/memory -one %d -thirty %d -every %d -pause-keys %d -cycles %d",
			o.one, o.thirty, o.every, o.pauseKeys, o.cycles),
		Data: r, Body: body,
	}.Write(ctx, o.out)
}

func (r *Result) measure(ctx context.Context, env *rival.Env, sh shape) error {
	log.Printf("%s: twotier with %d keys, the others with %d", sh.name, sh.keys, sh.rivalKeys)
	row, err := twotier(ctx, env, sh)
	if err != nil {
		return err
	}
	rows, missing, err := rivals(ctx, sh)
	if err != nil {
		return err
	}
	r.Rows = append(append(r.Rows, row), rows...)
	r.Missing = nil
	for _, m := range missing {
		r.Missing = append(r.Missing, m.Error())
	}
	return nil
}
