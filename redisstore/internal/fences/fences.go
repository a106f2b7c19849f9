package fences

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/redisstore/internal/scripts"
)

// Servers are the servers that take writes.
type Servers interface {
	// Primary returns the server of a key.
	Primary(ctx context.Context, key string) (*redis.Client, error)
	// EachPrimary calls fn for each server.
	EachPrimary(ctx context.Context, fn func(context.Context, *redis.Client) error) error
	// Name returns the name of a server.
	Name(server *redis.Client) string
}

// Options configure [Fences]. All fields are required.
type Options struct {
	Servers Servers
	// Replicas is how many replicas must have a count.
	Replicas int
	// Timeout bounds one command, and KeepTimeout how long servers wait.
	Timeout, KeepTimeout time.Duration
	// TTL is the time to live of sequences in milliseconds.
	TTL string
	// Go runs fn in the background; fn's context is done when the store closes.
	Go func(fn func(ctx context.Context))
	// RoundTrips counts the pipelines sent.
	RoundTrips *atomic.Int64
}

// Fences holds the fences of all servers. It is safe for concurrent use.
type Fences struct {
	opt Options
	all map[twotier.Ack]*keeper
}

// Mark is a sequence that Redis stored under a key together with the counts of one script. A server
// that has this sequence or a higher one has those counts.
type Mark struct {
	Key string
	Seq uint64
}

// keeper serves one ack: it holds the requested fences, and caches whether Redis offers the ack.
type keeper struct {
	opt *Options
	ack twotier.Ack

	mu     sync.Mutex
	queues map[*redis.Client]*serverQueue // of the servers that callers wait for

	offerMu sync.Mutex // held while Redis is asked
	offer   atomic.Pointer[offer]
	seen    bool // whether it was ever offered; guarded by offerMu
}

// serverQueue holds the fences of one server, so that no caller waits for another server's
// replicas. It is guarded by the keeper's lock.
type serverQueue struct {
	next   *fence // not begun, takes more marks; nil if there is none
	active int    // number of goroutines that run fences
}

// fence waits until everything written before it is kept, on behalf of all callers that joined
// before it began.
type fence struct {
	marks map[string]uint64 // by key, the highest sequence
	done  chan struct{}
	lost  map[string]error // by key, once done
	err   error            // for all keys, once done
}

// maxFences is how many fences of one ack are in flight at a server. Later callers share the next
// one.
const maxFences = 4

// New returns fences that nobody waits for.
func New(opt Options) *Fences {
	f := &Fences{opt: opt, all: map[twotier.Ack]*keeper{}}
	for _, ack := range []twotier.Ack{twotier.AckReplica, twotier.AckDisk} {
		f.all[ack] = &keeper{opt: &f.opt, ack: ack, queues: map[*redis.Client]*serverQueue{}}
	}
	return f
}

// Keep waits until the servers that have the marks have kept them. It returns an error or nil for
// each mark, or nil if all are kept.
func (f *Fences) Keep(ctx context.Context, ack twotier.Ack, marks []Mark) []error {
	k := f.all[ack]
	errs, servers := make([]error, len(marks)), make([]*redis.Client, len(marks))
	for i, m := range marks {
		server, err := f.opt.Servers.Primary(ctx, m.Key)
		if servers[i] = server; err != nil {
			servers[i], errs[i] = nil, k.unknownOutcome(err)
		}
	}
	for i, joined := range k.join(servers, marks) {
		if joined != nil {
			errs[i] = k.outcome(ctx, joined, marks[i].Key)
		}
	}
	if cmp.Or(errs...) == nil {
		return nil
	}
	return errs
}

// outcome waits for a fence, and returns why the counts behind a key are not kept. It returns the
// result of a finished fence even if time is up.
func (k *keeper) outcome(ctx context.Context, f *fence, key string) error {
	select {
	case <-f.done:
	case <-ctx.Done():
		select {
		case <-f.done:
		default:
			return k.unknownOutcome(ctx.Err())
		}
	}
	if err := errors.Join(f.lost[key], f.err); err != nil {
		return k.unknownOutcome(err)
	}
	return nil
}

func (k *keeper) unknownOutcome(err error) error {
	return fmt.Errorf("%w: counted in Redis, but not kept as ack=%s asks for: %v",
		twotier.ErrUnknownOutcome, k.ackName(), err)
}

