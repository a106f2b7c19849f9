package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/embedded"
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

func (s *apart) Keeps(context.Context, syncer.Ack, ...int) error { return nil }

var _ syncer.Keeper = (*apart)(nil)

func (s *apart) Keep(ctx context.Context, _ syncer.Ack, marks []syncer.Mark) []error {
	s.failover()
	errs := make([]error, len(marks))
	for i, m := range marks {
		r := &syncer.Round{Partition: m.Partition, Writer: m.Writer, Acked: m.Seq}
		if s.parts[m.Partition].Exchange(ctx, []*syncer.Round{r}); r.Lost {
			errs[i] = fmt.Errorf("%w: round %d of partition %d is not there",
				syncer.ErrUnknownOutcome, m.Seq, m.Partition)
		}
	}
	return errs
}

// TestAckReplicaAcrossTwoFailovers: an operation counts in two partitions. While one of them takes
// long, the other is acknowledged, lost and restored. Before the operation is answered, the
// restored counts are lost as well.
func TestAckReplicaAcrossTwoFailovers(t *testing.T) { synctest.Test(t, testAckAcrossTwoFailovers) }

func testAckAcrossTwoFailovers(t *testing.T) {
	place := syncer.Placement{Partitions: 2}
	s := &apart{held: make(chan struct{})}
	for i := range s.parts {
		s.parts[i] = embedded.New(embedded.Options{})
	}
	c := open(t, syncer.Options{Store: s, Placement: place, Exchanges: 2,
		FlushInterval: 10 * time.Millisecond, VerifyInterval: verifyEvery,
		RoundTimeout: time.Hour})
	op := &syncer.Op{Kind: syncer.Add, Ack: syncer.AckReplica}
	for i := range s.parts {
		op.Checks = append(op.Checks, syncer.Check{Key: []byte(keyIn(place, i, "k")), N: 7})
	}
	done := make(chan error)
	go func() { done <- c.Do(context.Background(), op, new(syncer.Result)) }()
	time.Sleep(5 * verifyEvery)
	s.parts[1].Flush()
	behind := s.parts[1].Image()
	time.Sleep(5 * verifyEvery)
	if len(s.parts[1].Get(1, nil, op.Checks[1].Key)) == 0 {
		t.Fatal("what was lost is not restored")
	}
	s.failover = func() { s.parts[1].Rewind(behind) }
	close(s.held)
	if err := <-done; !errors.Is(err, syncer.ErrUnknownOutcome) {
		t.Errorf("what was acknowledged is not there any more: %v", err)
	}
	time.Sleep(5 * verifyEvery)
}

// partly fails the rounds of one partition, and does not keep the counts of another.
type partly struct {
	halfStore
	unkept int
}

func (s partly) Keeps(context.Context, syncer.Ack, ...int) error { return nil }

func (s partly) Keep(ctx context.Context, _ syncer.Ack, marks []syncer.Mark) []error {
	errs := make([]error, len(marks))
	for i, m := range marks {
		if m.Partition == s.unkept || ctx.Err() != nil {
			errs[i] = fmt.Errorf("%w: partition %d is not kept", syncer.ErrUnknownOutcome,
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
		place := syncer.Placement{Partitions: 4}
		c := open(t, syncer.Options{Placement: place, Exchanges: 1,
			Store: partly{halfStore{newPaced(time.Millisecond), &at}, unkept}})
		key := func(partition int) syncer.Check {
			return syncer.Check{Key: []byte(keyIn(place, partition, "k")), N: 1,
				Limits: limits(60_000, 100)}
		}
		plain := func(partition int) syncer.Check {
			return syncer.Check{Key: key(partition).Key, N: 1}
		}
		var ops []syncer.Op
		var unknown []bool
		count := func(kind syncer.Kind, ack syncer.Ack, open bool, checks ...syncer.Check) {
			ops = append(ops, syncer.Op{Kind: kind, Ack: ack, Checks: checks})
			unknown = append(unknown, open)
		}
		count(syncer.Add, syncer.AckReplica, true, plain(broken))
		count(syncer.Add, syncer.AckReplica, true, plain(unkept))
		count(syncer.Add, syncer.AckReplica, false, plain(well))
		count(syncer.Add, syncer.AckStore, false, plain(unkept))
		count(syncer.Add, syncer.AckMemory, false, plain(broken))
		count(syncer.Acquire, syncer.AckReplica, false, key(0), key(well))
		count(syncer.Acquire, syncer.AckReplica, true, key(0), key(unkept))
		count(syncer.Acquire, syncer.AckDisk, false, key(well))
		count(syncer.Acquire, syncer.AckStore, true, key(well), key(broken))
		res := make([]syncer.Result, len(ops))
		c.DoAll(within(t, 4*time.Second), ops, res)
		for i, want := range unknown {
			if err := res[i].Err; errors.Is(err, syncer.ErrUnknownOutcome) != want ||
				!want && err != nil {
				t.Errorf("operation %d: %v, want unknown: %v", i, err, want)
			}
		}
		at.Store(-1)
		flush(t, c)
	})
}
