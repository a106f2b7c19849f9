package holds_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/holds"
)

// deadlineStore keeps deadlines while it is up.
type deadlineStore struct {
	mu    sync.Mutex
	down  bool
	slots map[int64]map[string]bool
	asked int // the most slots that were read at once
}

var errDown = errors.New("it is down")

// idsAtOnce is how many ids the store can take at once.
const idsAtOnce = 1000

func (s *deadlineStore) ChangeDeadlines(_ context.Context, add,
	remove map[int64][]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, ids := range slices.Concat(slices.Collect(maps.Values(add)),
		slices.Collect(maps.Values(remove))) {
		n += len(ids)
	}
	if s.down || n > idsAtOnce {
		return errDown
	}
	for slot, ids := range add {
		if s.slots[slot] == nil {
			s.slots[slot] = map[string]bool{}
		}
		for _, id := range ids {
			s.slots[slot][id] = true
		}
	}
	for slot, ids := range remove {
		for _, id := range ids {
			delete(s.slots[slot], id)
		}
	}
	return nil
}

func (s *deadlineStore) Deadlines(_ context.Context, slots []int64,
	visit func(slot int64, ids []string)) error {
	s.mu.Lock()
	if s.down {
		s.mu.Unlock()
		return errDown
	}
	s.asked = max(s.asked, len(slots))
	var all [][]string
	for _, slot := range slots {
		all = append(all, slices.Collect(maps.Keys(s.slots[slot])))
	}
	s.mu.Unlock()
	for i, slot := range slots {
		visit(slot, all[i])
	}
	return nil
}

func (s *deadlineStore) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// releaser is a node that releases holds.
type releaser struct {
	holds.Deadlines
	until map[string]int64 // of all holds

	mu       sync.Mutex
	released map[string]int64 // when
	failing  bool
	calls    int
}

func newReleaser(store holds.DeadlineStore) *releaser {
	r := &releaser{until: map[string]int64{}, released: map[string]int64{}}
	r.Now = func() int64 { return time.Now().UnixMilli() }
	r.Store, r.Logger = store, slog.New(slog.DiscardHandler)
	r.Release = func(_ context.Context, id string) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.calls++; r.failing {
			return errDown
		}
		r.released[id] = r.Now()
		r.Remove(id, r.until[id])
		return nil
	}
	r.Open()
	return r
}

// learn learns the ends of holds.
func (r *releaser) learn(until map[string]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.Copy(r.until, until)
}

// hold adds holds that end after so many milliseconds each.
func (r *releaser) hold(ends ...int64) {
	for i, end := range ends {
		id, until := fmt.Sprint(i), r.Now()+end
		r.learn(map[string]int64{id: until})
		r.Add(id, until)
	}
}

// late returns how many milliseconds after its end each hold has been released.
func (r *releaser) late() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	late := map[string]int64{}
	for id, at := range r.released {
		late[id] = at - r.until[id]
	}
	return late
}

// TestDeadlines: a node releases its own holds within a moment after their ends, except settled
// ones, with the store up and down, and repeats failed releases.
func TestDeadlines(t *testing.T) {
	for _, down := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &deadlineStore{slots: map[int64]map[string]bool{}}
			r := newReleaser(store)
			store.setDown(down)
			r.hold(-50, 0, 1, 99, 100, 101, 60_000, 600_000)
			r.Remove("5", r.until["5"])
			r.mu.Lock()
			r.failing = true
			r.mu.Unlock()
			time.Sleep(5 * time.Second)
			r.mu.Lock()
			r.failing = false
			r.mu.Unlock()
			if r.calls < 10 || len(r.late()) > 0 {
				t.Errorf("%d calls, %v", r.calls, r.late())
			}
			time.Sleep(11 * time.Minute)
			late := r.late()
			for _, id := range []string{"0", "1", "2", "3", "4", "6", "7"} {
				most := int64(6500)
				if id > "5" {
					most = 200
				}
				if d, ok := late[id]; !ok || d <= 0 || d > most {
					t.Errorf("%s is released %d ms late, %v", id, d, ok)
				}
			}
			if len(late) != 7 {
				t.Errorf("%v", late)
			}
			store.setDown(false)
			time.Sleep(time.Second)
			r.Close()
			for slot, ids := range store.slots {
				if len(ids) > 0 {
					t.Errorf("%v in slot %d", ids, slot)
				}
			}
		})
	}
}

