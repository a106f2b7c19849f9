package holds

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// MaxDeadlines bounds the deadlines in memory.
	MaxDeadlines = 1 << 20
	// DeadlineSlot is the length of the slots in which a DeadlineStore keeps deadlines.
	DeadlineSlot = 2 * time.Second

	deadlineTick = 100 * time.Millisecond
	// orphanAge is how far back a deadline lies that another node should have met: it has died.
	orphanAge   = 3 * time.Second
	orphanPause = 2 * time.Second
	// releasers bounds the releases at the same time, and releaseTimeout each of them.
	releasers      = 16
	releaseTimeout = 5 * time.Second
)

// A DeadlineStore keeps the ids of holds that are to be released, so that they outlive the node
// that made them. A slot has the ids whose holds end within DeadlineSlot after it, in unix
// milliseconds.
type DeadlineStore interface {
	// ChangeDeadlines adds ids to slots, and then removes others. It can be repeated.
	ChangeDeadlines(ctx context.Context, add, remove map[int64][]string) error
	// Deadlines returns the ids in each of the slots.
	Deadlines(ctx context.Context, slots []int64) ([][]string, error)
}

// Deadlines releases the holds that nobody has settled in time: this node's own, and overdue ones
// in the store, whose nodes have died. Several nodes may release the same hold, which changes it
// once.
type Deadlines struct {
	// Now returns the time in unix milliseconds.
	Now func() int64
	// Store is nil if nothing outlives the process.
	Store DeadlineStore
	// Release releases a hold. The error means that it has to be tried again.
	Release func(ctx context.Context, id string) error
	Logger  *slog.Logger

	mu  sync.Mutex
	due map[int64]map[string]struct{} // ids by the tick after their end
	n   int
	// add and remove are the changes that the store has not seen yet.
	add, remove map[int64][]string
	changes     int

	next   int64 // the first tick whose holds may not have been released
	orphan int64 // the first slot of the store that may have overdue ids
	stop   context.CancelFunc
	loops  sync.WaitGroup
}

// IsFull reports whether no deadline can be added.
func (d *Deadlines) IsFull() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n >= MaxDeadlines
}

// Add adds the deadline of a hold.
func (d *Deadlines) Add(id string, until int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.insert(tickOf(until), id)
	d.change(&d.add, id, until)
}

// Remove removes the deadline of a hold that has been settled, whichever node made it.
func (d *Deadlines) Remove(id string, until int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ids := d.due[tickOf(until)]; ids != nil {
		if _, mine := ids[id]; mine {
			delete(ids, id)
			d.n--
		}
	}
	d.change(&d.remove, id, until)
}

// tickOf returns the number of the first tick after a time.
func tickOf(until int64) int64 { return until/deadlineTick.Milliseconds() + 1 }

// slotOf returns the slot of a time.
func slotOf(until int64) int64 { return until - until%DeadlineSlot.Milliseconds() }

func (d *Deadlines) insert(tick int64, id string) {
	tick = max(tick, d.next)
	if d.due == nil {
		d.due = map[int64]map[string]struct{}{}
	}
	if d.due[tick] == nil {
		d.due[tick] = map[string]struct{}{}
	}
	d.due[tick][id] = struct{}{}
	d.n++
}

// change remembers a change of the store. While it is down, the latest MaxDeadlines are lost: their
// holds are released by this node, or not at all.
func (d *Deadlines) change(in *map[int64][]string, id string, until int64) {
	if d.Store == nil || d.changes >= MaxDeadlines {
		return
	}
	if *in == nil {
		*in = map[int64][]string{}
	}
	(*in)[slotOf(until)] = append((*in)[slotOf(until)], id)
	d.changes++
}

// Open begins to release.
func (d *Deadlines) Open() {
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.next = tickOf(d.Now()) - 1
	d.orphan = slotOf(d.Now() - ReleaseWithin.Milliseconds())
	d.loops.Go(func() { each(ctx, deadlineTick, d.releaseDue) })
	if d.Store != nil {
		d.loops.Go(func() { each(ctx, deadlineTick, d.write) })
		d.loops.Go(func() { each(ctx, orphanPause, d.releaseOrphans) })
	}
}

// Close stops releasing, and writes the last changes to the store.
func (d *Deadlines) Close(ctx context.Context) {
	if d.stop == nil {
		return // it was never opened
	}
	d.stop()
	d.loops.Wait()
	if d.Store != nil {
		d.write(ctx)
	}
}

// each calls fn again and again, with pauses, until ctx ends.
func each(ctx context.Context, pause time.Duration, fn func(context.Context)) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			fn(ctx)
		}
	}
}

// write writes the changes to the store, or keeps them if it can't.
func (d *Deadlines) write(ctx context.Context) {
	d.mu.Lock()
	add, remove, n := d.add, d.remove, d.changes
	d.add, d.remove, d.changes = nil, nil, 0
	d.mu.Unlock()
	if n == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := d.Store.ChangeDeadlines(ctx, add, remove)
	if err == nil {
		return
	}
	d.Logger.Debug("can't write the deadlines of holds", "error", err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add, d.remove = merge(add, d.add), merge(remove, d.remove)
	d.changes += n
}

// merge appends the ids of later to those of earlier.
func merge(earlier, later map[int64][]string) map[int64][]string {
	if earlier == nil {
		return later
	}
	for slot, ids := range later {
		earlier[slot] = append(earlier[slot], ids...)
	}
	return earlier
}

// releaseDue releases the holds of this node that have ended.
func (d *Deadlines) releaseDue(ctx context.Context) {
	failed := d.release(ctx, d.takeDue())
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range failed {
		d.insert(tickOf(d.Now()+time.Second.Milliseconds()), id)
	}
}

// takeDue removes and returns the ids whose holds have ended.
func (d *Deadlines) takeDue() (all []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	take := func(tick int64) {
		for id := range d.due[tick] {
			all = append(all, id)
		}
		d.n -= len(d.due[tick])
		delete(d.due, tick)
	}
	now := tickOf(d.Now())
	if now-d.next > int64(len(d.due)) {
		for tick := range d.due {
			if tick < now {
				take(tick)
			}
		}
		d.next = now
	}
	for ; d.next < now; d.next++ {
		take(d.next)
	}
	return all
}

// release releases holds, and returns the ids to try again.
func (d *Deadlines) release(ctx context.Context, ids []string) (failed []string) {
	var mu sync.Mutex
	var working sync.WaitGroup
	free := make(chan struct{}, releasers)
	for _, id := range ids {
		free <- struct{}{}
		working.Go(func() {
			defer func() { <-free }()
			ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
			defer cancel()
			if err := d.Release(ctx, id); err != nil {
				d.Logger.Debug("can't release a hold yet", "error", err)
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, id)
			}
		})
	}
	working.Wait()
	return failed
}

// releaseOrphans releases the holds in the store that are overdue.
func (d *Deadlines) releaseOrphans(ctx context.Context) {
	step := DeadlineSlot.Milliseconds()
	var slots []int64
	for s := d.orphan; s+step < d.Now()-orphanAge.Milliseconds(); s += step {
		slots = append(slots, s)
	}
	if len(slots) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ids, err := d.Store.Deadlines(ctx, slots)
	if err != nil {
		d.Logger.Debug("can't read the deadlines of holds", "error", err)
		return
	}
	settled := true
	for i, slot := range slots {
		failed := d.release(ctx, ids[i])
		if settled = settled && len(failed) == 0; settled {
			d.orphan = slot + step
		}
	}
}
