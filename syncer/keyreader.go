package syncer

import (
	"context"
	"sync"
	"time"
)

const (
	// listsAtOnce is how many lists are read in one call.
	listsAtOnce = 64
	// readShare is the share of a store's time, as 1/readShare, that reading lists takes at most.
	readShare = 20
	// readPause bounds the pause between two calls.
	readPause = 5 * time.Second
	// hashesPerUnit is how many hashes take a store about as much time as a list without any.
	hashesPerUnit = 4096
)

// keyReader reads the lists of keys that partitions want, in the order in which they want them.
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

// enqueue puts a partition into the queue. Its listing says whether it is there.
func (k *keyReader) enqueue(p *partition) {
	k.mu.Lock()
	k.queue = append(k.queue, p)
	k.mu.Unlock()
	select {
	case k.signal <- struct{}{}:
	default:
	}
}

// next takes some partitions from the queue.
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
	stamps := map[*partition]listStamp{}
	for len(parts) > 0 && ctx.Err() == nil {
		begun, units := time.Now(), 0
		parts, units = k.readSome(ctx, parts, stamps)
		took := time.Since(begun)
		pause(ctx, min(readPause, readShare*k.cost.of(units, took)-took))
	}
}

// readSome reads on in the lists of some partitions, and returns those whose lists go on, and how
// much was read, in units of readCost. stamps has what was known of them when the first part was
// read.
func (k *keyReader) readSome(ctx context.Context, parts []*partition,
	stamps map[*partition]listStamp) (more []*partition, units int) {
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
		if lists[i].Err == nil { // one that fails at once says nothing of what a read costs
			units += 1 + len(lists[i].Hashes)/hashesPerUnit
		}
		if p.settleReading(readings[i], stamps[p]) {
			more = append(more, p)
		}
	}
	return more, units
}

// readCost tells how long reads keep a store busy. Most of the time that one takes on a busy store
// is spent waiting for others, so what a unit costs is taken from the fastest read of late.
type readCost struct{ unit time.Duration }

// of returns how long a read of so many units, which took so long, has kept the store busy.
func (c *readCost) of(units int, took time.Duration) time.Duration {
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