// TestDeadlinesOfADeadNode: other nodes, and the next process, release the holds of a node that has
// died.
func TestDeadlinesOfADeadNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &deadlineStore{slots: map[int64]map[string]bool{}}
		dead, other := newReleaser(store), newReleaser(store)
		dead.hold(4000, 60_000, 70_000)
		time.Sleep(time.Second)
		dead.Close()
		other.learn(dead.until)
		time.Sleep(59*time.Second - time.Millisecond)
		if _, early := other.late()["1"]; early {
			t.Errorf("it is released before its end")
		}
		other.Close()
		next := newReleaser(store)
		next.learn(dead.until)
		time.Sleep(time.Minute)
		late := other.late()
		maps.Copy(late, next.late())
		for _, id := range []string{"0", "1", "2"} {
			if d, ok := late[id]; !ok || d <= 0 || d > 8000 {
				t.Errorf("%s is released %d ms late, %v", id, d, ok)
			}
		}
		next.Close()
	})
}

// has reports whether the store has the deadline of a hold.
func (s *deadlineStore) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ids := range s.slots {
		if ids[id] {
			return true
		}
	}
	return false
}

// TestDeadlinesAfterAnOutage: a store that was down for long gets what it has missed in several
// parts, and all of it.
func TestDeadlinesAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &deadlineStore{down: true, slots: map[int64]map[string]bool{}}
		r := newReleaser(store)
		ends := make([]int64, 10*idsAtOnce)
		for i := range ends {
			ends[i] = int64(time.Hour/time.Millisecond) + int64(i)
		}
		r.hold(ends...)
		r.Remove("7", r.until["7"])
		time.Sleep(10 * time.Second)
		store.setDown(false)
		time.Sleep(10 * time.Second)
		for i := range ends {
			if id := fmt.Sprint(i); store.has(id) == (id == "7") {
				t.Fatalf("the store has %s: %v", id, id == "7")
			}
		}
		r.Close()
	})
}

// TestDeadlinesWaitForNoRelease: while releases take long, the deadlines of other holds are
// written. Once it is to stop, no release begins.
func TestDeadlinesWaitForNoRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &deadlineStore{slots: map[int64]map[string]bool{}}
		r := newReleaser(store)
		r.Close()
		var began atomic.Int64
		r.Release = func(ctx context.Context, _ string) error {
			began.Add(1)
			<-ctx.Done()
			return ctx.Err()
		}
		r.Open()
		r.hold(make([]int64, 100)...)
		time.Sleep(10*time.Second + 330*time.Millisecond) // no attempt begins or ends then
		r.Add("late", r.Now()+60_000)
		time.Sleep(time.Second)
		if !store.has("late") {
			t.Error("a deadline is not written")
		}
		before := began.Load()
		if r.Close(); began.Load() > before {
			t.Errorf("%d releases begin at the end", began.Load()-before)
		}
	})
}

// TestDeadlinesWhileTheClockIsSet: a clock that was wrong by a month, and is set back, delays no
// release, and makes nobody read the slots of a month.
func TestDeadlinesWhileTheClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &deadlineStore{slots: map[int64]map[string]bool{}}
		r := newReleaser(store)
		r.Close()
		var wrong atomic.Int64
		r.Now = func() int64 { return time.Now().UnixMilli() + wrong.Load() }
		r.Open()
		time.Sleep(10 * time.Second)
		wrong.Store((30 * 24 * time.Hour).Milliseconds())
		time.Sleep(10 * time.Second)
		wrong.Store(0)
		time.Sleep(time.Second)
		r.hold(5000)
		time.Sleep(8 * time.Second)
		if d, ok := r.late()["0"]; !ok || d > 200 {
			t.Errorf("it is released %d ms late, %v", d, ok)
		}
		r.Close()
		if most := int(3 * holds.LateWithin / holds.DeadlineSlot); store.asked > most {
			t.Errorf("%d slots are read at once, want at most %d", store.asked, most)
		}
	})
}

