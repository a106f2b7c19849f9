package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// replicated starts a server with a replica, and returns the proxy between the two.
func replicated(t *testing.T,
	opts ...redistest.Option) (primary *redistest.Server, link *faultproxy.Proxy) {
	t.Helper()
	primary = redistest.Start(t, opts...)
	return primary, follow(t, primary)
}

// follow starts a replica, and returns the proxy between it and its primary.
func follow(t *testing.T, primary *redistest.Server) (link *faultproxy.Proxy) {
	t.Helper()
	link = faultproxy.NewRaw(t, primary.Addr())
	replica := redistest.Start(t)
	host, port, _ := strings.Cut(link.Addr(), ":")
	must.Succeed(t, replica.Do("REPLICAOF", host, port).Err())
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		info, err := replica.Do("INFO", "replication").Text()
		if err == nil && strings.Contains(info, "master_link_status:up") {
			return link
		}
		if time.Now().After(deadline) {
			t.Fatalf("no replica: %v %s", err, info)
		}
	}
}

func keep(t *testing.T, s *redisstore.Store, ack twotier.Ack, seq uint64) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return errors.Join(s.Keep(ctx, ack,
		[]syncer.Mark{{Partition: s.Partition("a"), Writer: "w", Seq: seq}})...)
}

// never checks that an ack is refused for good, for the given reason.
func never(t *testing.T, s *redisstore.Store, ack twotier.Ack, reason string) {
	t.Helper()
	err := s.Keeps(t.Context(), ack)
	if invalid, ok := errors.AsType[*twotier.InvalidError](err); !ok || invalid.Field != "ack" ||
		!strings.Contains(invalid.Detail, reason) {
		t.Errorf("ack %d: %v, want it refused because of %q", ack, err, reason)
	}
}

// TestKeepWaitsForAReplica: a replica lags, and comes back.
func TestKeepWaitsForAReplica(t *testing.T) {
	t.Parallel()
	primary, link := replicated(t)
	s := open(t, redisstore.Options{URL: primary.URL(), KeepTimeout: 300 * time.Millisecond})
	works(t, s)
	patient := open(t, redisstore.Options{URL: primary.URL(), KeepTimeout: time.Minute})
	must.Succeed(t, patient.Keeps(t.Context(), twotier.AckReplica))
	if err := keep(t, patient, twotier.AckReplica, 1); err != nil {
		t.Errorf("with a replica: %v", err)
	}
	link.Hang()
	if err := keep(t, s, twotier.AckReplica, 1); !errors.Is(err, twotier.ErrUnknownOutcome) {
		t.Errorf("with a replica that lags: %v, want an unknown outcome", err)
	}
	link.Pass()
	if err := keep(t, patient, twotier.AckReplica, 1); err != nil {
		t.Errorf("with a replica that is back: %v", err)
	}
}

// TestKeepWaitsForSeveralReplicas: one of two replicas lags. The other is not enough if two are
// required.
func TestKeepWaitsForSeveralReplicas(t *testing.T) {
	t.Parallel()
	primary, link := replicated(t)
	follow(t, primary)
	with := func(replicas int, timeout time.Duration) *redisstore.Store {
		return open(t, redisstore.Options{URL: primary.URL(), KeepReplicas: replicas,
			KeepTimeout: timeout})
	}
	one, both, patient := with(1, time.Minute), with(2, 300*time.Millisecond), with(2, time.Minute)
	works(t, one)
	never(t, with(3, time.Minute), twotier.AckReplica, "2 of 3 replicas are connected to Redis at "+
		primary.Addr())
	if err := errors.Join(both.Keeps(t.Context(), twotier.AckReplica),
		keep(t, patient, twotier.AckReplica, 1)); err != nil {
		t.Errorf("with two replicas: %v", err)
	}
	link.Hang()
	if err := keep(t, one, twotier.AckReplica, 1); err != nil {
		t.Errorf("one replica is asked for, and there: %v", err)
	}
	if err := keep(t, both, twotier.AckReplica, 1); !errors.Is(err, twotier.ErrUnknownOutcome) ||
		!strings.Contains(err.Error(), "1 of 2 replicas have it") {
		t.Errorf("one of two lags: %v, want an unknown outcome", err)
	}
	link.Pass()
	if err := keep(t, patient, twotier.AckReplica, 1); err != nil {
		t.Errorf("with one that is back: %v", err)
	}
}

