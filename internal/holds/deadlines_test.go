package holds_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/holds"
)

// deadlineStore keeps deadlines while it is up.
type deadlineStore struct {
	mu    sync.Mutex
	down  bool
	slots map[int64]map[string]bool
}

var errDown = errors.New("it is down")

func (s *deadlineStore) ChangeDeadlines(_ context.Context, add,
	remove map[int64][]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
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

func (s *deadlineStore) Deadlines(_ context.Context, slots []int64) (all [][]string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errDown
	}
	for _, slot := range slots {
		all = append(all, slices.Collect(maps.Keys(s.slots[slot])))
	}
	return all, nil
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
			r.Close(t.Context())
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
		dead.Close(t.Context())
		other.learn(dead.until)
		time.Sleep(59*time.Second - time.Millisecond)
		if _, early := other.late()["1"]; early {
			t.Errorf("it is released before its end")
		}
		other.Close(t.Context())
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
		next.Close(t.Context())
	})
}

// TestDeadlinesAreBounded: what does not fit in memory is refused, and the changes that the store
// has not seen are bounded.
func TestDeadlinesAreBounded(t *testing.T) {
	store := &deadlineStore{slots: map[int64]map[string]bool{}}
	store.setDown(true)
	d := &holds.Deadlines{Now: func() int64 { return 1 }, Store: store}
	for i := range int64(holds.MaxDeadlines) {
		if d.IsFull() {
			t.Fatalf("it is full with %d", i)
		}
		d.Add(fmt.Sprint(i), i)
	}
	if !d.IsFull() {
		t.Error("it is not full")
	}
	d.Remove("5", 5)
	if d.IsFull() {
		t.Error("it is full after one was removed")
	}
}
