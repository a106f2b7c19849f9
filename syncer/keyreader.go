package syncer

import (
	"context"
	"sync"
	"time"

	"twotier.dev/twotier/syncer/internal/rounds"
)

const (
	// listsAtOnce is how many lists are read in one call.
	listsAtOnce = 64
	// readShare bounds the share of a store's time, as 1/readShare, that reading lists takes.
	readShare = 20
	// readPause bounds the pause between two calls.
	readPause = 5 * time.Second
	// hashesPerUnit is how many hashes take a store about as much time as an empty list.
	hashesPerUnit = 4096
)

// keyReader reads the lists of keys that partitions request, in the order of the requests.
type keyReader struct {
	store   Lister
	timeout time.Duration
	signal  chan struct{}
	cost    readCost

	mu    sync.Mutex
	queue []*partition
}

// newKeyReader returns a reader of the store's lists, or nil if it has none.
func newKeyReader(opt *Options) *keyReader {
	store, ok := opt.Store.(Lister)
	if !ok {
		return nil
	}
	return &keyReader{store: store, timeout: opt.RoundTimeout, signal: make(chan struct{}, 1)}
}

// enqueue puts a partition into the queue. The partition's listing records whether it is there.
func (k *keyReader) enqueue(p *partition) {
	k.mu.Lock()
	k.queue = append(k.queue, p)
	k.mu.Unlock()
	select {
	case k.signal <- struct{}{}:
	default:
	}
}

// next removes and returns some partitions from the queue.
func (k *keyReader) next() []*partition {
	k.mu.Lock()
	defer k.mu.Unlock()
	some := k.queue[:min(listsAtOnce, len(k.queue))]
	k.queue = k.queue[len(some):]
	return some
}

// run reads lists until ctx is done.
func (k *keyReader) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.signal:
		}
		for parts := k.next(); len(parts) > 0; parts = k.next() {
			k.readAll(ctx, parts)
		}
	}
}

// readAll reads the lists of some partitions to their ends.
func (k *keyReader) readAll(ctx context.Context, parts []*partition) {
	stamps := map[*partition]rounds.ListStamp{}
	for len(parts) > 0 && ctx.Err() == nil {
		begun, units := time.Now(), 0
		parts, units = k.readSome(ctx, parts, stamps)
		took := time.Since(begun)
		pause(ctx, min(readPause, readShare*k.cost.busyTime(units, took)-took))
	}
}

// readSome reads on in the lists of some partitions. It returns the partitions whose lists go on,
// and the amount read in units of readCost. stamps holds the partitions' stamps at their first
// read.
func (k *keyReader) readSome(ctx context.Context, parts []*partition,
	stamps map[*partition]rounds.ListStamp) (more []*partition, units int) {
	var open []*partition
	var readings []*reading
	var lists []*KeyList
	for _, p := range parts {
		if r := p.beginReading(); r != nil {
			if _, ok := stamps[p]; !ok {
				stamps[p] = r.stamp
			}
			open, readings, lists = append(open, p), append(readings, r), append(lists, &r.KeyList)
		}
	}
	if len(lists) == 0 {
		return nil, 0
	}
	try, cancel := context.WithTimeout(ctx, k.timeout)
	k.store.ListKeys(try, lists)
	cancel()
	for i, p := range open {
		if lists[i].Err == nil { // an immediate failure is no measure of the cost
			units += 1 + len(lists[i].Hashes)/hashesPerUnit
		}
		if p.settleReading(readings[i], stamps[p]) {
			more = append(more, p)
		}
	}
	return more, units
}

// readCost estimates how long reads keep a store busy. On a busy store, a read spends most of its
// time waiting for others, so the fastest recent read determines the cost of a unit.
type readCost struct{ unit time.Duration }

// busyTime returns how long a read of this many units has kept the store busy, given its duration.
func (c *readCost) busyTime(units int, took time.Duration) time.Duration {
	if units == 0 {
		return 0
	}
	each := took / time.Duration(units)
	if c.unit += c.unit / 64; c.unit == 0 || each < c.unit {
		c.unit = each
	}
	return c.unit * time.Duration(units)
}

// pause waits for a while, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