// join adds marks to the next fences of their servers, and returns the fence of each.
func (k *keeper) join(servers []*redis.Client, marks []Mark) []*fence {
	k.mu.Lock()
	defer k.mu.Unlock()
	joined := make([]*fence, len(marks))
	for i, server := range servers {
		if server == nil {
			continue
		}
		q := k.queues[server]
		if q == nil {
			q = new(serverQueue)
			k.queues[server] = q
		}
		if q.next == nil {
			q.next = &fence{marks: map[string]uint64{}, done: make(chan struct{})}
			if q.active < maxFences {
				q.active++
				k.opt.Go(func(ctx context.Context) { k.runFences(ctx, server, q) })
			}
		}
		q.next.marks[marks[i].Key] = max(q.next.marks[marks[i].Key], marks[i].Seq)
		joined[i] = q.next
	}
	return joined
}

// runFences runs the fences of a server one after another until none is asked for.
func (k *keeper) runFences(ctx context.Context, server *redis.Client, q *serverQueue) {
	for f := k.next(server, q); f != nil; f = k.next(server, q) {
		one, cancel := context.WithTimeout(ctx, k.opt.KeepTimeout+k.opt.Timeout)
		f.lost, f.err = k.executeFence(one, server, f)
		cancel()
		close(f.done)
	}
}

// next returns the next fence of a server. If there is none, the calling goroutine is done, and the
// last one removes the server's queue, because the server may have left the cluster.
func (k *keeper) next(server *redis.Client, q *serverQueue) *fence {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := q.next
	q.next = nil
	if f == nil {
		if q.active--; q.active == 0 {
			delete(k.queues, server)
		}
	}
	return f
}

var (
	errGone    = errors.New("it no longer exists")
	errNotKept = errors.New("time is up")
)

// executeFence asks a server for the marks of a fence, writes something, and waits until that write
// is kept, and with it everything before it.
func (k *keeper) executeFence(ctx context.Context, node *redis.Client,
	f *fence) (lost map[string]error, err error) {
	keys := slices.Collect(maps.Keys(f.marks))
	conn := node.Conn() // WAIT covers the writes of its connection
	defer conn.Close()
	pipe := conn.Pipeline()
	stored := make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		stored[i] = pipe.Get(ctx, key)
	}
	write := pipe.Do(ctx, "PEXPIRE", keys[0], k.opt.TTL)
	k.opt.RoundTrips.Add(2)
	_, _ = pipe.Exec(ctx) // every command has its own error
	if err := write.Err(); err != nil && !scripts.IsRefusal(err) {
		return nil, err
	}
	lost, there := map[string]error{}, ""
	for i, key := range keys {
		if scripts.LeadingNumber(stored[i].Val()) < f.marks[key] {
			lost[key] = errors.Join(errGone, stored[i].Err())
		} else if stored[i].Val() != "" {
			there = key
		}
	}
	if there == "" {
		return lost, nil
	}
	if written, _ := write.Int(); written == 0 { // keys[0] is gone, or in a slot that has moved
		k.opt.RoundTrips.Add(1)
		if err := conn.Do(ctx, "PEXPIRE", there, k.opt.TTL).Err(); err != nil {
			return nil, err
		}
	}
	return lost, k.sendWait(ctx, conn)
}

func (k *keeper) sendWait(ctx context.Context, conn *redis.Conn) error {
	if k.ack == twotier.AckReplica {
		replicas, err := conn.Wait(ctx, k.opt.Replicas, k.opt.KeepTimeout).Result()
		if err == nil && replicas < int64(k.opt.Replicas) {
			return fmt.Errorf("%w: %d of %d replicas have it", errNotKept, replicas,
				k.opt.Replicas)
		}
		return err
	}
	kept, err := conn.WaitAOF(ctx, 1, 0, k.opt.KeepTimeout).Result()
	if err == nil && (len(kept) == 0 || kept[0] < 1) {
		return errNotKept
	}
	return err
}

// offer is the ability of the servers to wait, at a moment.
type offer struct {
	at   time.Time
	errs map[*redis.Client]error // for each server that takes writes, why it can't wait, or nil
	err  error                   // if set, why nothing is known about the servers
}

// refusal returns why a server can't wait, or nil. A server that was still unknown is asked next
// time.
func (o *offer) refusal(server *redis.Client) error { return cmp.Or(o.err, o.errs[server]) }

// joinedRefusals returns why some servers can't wait, or nil.
func (o *offer) joinedRefusals() error {
	return errors.Join(o.err, errors.Join(slices.Collect(maps.Values(o.errs))...))
}

