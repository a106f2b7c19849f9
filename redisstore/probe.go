package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/redisstore/internal/connect"
	"twotier.dev/twotier/redisstore/internal/scripts"
	"twotier.dev/twotier/syncer"
)

// Probe checks that Redis can be reached, supports the options, and holds counts in the same
// layout. An error that wraps neither ErrMismatch nor ErrRejected may go away: until a probe
// succeeds, every exchange begins with one.
func (s *Store) Probe(ctx context.Context) error {
	s.readyMu.Lock()
	defer s.readyMu.Unlock()
	if s.ready.Load() {
		return nil
	}
	err := s.conn.KnownTLSMistake()
	if err == nil {
		err = connect.Reject(s.probe(ctx))
	}
	if !s.agreed {
		err = s.conn.ExplainTLS(ctx, err)
	}
	s.conn.SetFailed(err)
	if err == nil {
		s.ready.Store(true)
		s.used.Store(true)
	}
	return err
}

// sharedProbe is a probe that several callers wait for.
type sharedProbe struct {
	done chan struct{} // closed at its end
	err  error         // after done
}

// probeTimeouts bounds a probe, which takes several round trips, in multiples of the timeout of
// one.
const probeTimeouts = 20

// ensureReady probes unless a probe has succeeded. The probe goes on when ctx ends: if it takes
// longer than its callers have, because Redis is far or busy, a later caller finds it done.
func (s *Store) ensureReady(ctx context.Context) error {
	if s.ready.Load() {
		return nil
	}
	a, before := s.joinProbe(ctx), s.conn.Delivered.Load()
	select {
	case <-a.done:
	case <-ctx.Done():
		err := fmt.Errorf("%w: probe: %w", syncer.ErrNotApplied, ctx.Err())
		return scripts.MarkLate(err, scripts.IsTimeout(err) && s.conn.Delivered.Load() != before)
	}
	mismatch := errors.Is(a.err, ErrMismatch)
	switch err := scripts.NotApplied(a.err); {
	case a.err == nil:
		return nil
	case !s.used.Load() && (mismatch || errors.Is(a.err, ErrRejected)):
		// A process that starts in spite of this error has no store, rather than a late one.
		return fmt.Errorf("%w: %w", syncer.ErrNotApplied, a.err)
	case mismatch:
		return fmt.Errorf("%w: %w", syncer.ErrRefused, a.err)
	default:
		return scripts.MarkLate(err, scripts.IsBusy(a.err) ||
			scripts.IsTimeout(a.err) && s.conn.Delivered.Load() != before)
	}
}

// joinProbe returns the probe under way, or starts one.
func (s *Store) joinProbe(ctx context.Context) *sharedProbe {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.probing != nil {
		return s.probing
	}
	a := &sharedProbe{done: make(chan struct{})}
	s.probing = a
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx),
			probeTimeouts*s.opt.Timeout)
		defer cancel()
		a.err = s.Probe(ctx)
		s.mu.Lock()
		s.probing = nil
		s.mu.Unlock()
		close(a.done)
	}()
	return a
}

func (s *Store) probe(ctx context.Context) error {
	payloads, err := s.conn.TryCommands(ctx, string(s.opt.Expiry))
	if err != nil {
		return err
	}
	s.restores.Store(payloads)
	s.conn.CheckPolicy(ctx, s.opt.Logger)
	return s.reconcileMeta(ctx)
}

// Health is the condition of the connection.
type Health struct {
	// Kind is "redis", "redis-cluster" or "redis-sentinel". Address is where Redis is, without
	// credentials.
	Kind, Address string
	// Err is why Redis can't be used right now; nil if it can.
	Err error
	// RTT is the shortest round trip of the last measurement of its clock.
	RTT time.Duration
	// RoundTrips is the number of pipelines sent.
	RoundTrips int64
	// Durations is how long pipelines with scripts took, including unanswered ones.
	Durations Durations
}

// Durations is a snapshot of a histogram, in the buckets of a Prometheus native histogram of
// schema 3: the upper bound of bucket i is 2^(i/8) seconds.
type Durations struct {
	// Count is the number of observations and Sum their total.
	Count uint64
	Sum   time.Duration
	// Buckets has the number of observations of every bucket that is not empty.
	Buckets map[int]int64
}

// Health returns the last known condition of the connection, without asking Redis.
func (s *Store) Health() Health {
	return Health{
		string(s.conn.URL.Kind), s.conn.URL.Hosts, s.conn.Failure(),
		time.Duration(s.conn.RTT.Load()), s.conn.RoundTrips.Load(),
		Durations(s.conn.Times.Snapshot()),
	}
}

// recordHealth records whether Redis is up after an exchange: it is if any round got through.
func (s *Store) recordHealth(rounds []*syncer.Round) {
	for _, r := range rounds {
		if r.Err == nil {
			s.conn.SetFailed(nil)
			return
		}
	}
	s.conn.SetFailed(rounds[0].Err)
}

// ClockSamples is how many times one measurement asks Redis for its time.
const ClockSamples = 5

// ClockAhead returns how far Redis's clock is ahead of a local one, taken from the sample with the
// shortest round trip, as NTP's clock filter does (RFC 5905, section 10). The error is at most half
// of that round trip. In a cluster any node answers. [Store.Health] reports it if none does.
func (s *Store) ClockAhead(ctx context.Context,
	local func() time.Time) (time.Duration, error) {
	ahead, best, _, err := clock(ctx, s.conn.Client, ClockSamples, local)
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) {
			s.conn.SetClockFailure(err)
		}
		return 0, err
	}
	s.conn.SetClockFailure(nil)
	s.conn.RoundTrips.Add(ClockSamples)
	s.conn.RTT.Store(int64(best))
	return ahead, nil
}

// clock asks for the time of a server, and returns how far it is ahead of a local clock by the
// shortest of the round trips.
func clock(ctx context.Context, server redis.Cmdable, samples int,
	local func() time.Time) (ahead, shortest, longest time.Duration, err error) {
	for i := range samples {
		start, began := local(), time.Now()
		t, err := server.Time(ctx).Result()
		if err != nil {
			return 0, 0, 0, fmt.Errorf("time: %w", err)
		}
		rtt := time.Since(began)
		longest = max(longest, rtt)
		if i == 0 || rtt < shortest {
			ahead, shortest = t.Sub(start.Add(rtt/2)), rtt
		}
	}
	return ahead, shortest, longest, nil
}
