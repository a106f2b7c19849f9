package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"time"

	"twotier.dev/twotier/bench/proc"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/load"
)

// HTTP measures how close POST /v1/add comes to the least that an HTTP server can do: twotier and a
// server that does nothing but return the same bytes are processes of their own, asked in turn by
// the same generator, and what counts is the ratio within each pair of rounds. It also measures
// adds per second in quiet batches of 1,000.
type HTTP struct {
	Rounds   int           `help:"Pairs of rounds." default:"10"`
	Duration time.Duration `help:"Of one round." default:"5s"`
	Conns    int           `help:"Connections." default:"64"`
}

// HTTPResult is the result of HTTP.
type HTTPResult struct {
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
	Space     int    `json:"space"`
	Pairs     []Pair `json:"pairs"`
}

// Pair is two rounds, one right after the other.
type Pair struct {
	Twotier Round `json:"twotier"`
	Nop     Round `json:"nop"`
	// Rate and P99 are twotier's over nop's.
	Rate float64 `json:"rate_ratio"`
	P99  float64 `json:"p99_ratio"`
}

// Round is the result of one round.
type Round struct {
	PerSecond float64 `json:"operations_per_second"`
	P99       float64 `json:"p99_us"`
}

// Batches is a number of rounds of quiet batches.
type Batches struct {
	Store  string  `json:"store"`
	Space  int     `json:"space"`
	Rounds []Round `json:"rounds"`
}

// Run measures without Redis and, where twotier writes everything that it counts to a Redis on the
// same cores, with it.
func (o *HTTP) Run(ctx context.Context, b *bench) error {
	env, err := b.programs(ctx)
	if err != nil {
		return err
	}
	r := HTTPResult{Rounds: o.Rounds, Duration: o.Duration.String(), Conns: o.Conns}
	for _, m := range []struct {
		store string
		mode  rival.Mode
	}{{"no Redis", rival.Memory}, {"flushing to Redis", rival.TwoTier}} {
		s, err := rival.Twotier("twotier", 1, m.mode).Start(ctx, env)
		if err != nil {
			return err
		}
		err = o.measure(ctx, env, s, m.store, &r)
		if err := errors.Join(err, s.Drain(ctx), s.Close()); err != nil {
			return err
		}
	}
	return save(b, "http", o, r)
}

func (o *HTTP) measure(ctx context.Context, env rival.Env, s *rival.Stand, store string,
	r *HTTPResult) (err error) {
	nop, err := startTwin(env, s.Servers[0].Addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nop.Stop()) }()
	for _, space := range []int{1_000, 50_000} {
		c := Comparison{Generator: "twotier bench", Store: store, Space: space}
		lo := load.Options{Keys: space, Connections: o.Conns, Duration: o.Duration}
		if err := c.alternate(ctx, o.Rounds, lo, s.Servers[0].Addr, nop.Addr); err != nil {
			return err
		}
		r.Comparisons = append(r.Comparisons, c)
	}
	for _, space := range []int{1_000, 50_000, 1_000_000} {
		c := Batches{Store: store, Space: space}
		for round := range max(o.Rounds/2, 1) + 1 { // the first round creates the keys
			one, err := once(ctx, load.Options{
				URL: "http://" + s.Servers[0].Addr, Op: "batch", Batch: 1000, Connections: 4,
				Keys: space, Seed: uint64(round), Duration: o.Duration,
			})
			if err != nil {
				return err
			}
			if round > 0 {
				c.Rounds = append(c.Rounds, one)
			}
		}
		r.Batches = append(r.Batches, c)
	}
	return nil
}

// once runs the generator. Any failed call is an error.
func once(ctx context.Context, o load.Options) (Round, error) {
	r, err := load.Run(ctx, o)
	if err == nil && len(r.Errors) > 0 {
		err = fmt.Errorf("load: calls failed: %v", r.Errors)
	}
	return Round{r.OpsPerSecond, float64(r.Latency.P99)}, errors.Join(err, ctx.Err())
}

// alternate runs the rounds A B A B; one more before them warms both up and is not kept.
func (c *Comparison) alternate(ctx context.Context, rounds int, o load.Options,
	twotier, nop string) error {
	for round := range rounds + 1 {
		var r [2]Round
		for i, addr := range []string{twotier, nop} {
			var err error
			o.URL = "http://" + addr
			if r[i], err = once(ctx, o); err != nil {
				return err
			}
		}
		if round > 0 {
			rate, p99 := r[0].PerSecond/r[1].PerSecond, r[0].P99/r[1].P99
			c.Pairs = append(c.Pairs, Pair{r[0], r[1], rate, p99})
		}
	}
	return nil
}

// startTwin starts a server that answers every request with what the server at addr answers to an
// add, and checks that the answers are equal byte by byte.
func startTwin(env rival.Env, addr string) (*proc.Server, error) {
	want, body, err := answerOf(addr)
	if err != nil {
		return nil, err
	}
	nop, err := rival.StartNop(env, string(body))
	if err != nil {
		return nil, err
	}
	got, _, err := answerOf(nop.Addr)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("nop answers %q, twotier %q", got, want)
	}
	if err != nil {
		return nil, errors.Join(err, nop.Stop())
	}
	return nop, nil
}

// answerOf returns a server's answer to an add, with and without its header.
func answerOf(addr string) (all, body []byte, err error) {
	sample := strings.NewReader(`{"key":"bench:1"}`)
	resp, err := http.Post("http://"+addr+"/v1/add", "application/json", sample)
	if err != nil {
		return nil, nil, fmt.Errorf("sample: %w", err)
	}
	defer resp.Body.Close()
	all, err = httputil.DumpResponse(resp, true)
	_, body, _ = bytes.Cut(all, []byte("\r\n\r\n"))
	return all, body, err
}

// Spread is the median and the range of a series.
type Spread struct{ Median, Least, Most float64 }

func (s Spread) String() string {
	return fmt.Sprintf("%.2f (%.2f to %.2f)", s.Median, s.Least, s.Most)
}

func spread[T any](of []T, figure func(T) float64) Spread {
	all := make([]float64, len(of))
	for i, v := range of {
		all[i] = figure(v)
	}
	if len(all) == 0 {
		return Spread{}
	}
	slices.Sort(all)
	n := len(all)
	return Spread{(all[(n-1)/2] + all[n/2]) / 2, all[0], all[n-1]}
}

// The columns of a comparison, over its pairs.

func (c Comparison) Rate() Spread { return spread(c.Pairs, func(p Pair) float64 { return p.Rate }) }
func (c Comparison) Tail() Spread { return spread(c.Pairs, func(p Pair) float64 { return p.P99 }) }
func (c Comparison) Twotier() Spread {
	return spread(c.Pairs, func(p Pair) float64 { return p.Twotier.PerSecond })
}
func (c Comparison) Nop() Spread {
	return spread(c.Pairs, func(p Pair) float64 { return p.Nop.PerSecond })
}

// Millions is millions of adds per second over the rounds, P99 that of a batch in milliseconds.
func (b Batches) Millions() Spread {
	return spread(b.Rounds, func(r Round) float64 { return r.PerSecond / 1e6 })
}

func (b Batches) P99() Spread {
	return spread(b.Rounds, func(r Round) float64 { return r.P99 / 1e3 })
}
