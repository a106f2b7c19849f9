package distinct

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer"
)

var (
	errLate = fmt.Errorf("%w: the key's values have not come in time",
		twotier.ErrUnavailable)
	errCold = fmt.Errorf("%w: the store can't be asked for the key's values, and on-cold is deny",
		twotier.ErrUnavailable)
	errRefused = fmt.Errorf("%w: the store refuses to read the key's values",
		twotier.ErrUnavailable)
	errUnflushed = fmt.Errorf("%w: in memory, but the store did not acknowledge it in time",
		twotier.ErrUnknownOutcome)
)

// Do runs an operation in memory. If this node does not own the key, the error is
// twotier.ErrNotOwner, unless inPlace is set: then the node decides in place of the owner.
func (e *Engine) Do(ctx context.Context, op *Op, res *Result, inPlace bool) error {
	now := e.opt.Now()
	if err := op.validate(e.namespace(op.NS).Ladder, now); err != nil {
		return err
	}
	if len(op.Hashes) > 0 && e.draining.Load() {
		return twotier.ErrClosed
	}
	e.makeRoom()
	t := operation{e: e, op: op, res: res, now: now, inPlace: inPlace}
	if err := t.run(ctx); err != nil {
		return err
	}
	if t.seq == 0 || cmp.Or(op.Ack, e.opt.Ack) != twotier.AckStore {
		return nil
	}
	return e.awaitFlush(ctx, t.sh, t.en, t.seq)
}

// operation is an [Op] in progress in memory.
type operation struct {
	e       *Engine
	op      *Op
	res     *Result
	now     int64
	inPlace bool
	// began is the start of the operation in this term, after the other nodes were asked: an
	// earlier reply of the store may lack the values that they have flushed since.
	began time.Time
	term  int64

	sh  *shard
	en  *entry
	seq uint64 // of the change made, 0 if there was none
}

// run runs the operation as soon as it does not have to wait for the store.
func (t *operation) run(ctx context.Context) error {
	for t.seq = 0; ; {
		wait, err := t.try(ctx)
		if err != nil || wait == nil {
			return err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return errLate
		}
	}
}

// try runs the operation, or returns a channel to wait on if it needs the store first.
func (t *operation) try(ctx context.Context) (wait <-chan struct{}, err error) {
	e := t.e
	term, err := e.decidingTerm(ctx, t.op, t.inPlace)
	if err != nil {
		return nil, err
	}
	if t.began.IsZero() || t.term != term {
		t.began, t.term = time.Now(), term
	}
	e.deciding.RLock()
	defer e.deciding.RUnlock()
	if !t.inPlace && e.owner != nil {
		if now, decides := e.owner.Term(e.Partition(t.op)); !decides || now != term {
			return nil, twotier.ErrNotOwner
		}
	}
	sh, id := e.lock(t.op)
	defer sh.mu.Unlock()
	en, err := e.entry(sh, id, t.op, len(t.op.Hashes) > 0 || e.opt.Store != nil)
	if err != nil {
		return nil, err
	}
	if en == nil { // a query of a missing key
		en = &entry{space: e.namespace(t.op.NS)}
	}
	t.sh, t.en, en.used = sh, en, time.Now()
	t.res.Degraded = e.isDown() || en.failed != nil && en.dirty()
	if t.op.needsPast() && !t.isWarm(term) {
		failed := en.failed != nil && !en.tried.Before(t.began)
		if !e.isDown() && !failed {
			return e.startCompare(en), nil
		}
		if err := t.memoryOnlyError(failed); err != nil {
			return nil, err
		}
		e.startCompare(en) // for later operations
		t.res.Degraded = true
	}
	return nil, t.decide(sh, en)
}

// memoryOnlyError returns an error if memory alone must not decide. failed means that the store was
// asked for this operation. A store that refused can be reached, so on-cold does not apply.
func (t *operation) memoryOnlyError(failed bool) error {
	switch {
	case len(t.op.Limits) == 0:
		return nil
	case failed && errors.Is(t.en.failed, syncer.ErrRefused):
		return fmt.Errorf("%w: %w", errRefused, t.en.failed)
	case t.e.namespace(t.op.NS).OnCold == syncer.OnColdDeny:
		return errCold
	}
	return nil
}