// TestDeadlinesLeaveNothing: ticks without holds take no memory.
func TestDeadlinesLeaveNothing(t *testing.T) {
	d := &holds.Deadlines{}
	for i := range int64(1000) {
		d.Add("id", 1000*i)
		d.Remove("id", 1000*i)
	}
	if n := d.Ticks(); n > 0 {
		t.Errorf("%d ticks are left", n)
	}
}

// TestDeadlinesAreBounded: what does not fit in memory is refused, many ids as well as long ones.
// While the store is down, the changes that it has not seen take no room for others.
func TestDeadlinesAreBounded(t *testing.T) {
	text := strings.Repeat("a", 10_000)
	for _, length := range []int{10, 100, 5000} {
		d := &holds.Deadlines{Memory: 1 << 20, Store: &deadlineStore{down: true}}
		for i := range 100_000 { // which other nodes have made
			d.Remove("other", int64(i))
		}
		n := 0
		for ; !d.IsFull(); n++ {
			d.Add(text[:length+n%5000], int64(n))
		}
		if bytes := n * length; n < 50 || bytes > 1<<20 {
			t.Errorf("it is full with %d ids of %d bytes", n, length)
		}
		d.Remove(text[:length+(n-1)%5000], int64(n-1))
		if d.IsFull() {
			t.Error("it is full after one was removed")
		}
	}
}

// TestAwaitedDeadlinesOutliveTheirNode: once a node has awaited a deadline, another one releases
// the hold, however soon the first one dies. While the store is down, nothing is promised.
func TestAwaitedDeadlinesOutliveTheirNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &deadlineStore{slots: map[int64]map[string]bool{}}
		dead, other := newReleaser(store), newReleaser(store)
		defer other.Close()
		var awaiting sync.WaitGroup
		for i := range 3 * idsAtOnce {
			id, until := fmt.Sprint(i), dead.Now()+4000
			dead.learn(map[string]int64{id: until})
			ticket := dead.Add(id, until)
			awaiting.Go(func() {
				if err := dead.Await(t.Context(), ticket); err != nil || !store.has(id) {
					t.Errorf("%s is kept: %v, %v", id, store.has(id), err)
				}
			})
		}
		awaiting.Wait()
		store.setDown(true)
		ticket := dead.Add("late", dead.Now()+4000)
		dead.Remove("0", dead.until["0"])
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := dead.Await(ctx, ticket); !errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Errorf("without the store: %v", err)
		}
		dead.Kill()
		store.setDown(false)
		other.learn(dead.until)
		time.Sleep(20 * time.Second)
		if late := other.late(); len(late) != 3*idsAtOnce {
			t.Errorf("%d are released", len(late))
		}
	})
}

// TestDeadlinesThatAreNotKept: a deadline for which there is no room can't be awaited, and without
// a store there is nothing to await.
func TestDeadlinesThatAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &deadlineStore{down: true, slots: map[int64]map[string]bool{}}
		full := newReleaser(store)
		defer full.Close()
		full.Memory = 4000
		last := holds.Ticket(0)
		for i := range 20 {
			last = full.Add(fmt.Sprint(i), full.Now()+60_000)
		}
		if err := full.Await(t.Context(), last); !errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Errorf("a full log: %v", err)
		}
		alone := newReleaser(nil)
		defer alone.Close()
		if err := alone.Await(t.Context(), alone.Add("1", alone.Now()+1)); err != nil {
			t.Error(err)
		}
	})
}
