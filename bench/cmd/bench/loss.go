package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/load"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// Loss kills a server while adds arrive, with every setting that a user can choose.
type Loss struct {
	Rate   float64       `help:"Adds per second." default:"20000"`
	Before time.Duration `help:"Time until the server is killed." default:"2s"`
	Rounds int           `help:"Kills of each setting." default:"3"`
}

// LossResult is the result of Loss.
type LossResult struct {
	Kills []Kill `json:"kills"`
}

// Kill is the cost of one kill.
type Kill struct {
	Setting string `json:"setting"`
	// Acknowledged is the number of adds that succeeded, and Stored how many are in Redis
	// afterwards: more than Acknowledged if some were stored whose answers did not arrive. Lost is
	// the number of acknowledged adds that are not stored.
	Acknowledged int64 `json:"acknowledged"`
	Stored       int64 `json:"stored"`
	Lost         int64 `json:"lost"`
	// LostMS is Lost as a duration of the stream, and BoundMS the promise of the setting.
	LostMS  float64 `json:"lost_ms"`
	BoundMS float64 `json:"bound_ms"`
}

type setting struct {
	name            string
	interval, bound time.Duration
	flags           []string
}

// settings returns the settings that a user can choose. Intervals are jittered by a tenth; rounds
// in flight to Redis at the kill add to the loss.
func settings() (all []setting) {
	for _, d := range []time.Duration{10 * time.Millisecond, 200 * time.Millisecond, time.Second} {
		name := fmt.Sprintf("two-tier, ack=memory, flush %v", d)
		all = append(all, setting{name, d, d, []string{"--ack", "memory"}})
	}
	return append(all,
		setting{"two-tier, ack=redis", 200 * time.Millisecond, 0, []string{"--ack", "redis"}},
		setting{"redis mode", 0, 0, []string{"--mode", "redis"}})
}

// Run kills a server of each setting a few times.
func (o *Loss) Run(ctx context.Context, b *bench) error {
	env, err := b.programs(ctx)
	if err != nil {
		return err
	}
	var r LossResult
	for _, s := range settings() {
		for range o.Rounds {
			k, err := o.kill(ctx, env, s)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			log.Printf("%-34s %d acknowledged, %d stored, %d lost", k.Setting, k.Acknowledged,
				k.Stored, k.Lost)
			r.Kills = append(r.Kills, k)
		}
	}
	return save(b, "loss", o, r)
}

const lossKeys = 500

// kill sends adds and kills the server while they arrive.
func (o *Loss) kill(ctx context.Context, env rival.Env, set setting) (k Kill, err error) {
	env.Flush = set.interval
	s, err := rival.Twotier("twotier", 1, rival.TwoTier, set.flags...).Start(ctx, env)
	if err != nil {
		return k, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	defer time.AfterFunc(o.Before, s.Servers[0].Kill).Stop()
	r, err := load.Run(ctx, load.Options{
		URL: "http://" + s.Servers[0].Addr, Op: "batch", Batch: 20, Keys: lossKeys, Connections: 16,
		Rate: o.Rate, Duration: o.Before + 2*time.Second,
	})
	if err != nil {
		return k, err
	}
	if len(r.Errors) == 0 {
		return k, errors.New("the server survived")
	}
	k = Kill{Setting: set.name, Acknowledged: r.Operations,
		BoundMS: float64(set.bound.Milliseconds())}
	if k.Stored, err = stored(ctx, s); err != nil {
		return k, err
	}
	k.Lost = max(k.Acknowledged-k.Stored, 0)
	k.LostMS = float64(k.Lost) / o.Rate * 1e3
	return k, nil
}

// stored returns the sum of all keys of load.Run in Redis.
func stored(ctx context.Context, s *rival.Stand) (sum int64, err error) {
	d, err := s.OpenDirect(ctx)
	if err != nil {
		return 0, err
	}
	for key := range lossKeys {
		n, err := held(ctx, d, fmt.Sprint("bench:", key))
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

const hour = int64(3_600_000)

// held returns the count of a key in the last hour.
func held(ctx context.Context, d *redisstore.Direct, key string) (int64, error) {
	check := syncer.Check{Key: []byte(key), N: 1, Limits: []syncer.Limit{{Window: hour}}}
	var res syncer.Result
	op := syncer.Op{Kind: syncer.Count, Checks: []syncer.Check{check}}
	if err := d.Do(ctx, &op, &res); err != nil {
		return 0, fmt.Errorf("count: %w", err)
	}
	return res.Checks[0].Limits[0].Hi, nil
}
