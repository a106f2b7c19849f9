package syncer

import (
	"context"
	"errors"
	"time"
)

// lockWarm returns with the partitions of a call locked and all its keys in memory or known not to exist, or marked as
// blind where the store can't be asked in time.
func (c *Counter) lockWarm(ctx context.Context, k *call) error {
	var timeout <-chan time.Time
	for {
		k.lock()
		if k.elsewhere() {
			k.unlock()
			return ErrElsewhere
		}
		if k.ready() {
			return nil
		}
		k.ask()
		k.unlock()
		if timeout == nil {
			timer := time.NewTimer(c.opt.LoadTimeout)
			defer timer.Stop()
			timeout = timer.C
		}
		for i := range k.targets {
			if err := k.targets[i].await(ctx, timeout); err != nil {
				return err
			}
		}
		if c.closed.Load() {
			return ErrClosed
		}
	}
}

// elsewhere reports whether another counter decides about any of the keys.
func (k *call) elsewhere() bool {
	for _, p := range k.parts {
		if p.refuses(k.op.Foreign) {
			return true
		}
	}
	return false
}

// ready reports whether every key can be judged now.
func (k *call) ready() bool {
	for i := range k.targets {
		if !k.targets[i].known() {
			return false
		}
	}
	return true
}

// known reports whether the target needs no load. Its partition is locked.
func (t *target) known() bool {
	r := t.p.find(t.hash, t.ns, t.check.Key)
	if r == 0 {
		return t.absent || t.blind
	}
	e := t.p.arena.entry(r)
	e.setUsed(max(e.used(), 1))
	switch {
	case t.blind:
		return true
	case e.has(flagShared):
		return t.loaded || t.p.warm(e) && t.p.sharedRecent(t)
	case t.p.mode == modeForeign:
		return t.loaded || t.p.warm(e) && t.p.recent()
	}
	return t.p.warm(e)
}

// ask registers the keys that are not known to be loaded. The partitions are locked.
func (k *call) ask() {
	for i := range k.targets {
		t := &k.targets[i]
		if t.known() {
			continue
		}
		if t.p.blind() {
			t.blind = true
			continue
		}
		if t.want, t.ahead = t.ahead, nil; t.want == nil {
			t.want = t.p.ask(t.hash, t.ns, t.check.Key)
		}
	}
}

// await waits until the target's key is loaded or can't be.
func (t *target) await(ctx context.Context, timeout <-chan time.Time) error {
	for t.want != nil {
		t.p.mu.Lock()
		w := t.want
		if w.done {
			t.want, t.absent, t.loaded = nil, !w.exists, true
			err := w.err
			switch {
			case errors.Is(err, ErrElsewhere): // the partition was about to be handed over: look again who decides
				t.absent, t.loaded = false, false
			case err != nil:
				t.blind, t.absent, t.loaded = true, false, false
			}
			t.p.mu.Unlock()
			if errors.Is(err, ErrOverload) {
				return err
			}
			return nil
		}
		settled := t.p.wait()
		t.p.mu.Unlock()
		t.p.lane.kick(t.p)
		select {
		case <-settled:
		case <-timeout:
			t.want, t.blind = nil, true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// askAhead asks for all keys of a batch that have to be loaded, so that they are loaded together. It returns what it asked for, check by
// check, or nil if all are known.
func (c *Counter) askAhead(ops []Op) (ahead []*want) {
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	k.begin(nil, 0)
	var asked []*partition
	var places [atOnce]int
	look := func() {
		k.order()
		k.lock()
		k.touch(true)
		for i := range k.targets {
			t := &k.targets[i]
			if t.known() || t.p.blind() {
				continue
			}
			if ahead == nil {
				ahead = make([]*want, countChecks(ops))
			}
			ahead[places[i]] = t.p.ask(t.hash, t.ns, t.check.Key)
			asked = append(asked, t.p)
		}
		k.unlock()
		k.begin(nil, 0)
	}
	at := 0
	for i := range ops {
		for j := range ops[i].Checks {
			check := &ops[i].Checks[j]
			if at++; ops[i].Kind == Add && len(check.Limits) == 0 {
				continue
			}
			n := len(k.targets)
			places[n] = at - 1
			k.targets = append(k.targets, target{})
			c.locate(&k.targets[n], check)
			if k.parts = append(k.parts, k.targets[n].p); n+1 == atOnce {
				look()
			}
		}
	}
	look()
	for _, p := range asked {
		p.lane.kick(p)
	}
	return ahead
}

func countChecks(ops []Op) (n int) {
	for i := range ops {
		n += len(ops[i].Checks)
	}
	return n
}