// TestKeepIsShared: many callers wait at the same time, and share the commands.
func TestKeepIsShared(t *testing.T) {
	t.Parallel()
	primary, link := replicated(t)
	s := open(t, redisstore.Options{URL: primary.URL(), KeepTimeout: time.Minute})
	works(t, s)
	link.Hang()
	const many = 50
	errs := make(chan error, many)
	for range many {
		go func() { errs <- keep(t, s, twotier.AckReplica, 1) }()
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if list, err := primary.Do("CLIENT", "LIST").Text(); err == nil &&
			strings.Contains(list, "cmd=wait ") || time.Now().After(deadline) {
			break
		}
	}
	link.Pass()
	for range many {
		must.Succeed(t, <-errs)
	}
	stats, err := primary.Do("INFO", "commandstats").Text()
	must.Succeed(t, err)
	_, rest, _ := strings.Cut(stats, "cmdstat_wait:calls=")
	var sent int
	if _, err := fmt.Sscan(strings.Split(rest, ",")[0], &sent); err != nil || sent < 1 ||
		sent > many/2 {
		t.Errorf("%d commands were sent for %d who wait, %v", sent, many, err)
	}
}

// TestKeepNoticesALoss: the server asked is not the one that acknowledged, or has lost the counts.
func TestKeepNoticesALoss(t *testing.T) {
	t.Parallel()
	primary, _ := replicated(t)
	s := open(t, redisstore.Options{URL: primary.URL(), KeepTimeout: time.Minute})
	works(t, s)
	for _, seq := range []uint64{2, 1} {
		if err := keep(t, s, twotier.AckReplica, seq); errors.Is(err,
			twotier.ErrUnknownOutcome) != (seq == 2) {
			t.Errorf("asked for number %d where 1 is stored: %v", seq, err)
		}
	}
	flushAll(t, primary)
	if err := keep(t, s, twotier.AckReplica, 1); !errors.Is(err, twotier.ErrUnknownOutcome) {
		t.Errorf("after a loss: %v, want an unknown outcome", err)
	}
}

// TestKeepsOfOneWhoLeaves: a caller asks and leaves before the answer. That has no effect on
// others.
func TestKeepsOfOneWhoLeaves(t *testing.T) {
	t.Parallel()
	primary, _ := replicated(t)
	s := open(t, redisstore.Options{URL: primary.URL()})
	works(t, s)
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := s.Keeps(gone, twotier.AckReplica); err == nil {
		t.Error("who has left is told that it can be waited for")
	}
	if err := s.Keeps(t.Context(), twotier.AckReplica); err != nil {
		t.Errorf("after somebody has left: %v", err)
	}
}

// TestKeepEndsWithTheStore closes a store while a caller waits for it.
func TestKeepEndsWithTheStore(t *testing.T) {
	t.Parallel()
	primary, link := replicated(t)
	s, err := redisstore.New(redisstore.Options{URL: primary.URL(),
		Ladders: ladders(defaultLadder(t)), KeepTimeout: time.Hour})
	must.Succeed(t, err)
	works(t, s)
	link.Hang()
	errs := make(chan error, 1)
	go func() { errs <- keep(t, s, twotier.AckReplica, 1) }()
	time.Sleep(10 * time.Millisecond) // the wait may or may not have begun
	must.Succeed(t, s.Close())
	if err := <-errs; !errors.Is(err, twotier.ErrUnknownOutcome) {
		t.Errorf("%v, want an unknown outcome", err)
	}
}

// TestKeepsSaysWhatIsMissing: a replica, a command, a permission, an append-only file.
func TestKeepsSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	alone := redistest.Start(t)
	s := open(t, redisstore.Options{URL: alone.URL()})
	never(t, s, twotier.AckReplica, "0 of 1 replicas are connected to Redis at "+alone.Addr())
	if redistest.Features(t, alone).WaitAOF {
		never(t, s, twotier.AckDisk, "appendonly")
	} else {
		never(t, s, twotier.AckDisk, "unknown command")
	}
	must.Succeed(t, alone.Do("ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", "-wait").Err())
	limited := open(t,
		redisstore.Options{URL: strings.Replace(alone.URL(), "redis://", "redis://u:p@", 1)})
	never(t, limited, twotier.AckReplica, "permission")
}

// TestKeepsOfAReplicaThatLeft: a replica that was there once may come back.
func TestKeepsOfAReplicaThatLeft(t *testing.T) {
	t.Parallel()
	primary, link := replicated(t)
	s := open(t, redisstore.Options{URL: primary.URL()})
	must.Succeed(t, s.Keeps(t.Context(), twotier.AckReplica))
	link.Close()
	deadline := time.Now().Add(time.Minute)
	for err := error(nil); !errors.Is(err,
		twotier.ErrUnavailable); time.Sleep(10 * time.Millisecond) {
		if err = s.Keeps(t.Context(), twotier.AckReplica); time.Now().After(deadline) {
			t.Fatalf("%v, want it unavailable", err)
		}
	}
}

