package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/syncer"
)

// apart keeps each of two partitions in a separate store, and can check whether these have the
// rounds that they acknowledged.
type apart struct {
	parts    [2]*embedded.Store
	held     chan struct{} // closed when partition 0 may be written to
	failover func()        // happens before Keep looks
}

func (s *apart) Exchange(ctx context.Context, rounds []*syncer.Round) {
	for _, r := range rounds {
		if r.Partition == 0 && r.Seq > 0 {
			<-s.held
		}
		s.parts[r.Partition].Exchange(ctx, []*syncer.Round{r})
	}
}

func (s *apart) Keeps(context.Context, twotier.Ack, ...int) error { return nil }

var _ syncer.Keeper = (*apart)(nil)

func (s *apart) Keep(ctx context.Context, _ twotier.Ack, marks []syncer.Mark) []error {
	s.failover()
	errs := make([]error, len(marks))
	for i, m := range marks {
		r := &syncer.Round{Partition: m.Partition, Writer: m.Writer, Acked: m.Seq}
		if s.parts[m.Partition].Exchange(ctx, []*syncer.Round{r}); r.Lost {
			errs[i] = fmt.Errorf("%w: round %d of partition %d is not there",
				twotier.ErrUnknownOutcome, m.Seq, m.Partition)
		}
	}
	return errs
}

// TestAckReplicaAcrossTwoFailovers: an operation counts in two partitions. While one of them takes
// long, the other is acknowledged, lost and restored. Before the operation is answered, the
// restored counts are lost as well.
func TestAckReplicaAcrossTwoFailovers(t *testing.T) { synctest.Test(t, testAckAcrossTwoFailovers) }

func testAckAcrossTwoFailovers(t *testing.T) {
	place := twotier.Placement{Partitions: 2}
	s := &apart{held: make(chan struct{})}
	for i := range s.parts {
		s.parts[i] = embedded.New(embedded.Options{})
	}
	c := open(t, syncer.Options{Store: s, Placement: place, Exchanges: 2,
		FlushInterval: 10 * time.Millisecond, VerifyInterval: verifyEvery,
		RoundTimeout: time.Hour})
	op := &twotier.Op{Kind: twotier.Add, Ack: twotier.AckReplica}
	for i := range s.parts {
		op.Checks = append(op.Checks, twotier.Check{Key: []byte(keyIn(place, i, "k")), N: 7})
	}
	done := make(chan error)
	go func() { done <- c.Do(context.Background(), op, new(twotier.Result)) }()
	time.Sleep(5 * verifyEvery)
	s.parts[1].Flush()
	behind := s.parts[1].Image()
	time.Sleep(5 * verifyEvery)
	if len(s.parts[1].Get(1, nil, op.Checks[1].Key)) == 0 {
		t.Fatal("what was lost is not restored")
	}
	s.failover = func() { s.parts[1].Rewind(behind) }
	close(s.held)
	if err := <-done; !errors.Is(err, twotier.ErrUnknownOutcome) {
		t.Errorf("what was acknowledged is not there any more: %v", err)
	}
	time.Sleep(5 * verifyEvery)
}

// partly fails the rounds of one partition, and does not keep the counts of another.
type partly struct {
	halfStore
	unkept int
}

func (s partly) Keeps(context.Context, twotier.Ack, ...int) error { return nil }

func (s partly) Keep(ctx context.Context, _ twotier.Ack, marks []syncer.Mark) []error {
	errs := make([]error, len(marks))
	for i, m := range marks {
		if m.Partition == s.unkept || ctx.Err() != nil {
			errs[i] = fmt.Errorf("%w: partition %d is not kept", twotier.ErrUnknownOutcome,
				m.Partition)
		}
	}
	return errs
}

// TestBatchIsKeptByPartition: a batch counts in a partition that the store refuses, in one that it
// does not keep, and in healthy ones. The outcome of an operation depends only on the operation's
// keys.
func TestBatchIsKeptByPartition(t *testing.T) {
	const broken, unkept, well = 1, 2, 3
	synctest.Test(t, func(t *testing.T) {
		var at atomic.Int64
		at.Store(broken)
		place := twotier.Placement{Partitions: 4}
		c := open(t, syncer.Options{Placement: place, Exchanges: 1,
			Store: partly{halfStore{newPaced(time.Millisecond), &at}, unkept}})
		key := func(partition int) twotier.Check {
			return twotier.Check{Key: []byte(keyIn(place, partition, "k")), N: 1,
				Limits: limits(60_000, 100)}
		}
		plain := func(partition int) twotier.Check {
			return twotier.Check{Key: key(partition).Key, N: 1}
		}
		var ops []twotier.Op
		var unknown []bool
		count := func(kind twotier.Kind, ack twotier.Ack, open bool, checks ...twotier.Check) {
			ops = append(ops, twotier.Op{Kind: kind, Ack: ack, Checks: checks})
			unknown = append(unknown, open)
		}
		count(twotier.Add, twotier.AckReplica, true, plain(broken))
		count(twotier.Add, twotier.AckReplica, true, plain(unkept))
		count(twotier.Add, twotier.AckReplica, false, plain(well))
		count(twotier.Add, twotier.AckStore, false, plain(unkept))
		count(twotier.Add, twotier.AckMemory, false, plain(broken))
		count(twotier.Acquire, twotier.AckReplica, false, key(0), key(well))
		count(twotier.Acquire, twotier.AckReplica, true, key(0), key(unkept))
		count(twotier.Acquire, twotier.AckDisk, false, key(well))
		count(twotier.Add, twotier.AckReplica, true, checkOf(keyIn(place, unkept, "/k"), 2))
		count(twotier.Add, twotier.AckDisk, false, checkOf(keyIn(place, well, "/k"), 2))
		count(twotier.Acquire, twotier.AckStore, true, key(well), key(broken))
		res := make([]twotier.Result, len(ops))
		c.DoAll(within(t, 4*time.Second), ops, res)
		for i, want := range unknown {
			if err := res[i].Err; errors.Is(err, twotier.ErrUnknownOutcome) != want ||
				!want && err != nil {
				t.Errorf("operation %d: %v, want unknown: %v", i, err, want)
			}
		}
		at.Store(-1)
		flush(t, c)
	})
}
