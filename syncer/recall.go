package syncer

import (
	"context"
	"fmt"
	"slices"
)

// errLent refuses to take back while others may have counted what is to be taken back.
var errLent = fmt.Errorf("%w: other nodes count this key for its owner, which does not know yet "+
	"what there is to take back", ErrUnavailable)

// TakesBack reports whether the operation takes back what was counted before.
func (op *Op) TakesBack() bool { return op.Kind == Add && op.Checks[0].N < 0 }

// Lent reports whether other counters may have counted a key of this one, by a loan, and this one
// does not see it yet. Then there may be more to take back than it knows: see [Op.Recalled].
func (c *Counter) Lent(check *Check) bool {
	var t target
	c.locate(&t, check)
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	return t.p.shared.lentOut(&t)
}

// lentOut reports whether others may have counted a key, and this counter does not see it yet.
func (s sharedKeys) lentOut(t *target) bool {
	if len(s) == 0 {
		return false
	}
	k := s.find(t)
	return k != nil && slices.ContainsFunc(k.loans, func(l loan) bool {
		return l.running() || l.unseen() > 0
	})
}

// CatchUp returns once the store has all that this counter has counted of a key until now, and this
// counter, if it shares the key with others, has seen what they had stored when it was called.
func (c *Counter) CatchUp(ctx context.Context, check *Check) error {
	var t target
	c.locate(&t, check)
	t.p.mu.Lock()
	if t.p.shared.find(&t) != nil {
		t.p.enlistShared(c.opt.Now())
	}
	ticket := t.p.dirty.lastTicket
	t.p.mu.Unlock()
	t.p.flushUpTo(ticket)
	if _, err := t.p.commit(ctx, ticket); err != nil {
		return fmt.Errorf("%w: what was counted is not in the store yet: %v", ErrUnavailable, err)
	}
	if t.parked() {
		return fmt.Errorf("%w: the store refuses the key", ErrUnavailable)
	}
	return nil
}
