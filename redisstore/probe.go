package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/syncer"
)

// ErrMismatch is wrapped by errors about a Redis that can't be used as it is: it lacks a feature
// that was asked for, or holds counts in a different layout. Retrying does not help.
var ErrMismatch = errors.New("this Redis is not compatible")

// ErrRejected is wrapped by errors about a Redis that refuses this store's credentials: a wrong
// user, password or database, or a certificate that one side does not trust. Retrying does not help
// until that is changed.
var ErrRejected = errors.New("this Redis rejects these credentials")

// rejections are the prefixes, after ERR if there is one, of a server's errors for clients without
// access.
var rejections = [...]string{
	"WRONGPASS", "NOAUTH", "NOPERM", "DENIED", "AUTH", "Client sent AUTH", "invalid password",
	"DB index",
	"invalid DB index", "SELECT is not allowed", "This instance has cluster support disabled",
}

// rejected adds ErrRejected to an error that will not go away by itself.
func rejected(err error) error {
	if err == nil || errors.Is(err, ErrMismatch) {
		return err
	}
	var untrusted *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	told := slices.ContainsFunc(rejections[:], func(prefix string) bool {
		return redis.HasErrorPrefix(err, prefix)
	})
	// The other side's TLS alert has a type that can't be named.
	if told || errors.As(err, &untrusted) || errors.As(err, &plain) ||
		strings.Contains(err.Error(), "remote error: tls: ") {
		return fmt.Errorf("%w: %w", ErrRejected, err)
	}
	return err
}

// Probe checks that Redis can be reached, supports the options, and holds counts in the same
// layout. An error that wraps neither ErrMismatch nor ErrRejected may go away: until a probe
// succeeds, every exchange begins with one.
func (s *Store) Probe(ctx context.Context) error {
	s.readyMu.Lock()
	defer s.readyMu.Unlock()
	if s.ready.Load() {
		return nil
	}
	err := s.encryption.known()
	if err == nil {
		err = rejected(s.probe(ctx))
	}
	if !s.agreed {
		err = s.encryption.explain(ctx, err)
	}
	s.setFailed(err)
	if err == nil {
		s.ready.Store(true)
		s.used.Store(true)
	}
	return err
}

// attempt is a probe that several callers wait for.
type attempt struct {
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
	a, before := s.attempt(ctx), s.delivered.Load()
	select {
	case <-a.done:
	case <-ctx.Done():
		err := fmt.Errorf("%w: probe: %w", syncer.ErrNotApplied, ctx.Err())
		return markLate(err, isTimeout(err) && s.delivered.Load() != before)
	}
	if a.err != nil {
		if !s.used.Load() && (errors.Is(a.err, ErrMismatch) || errors.Is(a.err, ErrRejected)) {
			// A process that starts in spite of this error has no store, rather than a late one.
			return fmt.Errorf("%w: %w", syncer.ErrNotApplied, a.err)
		}
		late := isBusy(a.err) || isTimeout(a.err) && s.delivered.Load() != before
		return markLate(notApplied(a.err), late)
	}
	return nil
}

// attempt returns the probe under way, or starts one.
func (s *Store) attempt(ctx context.Context) *attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.probing != nil {
		return s.probing
	}
	a := &attempt{done: make(chan struct{})}
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
	if err := s.probeCommands(ctx); err != nil {
		return err
	}
	s.CheckPolicy(ctx)
	return s.agree(ctx)
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
	s.mu.Lock()
	defer s.mu.Unlock()
	return Health{
		string(s.where.Kind), s.where.Hosts, cmp.Or(s.failed, s.silent),
		time.Duration(s.rtt.Load()) * time.Microsecond,
		s.roundTrips.Load(),
		Durations(s.durations.Snapshot()),
	}
}

func (s *Store) setFailed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
	if err == nil {
		s.silent = nil
	}
}

// setSilent records why Redis did not return its time, which is how a node that has nothing to
// exchange learns that Redis is gone. A later success clears only this error: Redis may still
// refuse exchanges.
func (s *Store) setSilent(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = err
}

// note records whether Redis is up after an exchange: it is if any round got through.
func (s *Store) note(rounds []*syncer.Round) {
	for _, r := range rounds {
		if r.Err == nil {
			s.setFailed(nil)
			return
		}
	}
	s.setFailed(rounds[0].Err)
}

// ClockSamples is how many times one measurement asks Redis for its time.
const ClockSamples = 5

// Clock returns how far Redis's clock is ahead of a local one, taken from the sample with the
// shortest round trip, as NTP's clock filter does (RFC 5905, section 10). The error is at most half
// of that round trip. In a cluster any node answers. [Store.Health] reports it if none does.
func (s *Store) Clock(ctx context.Context,
	local func() time.Time) (ahead time.Duration, err error) {
	best := time.Duration(-1)
	for range ClockSamples {
		start := local()
		began := time.Now()
		t, err := s.client.Time(ctx).Result()
		if err != nil {
			err = fmt.Errorf("time: %w", err)
			if !errors.Is(ctx.Err(), context.Canceled) {
				s.setSilent(err)
			}
			return 0, err
		}
		rtt := time.Since(began)
		if best < 0 || rtt < best {
			best = rtt
			ahead = t.Sub(start.Add(rtt / 2))
		}
	}
	s.setSilent(nil)
	s.roundTrips.Add(ClockSamples)
	s.rtt.Store(best.Microseconds())
	return ahead, nil
}
