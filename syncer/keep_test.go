package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// apart keeps each of two partitions in a store of its own, and can say whether they have what they
// acknowledged.
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

func (s *apart) Keep(ctx context.Context, _ syncer.Ack, marks []syncer.Mark) error {
	s.failover()
	for _, m := range marks {
		r := &syncer.Round{Partition: m.Partition, Writer: m.Writer, Acked: m.Seq}
		if s.parts[m.Partition].Exchange(ctx, []*syncer.Round{r}); r.Lost {
			return fmt.Errorf("%w: round %d of partition %d is not there", syncer.ErrUnknownOutcome,
				m.Seq, m.Partition)
		}
	}
	return nil
}

// TestAckReplicaAcrossTwoFailovers has an operation count in two partitions. While one of them
// takes long the other is acknowledged, lost, and restored. Before the operation is told, what was
// restored is lost, too.
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
