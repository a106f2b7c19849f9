package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"twotier/bench/load"
	"twotier/bench/report"
)

// Result is what is written.
type Result struct {
	Rounds      int          `json:"rounds"`
	Duration    string       `json:"duration"`
	Conns       int          `json:"connections"`
	Comparisons []Comparison `json:"comparisons"`
	Batches     []Batches    `json:"batches"`
}

// Comparison is a series of pairs with one generator.
type Comparison struct {
	Generator string `json:"generator"`
	Store     string `json:"store"`
	Space     uint64 `json:"space"`
	Pairs     []Pair `json:"pairs"`
}

// Pair is two rounds, one right after the other.
type Pair struct {
	Twotier load.Result `json:"twotier"`
	Nop     load.Result `json:"nop"`
	// Rate and P99 are twotier's over nop's.
	Rate float64 `json:"rate_ratio"`
	P99  float64 `json:"p99_ratio"`
}

// Batches is a number of rounds of quiet batches.
type Batches struct {
	Store  string        `json:"store"`
	Space  uint64        `json:"space"`
	Rounds []load.Result `json:"rounds"`
}

// alternate runs the rounds A B A B; one more before them warms both up and is not kept.
func (c *Comparison) alternate(ctx context.Context, o options, g generator, twotier, nop string) error {
	for round := range o.rounds + 1 {
		lo := load.Options{Op: "add", Keys: "uniform", Space: c.Space, Conns: o.conns, Duration: o.duration}
		var results [2]load.Result
		for i, addr := range []string{twotier, nop} {
			lo.Addr = addr
			var err error
			if results[i], err = g.run(ctx, lo); err != nil {
				return err
			}
			if err := results[i].Err(); err != nil {
				return err
			}
		}
		if round == 0 {
			continue
		}
		a, b := results[0], results[1]
		c.Pairs = append(c.Pairs, Pair{
			Twotier: a, Nop: b,
			Rate: a.CallsPerSecond / b.CallsPerSecond,
			P99:  float64(a.Latency.P99) / float64(b.Latency.P99),
		})
	}
	return nil
}

// batches measures quiet batches of 1,000 adds to as many keys as there are, which the first round creates.
func (r *Result) batches(ctx context.Context, o options, addr, store string, space uint64) error {
	b := Batches{Store: store, Space: space}
	for round := range max(o.rounds/2, 1) + 1 {
		res, err := load.Run(ctx, load.Options{
			Addr: addr, Op: "batch", PerCall: 1000, Conns: 4, Space: space, Seed: uint64(round + 1), Duration: o.duration,
		})
		if err != nil {
			return err
		}
		if err := res.Err(); err != nil {
			return err
		}
		if round > 0 {
			b.Rounds = append(b.Rounds, res)
		}
	}
	r.Batches = append(r.Batches, b)
	return nil
}

const introduction = `twotier and a server that does nothing are two processes with the same fasthttp settings; the second returns, byte by
byte, what the first answers to such a request. The same generator asks them in turn, %[1]d pairs of %[2]s each, %[3]d
connections, keys drawn evenly; all on the same cores. A ratio is twotier's figure over the other's within one
pair; the table has the median of the pairs and their range.

`

func (r *Result) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, introduction, r.Rounds, r.Duration, r.Conns)
	var rows [][]string
	for _, c := range r.Comparisons {
		rate := spread(c.Pairs, func(p Pair) float64 { return p.Rate })
		p99 := spread(c.Pairs, func(p Pair) float64 { return p.P99 })
		rows = append(rows, []string{
			c.Generator + ", " + c.Store + ", " + fmt.Sprint(c.Space) + " keys",
			fmt.Sprintf("%.0f", spread(c.Pairs, func(p Pair) float64 { return p.Twotier.CallsPerSecond }).median),
			fmt.Sprintf("%.0f", spread(c.Pairs, func(p Pair) float64 { return p.Nop.CallsPerSecond }).median),
			rate.String(),
			fmt.Sprintf("%.0f", spread(c.Pairs, func(p Pair) float64 { return float64(p.Twotier.Latency.P99) }).median),
			fmt.Sprintf("%.0f", spread(c.Pairs, func(p Pair) float64 { return float64(p.Nop.Latency.P99) }).median),
			p99.String(),
		})
	}
	head := []string{"generator", "twotier/s", "nothing/s", "ratio", "twotier p99 µs", "nothing p99 µs", "ratio"}
	b.WriteString(report.Table(head, rows))
	b.WriteString("\n## Quiet batches of 1,000 adds, keys drawn evenly, 4 connections\n\n")
	rows = nil
	for _, s := range r.Batches {
		perSecond := spread(s.Rounds, func(r load.Result) float64 { return r.PerSecond / 1e6 })
		p99 := spread(s.Rounds, func(r load.Result) float64 { return float64(r.Latency.P99) / 1e3 })
		rows = append(rows, []string{s.Store + ", " + fmt.Sprint(s.Space) + " keys", perSecond.String(), p99.String()})
	}
	b.WriteString(report.Table([]string{"store", "million adds/s", "p99 of a batch, ms"}, rows))
	return b.String()
}

// figures are the median and the range of a series.
type figures struct{ median, least, most float64 }

func spread[T any](of []T, figure func(T) float64) figures {
	all := make([]float64, len(of))
	for i, v := range of {
		all[i] = figure(v)
	}
	slices.Sort(all)
	n := len(all)
	return figures{(all[(n-1)/2] + all[n/2]) / 2, all[0], all[n-1]}
}

func (f figures) String() string {
	return fmt.Sprintf("%.2f (%.2f to %.2f)", f.median, f.least, f.most)
}
