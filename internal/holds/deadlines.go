package holds

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
)

const (
	// DeadlineSlot is the length of the slots in which a DeadlineStore keeps deadlines.
	DeadlineSlot = 2 * time.Second
	// DeadlineKept is how long a DeadlineStore keeps a slot after its start.
	DeadlineKept = 2 * LateWithin

	deadlineTick = 100 * time.Millisecond
	// orphanAge is how far back a deadline lies that another node should have met: it has died.
	orphanAge   = 3 * time.Second
	orphanPause = 2 * time.Second
	// releasers bounds the releases at the same time, and releaseTimeout each of them.
	releasers      = 16
	releaseTimeout = 5 * time.Second
	// idCost is how many bytes of memory an id takes in addition to its text.
	idCost        = 64
	defaultMemory = 64 << 20
)

// A DeadlineStore keeps the ids of holds that are to be released, so that they outlive the node
// that made them. A slot has the ids whose holds end within DeadlineSlot after it, in unix
// milliseconds.
type DeadlineStore interface {
	// ChangeDeadlines adds ids to slots, and then removes others. It can be repeated.
	ChangeDeadlines(ctx context.Context, add, remove map[int64][]string) error
	// Deadlines calls visit with the ids in each of the slots, in their order, and with a bounded
	// number of ids at a time. It may visit an id twice.
	Deadlines(ctx context.Context, slots []int64, visit func(slot int64, ids []string)) error
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
	// Memory bounds the bytes in use: three quarters for ids to release, and a quarter for changes
	// that the store has not seen. Default: 64 MiB.
	Memory int64
	Logger *slog.Logger

	mu      sync.Mutex
	due     map[int64]map[string]struct{} // ids by the tick after their end
	kept    int64                         // the memory of due
	next    int64                         // the first tick whose holds may not have been released
	changes []slotChange                  // those that the store has not seen yet, oldest first
	unseen  int64                         // the memory of changes
	written Ticket                        // of the last change that the store has seen
	news    chan struct{}                 // closed after the next write; nil if nobody waits

	wake   chan struct{} // asks for a write
	orphan int64         // the first slot of the store that may have overdue ids
	stop   context.CancelFunc
	loops  sync.WaitGroup
}

// costOf returns the memory of an id, in bytes.
func costOf(id string) int64 { return int64(len(id)) + idCost }

// quarter returns a quarter of the memory, in bytes.
func (d *Deadlines) quarter() int64 { return cmp.Or(d.Memory, defaultMemory) / 4 }

// IsFull reports whether no deadline can be added.
func (d *Deadlines) IsFull() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kept >= 3*d.quarter()
}

// Add adds the deadline of a hold. The deadline outlives this process once [Deadlines.Await] has
// returned for the ticket.
func (d *Deadlines) Add(id string, until int64) Ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.insert(tickOf(until), id)
	return d.change(slotChange{slotOf(until), id, false})
}

// Remove removes the deadline of a hold that has been settled, whichever node made it.
func (d *Deadlines) Remove(id string, until int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	tick := tickOf(until)
	ids := d.due[tick]
	if _, mine := ids[id]; mine {
		if delete(ids, id); len(ids) == 0 {
			delete(d.due, tick)
		}
		d.kept -= costOf(id)
	}
	d.change(slotChange{slotOf(until), id, true})
}

// tickOf returns the number of the first tick after a time.
func tickOf(until int64) int64 { return until/deadlineTick.Milliseconds() + 1 }

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
	d.kept += costOf(id)
}

// Open begins to release.
func (d *Deadlines) Open() {
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.next = tickOf(d.Now()) - 1
	d.loops.Go(func() { each(ctx, deadlineTick, nil, d.releaseDue) })
	if d.Store != nil {
		d.wake = make(chan struct{}, 1)
		d.loops.Go(func() { each(ctx, deadlineTick, d.wake, d.write) })
		d.loops.Go(func() { each(ctx, orphanPause, nil, d.releaseOrphans) })
	}
}

// Close stops releasing, and writes the last changes to the store, for a second at most.
func (d *Deadlines) Close() {
	if d.stop == nil {
		return // it was never opened
	}
	d.stop()
	d.loops.Wait()
	d.write(context.Background())
}

