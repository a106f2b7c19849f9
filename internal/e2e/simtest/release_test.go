package simtest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
)

// lastsReleased bounds how long a hold lasts that is released at its end, so that a schedule does
// not have to wait for long.
const lastsReleased = 15 * time.Second

// due is the part of Redis that has the deadlines of holds.
type due struct {
	mu    sync.Mutex
	slots map[int64]map[string]bool
	seen  map[string]bool // the ids that it has, or had until they were removed
	lost  bool            // it has lost deadlines
}

// lose makes Redis lose all deadlines. The nodes that made the holds still have theirs.
func (d *due) lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.slots)
	clear(d.seen)
	d.lost = true
}

// saw reports whether the deadline of a hold outlived the node that made it, and whether Redis may
// have lost it.
func (d *due) saw(id string) (saw, lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[id], d.lost
}

// deadlines is a process's path to the deadlines in Redis.
type deadlines struct{ p *proc }

func (s deadlines) reach(ctx context.Context) error {
	if s.p.dead.Load() || s.p.store.Down() || s.p.toRedis(ctx) != nil {
		return fmt.Errorf("%w: no answer", twotier.ErrUnavailable)
	}
	return nil
}

// ChangeDeadlines implements holds.DeadlineStore, as Deadlines does.
func (s deadlines) ChangeDeadlines(ctx context.Context, add, remove map[int64][]string) error {
	if err := s.reach(ctx); err != nil {
		return err
	}
	s.change(add, remove)
	return s.reach(ctx)
}

func (s deadlines) change(add, remove map[int64][]string) {
	d := &s.p.w.due
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.p.dead.Load() {
		return
	}
	if d.slots == nil {
		d.slots, d.seen = map[int64]map[string]bool{}, map[string]bool{}
	}
	for slot, ids := range add {
		if d.slots[slot] == nil {
			d.slots[slot] = map[string]bool{}
		}
		for _, id := range ids {
			d.slots[slot][id], d.seen[id] = true, true
		}
	}
	for slot, ids := range remove {
		for _, id := range ids {
			delete(d.slots[slot], id)
		}
	}
}

func (s deadlines) Deadlines(ctx context.Context, slots []int64,
	visit func(slot int64, ids []string)) error {
	if err := s.reach(ctx); err != nil {
		return err
	}
	d := &s.p.w.due
	d.mu.Lock()
	ids := make([][]string, len(slots))
	for i, slot := range slots {
		ids[i] = slices.Sorted(maps.Keys(d.slots[slot]))
	}
	d.mu.Unlock()
	if err := s.reach(ctx); err != nil {
		return err
	}
	for i, slot := range slots {
		visit(slot, ids[i])
	}
	return nil
}

// releaser executes the releases of a process, which stands still while it is suspended.
func (p *proc) releaser() ask.Service { return releaser{p.node, p} }

type releaser struct {
	ask.Service
	p *proc
}

func (r releaser) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	if err := r.p.w.net.Awake(ctx, r.p.ip); err != nil {
		return err
	}
	return r.Service.Do(ctx, op, res)
}

func (r releaser) DoAll(ctx context.Context, ops []twotier.Op, results []twotier.Result) {
	if err := r.p.w.net.Awake(ctx, r.p.ip); err != nil {
		for i := range results {
			results[i].Err = fmt.Errorf("%w: suspended", twotier.ErrUnavailable)
		}
		return
	}
	r.Service.DoAll(ctx, ops, results)
}

// isOnQuota reports whether an acquire has a key with a limit on a calendar period, of which no
// events are taken back.
func (op *heldOp) isOnQuota() bool {
	return slices.ContainsFunc(op.Checks, func(c heldCheck) bool {
		return strings.HasPrefix(c.Key, "quota")
	})
}

// closeHolds stops releasing. A hold whose deadline only this process knew may stay as it is,
// unless Redis has acknowledged it.
func (p *proc) closeHolds() {
	if p.holds == nil {
		return
	}
	p.holds.Close()
	s := &p.w.holds
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.list {
		if one.maker != p.id {
			continue
		}
		if saw, lost := p.w.due.saw(one.id); !saw {
			one.forgot = true
			if one.releases && one.stored && !lost {
				p.w.t.Errorf("%s: node %s ends with the acknowledged deadline of a hold",
					one.keys[0].key, p.id)
			}
		}
	}
}

// awaitReleases waits until all holds have ended, and expects that those were released that were
// neither settled nor renewed.
func (w *world) awaitReleases() {
	if !w.plan.holds {
		return
	}
	// A renewal of unknown outcome may have moved the end of a hold. Deadlines of dead nodes are
	// looked up every two seconds, and 3 s after the slot of 2 s; a failure is tried again.
	time.Sleep(lastsReleased + lastsReleased/64 + w.plan.apart() + 15*time.Second)
	s := &w.holds
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.list {
		if !one.releases {
			continue
		}
		if one.over = true; !one.forgot && !one.lost && one.isUntouched() {
			s.sums.released++
		}
		one.book(w)
	}
}

// isUntouched reports whether nobody has tried to settle or renew a hold.
func (h *held) isUntouched() bool {
	return !slices.ContainsFunc(h.attempts, func(a *attempt) bool { return !a.void })
}

// amounts returns the final number of each check of a hold, if those of some keys are final:
// several checks of a key share its number. The others stay as they are.
func (h *held) amounts(final map[string]int64) []int64 {
	list := make([]int64, len(h.keys))
	for i, k := range h.keys {
		left, settled := final[k.key]
		last := !slices.ContainsFunc(h.keys[i+1:], func(o *heldKey) bool { return o.key == k.key })
		switch {
		case !settled:
			list[i] = k.n
		case last:
			list[i] = left
		default:
			list[i] = min(k.n, left)
			final[k.key] = left - list[i]
		}
	}
	return list
}

// settleAfterReset holds a key of its own, resets the key and settles the hold, each at another
// process. If all of that is done, the count is the final number.
func (h *holder) settleAfterReset(p *proc) {
	w, began := h.w, time.Now()
	key, n, final := fmt.Sprint("afterreset", h.rnd.Int64()), 1+h.rnd.Int64N(9), h.rnd.Int64N(9)
	w.ledger.of(key, func(*account) {}) // as in client.do
	var got heldAnswer
	did := func() bool {
		status, err := h.post(p, "/v1/acquire", &heldOp{Hold: "30s",
			Checks: []heldCheck{checkOf(key, n)}}, &got)
		if err != nil || status != http.StatusOK || got.Hold == "" {
			return false
		}
		time.Sleep(h.upTo(2 * w.plan.pause))
		if p = w.pick(h.rnd); p == nil || h.resetKey(p, key) != nil || p.dead.Load() {
			return false
		}
		time.Sleep(h.upTo(2 * w.plan.pause))
		if p = w.pick(h.rnd); p == nil {
			return false
		}
		var answer struct{ Settled bool }
		status, err = h.post(p, "/v1/settle", map[string]any{"hold": got.Hold, "n": final}, &answer)
		return err == nil && status == http.StatusOK && answer.Settled
	}()
	w.journal.note("client: %s held with %d, reset, settled with %d: %v", key, n, final, did)
	if did && !w.isDivided() && !w.lostSince(began) {
		w.ledger.acknowledge(key, final, true)
		return
	}
	w.ledger.of(key, func(a *account) { a.more += n + final })
}

// resetKey resets a key at a process.
func (h *holder) resetKey(p *proc, key string) error {
	defer h.w.enter(p)()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return p.node.Reset(ctx, nil, []byte(key))
}