// isWarm reports whether memory holds everything that the store has of the key. On a node that is
// not the owner, other nodes keep writing to the store.
func (t *operation) isWarm(term int64) bool {
	en := t.en
	switch {
	case t.e.opt.Store == nil:
		return true
	case !en.loaded:
		return false
	case en.compared.After(t.began):
		en.term = term
		return true
	case t.inPlace:
		return time.Since(en.compared) < t.e.opt.FlushInterval
	}
	return en.term == term
}

// decide checks the limits, adds the values, and counts.
func (t *operation) decide(sh *shard, en *entry) error {
	e, op, res := t.e, t.op, t.res
	en.prune(t.now)
	if !allows(en, op, res, t.now) {
		res.countLimits(en, op, t.now)
		res.countWindows(en, op, t.now)
		return nil
	}
	if len(op.Hashes) > 0 {
		if e.bytes.Load() > e.opt.MaxMemory/4*5 {
			return errFull
		}
		if en.add(op.Hashes, op.TS, t.now) {
			e.updateMemory(en)
			if t.seq = en.seq; e.opt.Store == nil {
				t.seq, en.flushed = 0, en.seq
			}
			sh.updateDirty(en)
		} else if en.dirty() {
			t.seq = en.seq // the values may be among the unflushed changes
		}
	}
	res.countWindows(en, op, t.now)
	return nil
}

// allows reports whether the windows, including the new values, stay within the limits. It sets the
// verdict in res, and the counts of the limits as they are with the values.
func allows(en *entry, op *Op, res *Result, now int64) bool {
	res.Over, res.Allowed, res.RetryAfter = res.Over[:0], true, 0
	res.Counts = res.Counts[:0]
	for i, l := range op.Limits {
		c := en.count(l.Window, 0, now, op.Hashes)
		if res.Counts = append(res.Counts, c); c.Count <= l.Max {
			continue
		}
		res.Over = append(res.Over, i)
		if slices.Contains(op.Shadow, i) {
			continue
		}
		res.Allowed = false
		if res.RetryAfter >= 0 {
			res.setRetryAfter(en.values.RetryAfter(l.Window, l.Max, now, op.Hashes))
		}
	}
	return res.Allowed
}

// setRetryAfter records that a limit refuses for ms milliseconds, or forever if ms is negative.
func (res *Result) setRetryAfter(ms int64) {
	if res.RetryAfter = max(res.RetryAfter, ms); ms < 0 {
		res.RetryAfter = ms
	}
}

// countLimits counts without the values of a refused operation.
func (res *Result) countLimits(en *entry, op *Op, now int64) {
	for i, l := range op.Limits {
		res.Counts[i] = en.count(l.Window, 0, now, nil)
	}
}

// countWindows counts the values in the windows that are no limits', and completes the result.
func (res *Result) countWindows(en *entry, op *Op, now int64) {
	if res.Source = twotier.SourceMemory; res.Degraded {
		res.Source = twotier.SourceDegraded
	}
	for _, w := range op.Windows {
		res.Counts = append(res.Counts, en.count(w, op.TS, now, nil))
	}
}

// startCompare starts to compare an entry of a locked shard with the store, unless a comparison is
// under way. It returns a channel that is closed at the end of the comparison.
func (e *Engine) startCompare(en *entry) <-chan struct{} {
	if en.busy == nil {
		en.busy = make(chan struct{})
		if !e.spawn(func() { e.compareInTurn(en) }) {
			en.failed, en.tried = twotier.ErrClosed, time.Now()
			close(en.busy)
			over := en.busy
			en.busy = nil
			return over
		}
	}
	return en.busy
}

// awaitFlush waits until the store has a change.
func (e *Engine) awaitFlush(ctx context.Context, sh *shard, en *entry, seq uint64) error {
	for failures := 0; ; {
		sh.mu.Lock()
		if en.flushed >= seq {
			sh.mu.Unlock()
			return nil
		}
		over := e.startCompare(en)
		sh.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return errUnflushed
		}
		sh.mu.Lock()
		failed := en.failed
		sh.mu.Unlock()
		if failed != nil {
			if failures++; failures > 1 {
				return fmt.Errorf("%w: %v", errUnflushed, failed)
			}
		}
	}
}