// offerAge is how long an offer is valid.
const offerAge = time.Second

// Offers returns nil if the servers of some keys, or of all keys if none are given, can wait for an
// ack. It tries what Keep will need rather than guessing from a version.
func (f *Fences) Offers(ctx context.Context, ack twotier.Ack, keys ...string) error {
	offer, err := f.all[ack].currentOffer(ctx)
	switch {
	case err != nil:
		return err
	case len(keys) == 0:
		return offer.joinedRefusals()
	}
	for _, key := range keys {
		server, err := f.opt.Servers.Primary(ctx, key)
		if err != nil {
			return fmt.Errorf("%w: %w", twotier.ErrUnavailable, err)
		}
		if err := offer.refusal(server); err != nil {
			return err
		}
	}
	return nil
}

// currentOffer returns the current offer, at most offerAge old.
func (k *keeper) currentOffer(ctx context.Context) (*offer, error) {
	known := k.offer.Load()
	if known != nil && time.Since(known.at) < offerAge {
		return known, nil
	}
	if known == nil {
		k.offerMu.Lock()
	} else if !k.offerMu.TryLock() {
		return known, nil // another caller is asking already
	}
	defer k.offerMu.Unlock()
	if now := k.offer.Load(); now != known {
		return now, nil
	}
	now := k.askServers(ctx)
	if err := now.joinedRefusals(); err != nil && ctx.Err() != nil {
		return nil, err // the caller's ctx ended: Redis may be fine
	}
	k.offer.Store(now)
	return now, nil
}

// askServers asks all servers that take writes.
func (k *keeper) askServers(ctx context.Context) *offer {
	ask, cancel := context.WithTimeout(ctx, k.opt.Timeout)
	defer cancel()
	now := &offer{errs: map[*redis.Client]error{}}
	var mu sync.Mutex // guards now.errs
	now.err = k.opt.Servers.EachPrimary(ask, func(ctx context.Context, server *redis.Client) error {
		err := k.tryServer(ctx, server)
		mu.Lock()
		defer mu.Unlock()
		now.errs[server] = err
		return nil
	})
	now.at = time.Now()
	k.seen = k.seen || now.joinedRefusals() == nil
	return now
}

// tryServer asks a server whether it offers the keeper's ack.
func (k *keeper) tryServer(ctx context.Context, node *redis.Client) error {
	if k.ack == twotier.AckDisk {
		return k.refusal("WAITAOF", node.WaitAOF(ctx, 1, 0, time.Millisecond).Err())
	}
	if err := k.refusal("WAIT", node.Wait(ctx, 0, time.Millisecond).Err()); err != nil {
		return err
	}
	// If the user has no permission for INFO, missing replicas only show when none answers in time.
	info, err := node.Info(ctx, "replication").Result()
	connected, told := parseReplicas(info)
	if err != nil || !told || connected >= k.opt.Replicas {
		return nil
	}
	lack := fmt.Sprintf("%d of %d replicas are connected to Redis at %s",
		connected, k.opt.Replicas, k.opt.Servers.Name(node))
	if k.seen {
		return fmt.Errorf("%w: %s", twotier.ErrUnavailable, lack)
	}
	return k.invalidAck("replica needs all that are asked for: " + lack)
}

// parseReplicas returns the number of connected replicas in a server's INFO.
func parseReplicas(info string) (n int, told bool) {
	_, rest, ok := strings.Cut(info, "\nconnected_slaves:")
	number, _, _ := strings.Cut(rest, "\r")
	n, err := strconv.Atoi(number)
	return n, ok && err == nil
}

// refusal returns an error for a server that refuses a command or fails to answer it. Only a
// lasting refusal rules out the keeper's ack.
func (k *keeper) refusal(command string, err error) error {
	switch {
	case err == nil:
		return nil
	case scripts.IsRefusal(err) && !scripts.IsTransient(err):
		return k.invalidAck(fmt.Sprintf("%s needs %s, which Redis refuses: %v",
			strings.ToLower(k.ackName()), command, err))
	}
	return fmt.Errorf("%w: %s: %w", twotier.ErrUnavailable, command, err)
}

func (k *keeper) ackName() string {
	if k.ack == twotier.AckDisk {
		return "disk"
	}
	return "replica"
}

func (k *keeper) invalidAck(detail string) error {
	return &twotier.InvalidError{Check: -1, Limit: -1, Field: "ack", Detail: detail}
}