// TestKeepWaitsForTheDisk needs a server that has the command.
func TestKeepWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.Config("appendonly yes", "appendfsync everysec"))
	if !redistest.Features(t, srv).WaitAOF {
		t.Skip("the server has no WAITAOF")
	}
	s := open(t, redisstore.Options{URL: srv.URL(), KeepTimeout: time.Minute})
	works(t, s)
	must.Succeed(t, s.Keeps(t.Context(), twotier.AckDisk))
	must.Succeed(t, keep(t, s, twotier.AckDisk, 1))
}

// TestDirectKeeps: operations of pure-Redis mode wait for a replica, one by one and in a batch.
func TestDirectKeeps(t *testing.T) {
	t.Parallel()
	primary, link := replicated(t)
	with := func(timeout time.Duration) *redisstore.Direct {
		s := open(t, redisstore.Options{URL: primary.URL(), KeepTimeout: timeout})
		return openDirect(t, redisstore.DirectOptions{Store: s, Writer: timeout.String(),
			Now: func() int64 { return t0 }})
	}
	patient, d := with(time.Minute), with(300*time.Millisecond)
	ops := func() []twotier.Op {
		return []twotier.Op{
			{Kind: twotier.Add, Ack: twotier.AckReplica, Checks: []twotier.Check{check("a", 1)}},
			{Kind: twotier.Add, Ack: twotier.AckStore, Checks: []twotier.Check{check("b", 1)}},
			{Kind: twotier.Acquire, Ack: twotier.AckReplica,
				Checks: []twotier.Check{check("c", 1, 60_000, 100)}},
			// This one counts nothing.
			{Kind: twotier.Acquire, Ack: twotier.AckReplica,
				Checks: []twotier.Check{check("d", 1, 60_000, 0)}},
			{Kind: twotier.Count, Checks: []twotier.Check{check("a", 0, 60_000, 0)}},
		}
	}
	outcomes := func(d *redisstore.Direct, unknown ...bool) {
		t.Helper()
		list, res := ops(), make([]twotier.Result, 5)
		d.DoAll(t.Context(), list, res)
		for i, want := range unknown {
			if errors.Is(res[i].Err, twotier.ErrUnknownOutcome) != want ||
				!want && res[i].Err != nil {
				t.Errorf("operation %d of a batch: %v, want unknown: %v", i, res[i].Err, want)
			}
			var one twotier.Result
			if err := d.Do(t.Context(), &list[i], &one); errors.Is(err,
				twotier.ErrUnknownOutcome) != want || !want && err != nil {
				t.Errorf("operation %d: %v, want unknown: %v", i, err, want)
			}
		}
	}
	outcomes(patient, false, false, false, false, false)
	// Together, these change nothing that a replica could have.
	both := []twotier.Op{ops()[0], ops()[0]}
	both[1].Checks[0].N, both[0].TS, both[1].TS = -1, t0, t0
	res := make([]twotier.Result, 2)
	if patient.DoAll(t.Context(), both, res); res[0].Err != nil || res[1].Err != nil {
		t.Errorf("counted and taken back: %v, %v", res[0].Err, res[1].Err)
	}
	link.Hang()
	outcomes(d, true, false, true, false, false)
	seen := twotier.Op{Kind: twotier.Add, Ack: twotier.AckReplica,
		Checks: []twotier.Check{values("a", nil, 64)}}
	if err := d.Do(t.Context(), &seen, &res[0]); !errors.Is(err, twotier.ErrUnknownOutcome) {
		t.Errorf("a value that no replica has: %v", err)
	}
	link.Pass()
	hi(t, patient, "a", 4)
}

// TestKeepWaitsThoughOtherMarksAreGone asks for many marks, of which a server that took over has
// one. The store still writes something for that one, because WAIT covers only the writes of its
// connection.
func TestKeepWaitsThoughOtherMarksAreGone(t *testing.T) {
	t.Parallel()
	primary, _ := replicated(t)
	s := open(t, redisstore.Options{URL: primary.URL(), KeepTimeout: time.Minute})
	works(t, s)
	there := prefix.WriterKey(s.Partition("a"), "w")
	must.Succeed(t, primary.Do("PEXPIRE", there, "3600000").Err())
	marks := []syncer.Mark{{Partition: s.Partition("a"), Writer: "w", Seq: 1}}
	for i := range 50 {
		marks = append(marks, syncer.Mark{Partition: i, Writer: "gone", Seq: 1})
	}
	if err := errors.Join(s.Keep(t.Context(), twotier.AckReplica, marks)...); err == nil ||
		!strings.Contains(err.Error(), "no longer exists") {
		t.Errorf("%v, want those that are gone told", err)
	}
	if ms, err := primary.Do("PTTL", there).Int(); err != nil || ms <= 3_600_000 {
		t.Errorf("nothing was written before the wait: %v, %d ms", err, ms)
	}
}
