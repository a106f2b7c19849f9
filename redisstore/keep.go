package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/syncer"
)

// Keeping is told by WAIT and WAITAOF, which say how far the replicas or the disk have come with
// what the server had written when they were sent. They are sent on connections of their own, after
// what they are for was acknowledged: then nobody's flush waits for a replica that lags, and one of
// them serves all who ask meanwhile. A server that took over in between may not have what the other
// acknowledged, so it is first asked for the numbers of what is to be kept.

// mark is a number that Redis stored under a key together with what it counted. If a server has
// that number or a higher one, it has those counts.
type mark struct {
	key string
	seq uint64
}

// keepers has one keeper for each kind of ack.
type keepers struct {
	life context.Context
	stop context.CancelFunc
	done sync.WaitGroup
	all  map[syncer.Ack]*keeper
}

// keeper serves one kind of ack: the fences that were asked for, and whether Redis offers it.
type keeper struct {
	s   *Store
	ack syncer.Ack

	mu     sync.Mutex
	next   *fence // that takes more marks, nil if none is asked for
	active int    // goroutines that serve

	offerMu sync.Mutex // held while Redis is asked
	offer   atomic.Pointer[offer]
	seen    bool // it has been offered; under offerMu
}

// fence waits until everything before it is kept, on behalf of everyone who asked before it began.
type fence struct {
	marks map[string]uint64 // the largest number of each key
	done  chan struct{}
	errs  map[string]error // by key, once done
}

// maxFences is how many fences of a kind are in flight. Later callers share the next one.
const maxFences = 4

func (k *keepers) init(s *Store) {
	k.life, k.stop = context.WithCancel(context.Background())
	k.all = map[syncer.Ack]*keeper{
		syncer.AckReplica: {s: s, ack: syncer.AckReplica},
		syncer.AckDisk:    {s: s, ack: syncer.AckDisk},
	}
}

// Keep implements syncer.Keeper.
func (s *Store) Keep(ctx context.Context, ack syncer.Ack, marks []syncer.Mark) error {
	list := make([]mark, len(marks))
	for i, m := range marks {
		list[i] = mark{writerKey(m.Partition, m.Writer), m.Seq}
	}
	return s.keep(ctx, ack, list)
}

func (s *Store) keep(ctx context.Context, ack syncer.Ack, marks []mark) error {
	k := s.keepers.all[ack]
	f := k.join(marks)
	select {
	case <-f.done:
	case <-ctx.Done():
		return k.unknown(ctx.Err())
	}
	for _, m := range marks {
		if err := f.errs[m.key]; err != nil {
			return k.unknown(err)
		}
	}
	return nil
}

func (k *keeper) unknown(err error) error {
	return fmt.Errorf("%w: counted in Redis, but not kept as ack=%s asks for: %v",
		syncer.ErrUnknownOutcome, k.name(), err)
}

// join makes the next fence wait for these marks too.
func (k *keeper) join(marks []mark) *fence {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.next == nil {
		k.next = &fence{marks: map[string]uint64{}, done: make(chan struct{}),
			errs: map[string]error{}}
	}
	for _, m := range marks {
		k.next.marks[m.key] = max(k.next.marks[m.key], m.seq)
	}
	if k.active < maxFences {
		k.active++
		k.s.keepers.done.Go(k.runFences)
	}
	return k.next
}

// runFences serves one fence after another until none is asked for.
func (k *keeper) runFences() {
	for {
		k.mu.Lock()
		f := k.next
		k.next = nil
		if f == nil {
			k.active--
		}
		k.mu.Unlock()
		if f == nil {
			return
		}
		k.serve(f)
		close(f.done)
	}
}

// serve waits for a fence at every server that has one of its marks.
func (k *keeper) serve(f *fence) {
	ctx, cancel := context.WithTimeout(k.s.keepers.life, k.s.opt.KeepTimeout+k.s.opt.Timeout)
	defer cancel()
	var mu sync.Mutex // guards f.errs
	var done sync.WaitGroup
	for node, keys := range k.s.homes(ctx, f) {
		done.Go(func() {
			lost, err := k.wait(ctx, node, f, keys)
			mu.Lock()
			defer mu.Unlock()
			for _, key := range keys {
				f.errs[key] = errors.Join(lost[key], err)
			}
		})
	}
	done.Wait()
}

// homes returns which server has which marks. Marks that no server is known to have are failures.
func (s *Store) homes(ctx context.Context, f *fence) map[*redis.Client][]string {
	homes := map[*redis.Client][]string{}
	for key := range f.marks {
		node, err := s.home(ctx, key)
		if err != nil {
			f.errs[key] = err
			continue
		}
		homes[node] = append(homes[node], key)
	}
	return homes
}

func (s *Store) home(ctx context.Context, key string) (*redis.Client, error) {
	if c, ok := s.client.(*redis.ClusterClient); ok {
		return c.MasterForKey(ctx, key)
	}
	return s.client.(*redis.Client), nil
}

var (
	errGone    = errors.New("it is not there any more")
	errNotKept = errors.New("time is up")
)

// wait asks one server for the marks, writes something, and waits until that is kept. Then
// everything written before it is kept too.
func (k *keeper) wait(ctx context.Context, node *redis.Client, f *fence,
	keys []string) (lost map[string]error, err error) {
	conn := node.Conn() // the commands wait for what was written before on their own connection
	defer conn.Close()
	pipe := conn.Pipeline()
	stored := make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		stored[i] = pipe.Get(ctx, key)
	}
	write := pipe.Do(ctx, "PEXPIRE", keys[0], k.s.sequenceTTL)
	k.s.roundTrips.Add(2)
	_, _ = pipe.Exec(ctx) // every command has its own error
	if err := write.Err(); err != nil {
		return nil, err
	}
	lost, there := map[string]error{}, ""
	for i, key := range keys {
		if numberOf(stored[i].Val()) < f.marks[key] {
			lost[key] = errors.Join(errGone, stored[i].Err())
		} else if stored[i].Val() != "" {
			there = key
		}
	}
	if there == "" {
		return lost, nil
	}
	if written, _ := write.Int(); written == 0 { // keys[0] is gone: nothing to wait for
		k.s.roundTrips.Add(1)
		if err := conn.Do(ctx, "PEXPIRE", there, k.s.sequenceTTL).Err(); err != nil {
			return nil, err
		}
	}
	return lost, k.await(ctx, conn)
}

// await sends the command that waits.
func (k *keeper) await(ctx context.Context, conn *redis.Conn) error {
	if k.ack == syncer.AckReplica {
		replicas, err := conn.Wait(ctx, k.s.opt.KeepReplicas, k.s.opt.KeepTimeout).Result()
		if err == nil && replicas < int64(k.s.opt.KeepReplicas) {
			return fmt.Errorf("%w: %d of %d replicas have it", errNotKept, replicas,
				k.s.opt.KeepReplicas)
		}
		return err
	}
	kept, err := conn.WaitAOF(ctx, 1, 0, k.s.opt.KeepTimeout).Result()
	if err == nil && (len(kept) == 0 || kept[0] < 1) {
		return errNotKept
	}
	return err
}

// numberOf returns the number at the start of a stored sequence, 0 if there is none.
func numberOf(stored string) uint64 {
	end := strings.IndexAny(stored, ".:")
	if end < 0 {
		end = len(stored)
	}
	n, err := strconv.ParseUint(stored[:end], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
