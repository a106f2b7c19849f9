package simtest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

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