// each calls fn again and again, with pauses that wake ends, until ctx ends.
func each(ctx context.Context, pause time.Duration, wake <-chan struct{},
	fn func(context.Context)) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-wake:
		}
		fn(ctx)
	}
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
			d.kept -= costOf(id)
		}
		delete(d.due, tick)
	}
	now := tickOf(d.Now())
	d.next = min(d.next, now) // the clock may have been set back
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
	for i, id := range ids {
		free <- struct{}{}
		if ctx.Err() != nil {
			mu.Lock()
			failed = append(failed, ids[i:]...)
			mu.Unlock()
			break
		}
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
	now, step := d.Now(), DeadlineSlot.Milliseconds()
	// It begins with the oldest slot, and begins again if the clock was set.
	if oldest := slotOf(now - DeadlineKept.Milliseconds()); d.orphan < oldest || d.orphan > now {
		d.orphan = oldest
	}
	var slots []int64
	for s := d.orphan; s+step < now-orphanAge.Milliseconds(); s += step {
		slots = append(slots, s)
	}
	if len(slots) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	settled := true // everything so far
	err := d.Store.Deadlines(ctx, slots, func(slot int64, ids []string) {
		if settled {
			d.orphan = slot
		}
		failed := d.release(ctx, ids)
		settled = settled && len(failed) == 0
	})
	if err != nil {
		d.Logger.Debug("can't read the deadlines of holds", "error", err)
	} else if settled {
		d.orphan = slots[len(slots)-1] + step
	}
}

const (
	// changesAtOnce and bytesAtOnce bound the changes in one write to the store.
	changesAtOnce = 1000
	bytesAtOnce   = 1 << 20
)

// slotChange adds an id to a slot of the store, or removes it.
type slotChange struct {
	slot    int64
	id      string
	removes bool
}

// A Ticket stands for a change of the store, to be awaited. It is 0 if there is no store.
type Ticket int64

// lostTicket stands for a change that the store will not see.
const lostTicket Ticket = -1

// errNotKept means that a deadline may end with this process.
var errNotKept = fmt.Errorf("%w: it is counted, but may not be released at its end",
	twotier.ErrUnknownOutcome)

// change remembers a change of the store. While it is down, those that don't fit are lost: their
// holds are released by this node, or not at all.
func (d *Deadlines) change(c slotChange) Ticket {
	switch {
	case d.Store == nil:
		return 0
	case d.unseen >= d.quarter():
		return lostTicket
	}
	d.changes = append(d.changes, c)
	d.unseen += costOf(c.id)
	return d.written + Ticket(len(d.changes))
}

// Await returns once the store has the changes up to a ticket. The error is an ErrUnknownOutcome.
func (d *Deadlines) Await(ctx context.Context, t Ticket) error {
	for t != lostTicket {
		d.mu.Lock()
		if t <= d.written {
			d.mu.Unlock()
			return nil
		}
		if d.news == nil {
			d.news = make(chan struct{})
		}
		news := d.news
		d.mu.Unlock()
		select {
		case d.wake <- struct{}{}:
		default: // a write is due
		}
		select {
		case <-news:
		case <-ctx.Done():
			return errNotKept
		}
	}
	return errNotKept
}

// write writes changes to the store, some at a time, until there are none or it fails.
func (d *Deadlines) write(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for {
		some := d.oldestChanges()
		if len(some) == 0 {
			return
		}
		add, remove := map[int64][]string{}, map[int64][]string{}
		for _, c := range some {
			in := add
			if c.removes {
				in = remove
			}
			in[c.slot] = append(in[c.slot], c.id)
		}
		if err := d.Store.ChangeDeadlines(ctx, add, remove); err != nil {
			d.Logger.Debug("can't write the deadlines of holds", "error", err)
			return
		}
		d.forgetChanges(len(some))
	}
}

func (d *Deadlines) oldestChanges() []slotChange {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, bytes := 0, 0
	for n < min(len(d.changes), changesAtOnce) && bytes < bytesAtOnce {
		bytes += len(d.changes[n].id)
		n++
	}
	return slices.Clone(d.changes[:n])
}

// forgetChanges forgets the oldest n changes, which the store has seen.
func (d *Deadlines) forgetChanges(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.changes[:n] {
		d.unseen -= costOf(c.id)
	}
	clear(d.changes[:n])
	if d.written += Ticket(n); d.news != nil {
		close(d.news)
		d.news = nil
	}
	if d.changes = d.changes[n:]; len(d.changes) == 0 {
		d.changes = nil
	}
}
