package distinct

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"twotier.dev/twotier/internal/sketch"
	"twotier.dev/twotier/syncer"
)

var (
	errLate = fmt.Errorf("%w: the key's values have not come in time",
		syncer.ErrUnavailable)
	errCold = fmt.Errorf("%w: the store can't be asked for the key's values, and on-cold is deny",
		syncer.ErrUnavailable)
	errRefused = fmt.Errorf("%w: the store refuses to read the key's values",
		syncer.ErrUnavailable)
	errVoided    = errors.New("a reset came before what was added")
	errUnflushed = fmt.Errorf("%w: in memory, but the store did not acknowledge it in time",
		syncer.ErrUnknownOutcome)
)

// Do runs an operation in memory. If this node does not decide about the key, the error is
// syncer.ErrNotOwner, unless inPlace is set: then the node decides in place of the owner.
func (e *Engine) Do(ctx context.Context, op *Op, res *Result, inPlace bool) error {
	now := e.opt.Now()
	ts, err := op.validate(e.space(op.NS).scale, now)
	if err != nil {
		return err
	}
	if len(op.Hashes) > 0 && e.draining.Load() {
		return syncer.ErrClosed
	}
	e.makeRoom()
	t := operation{e: e, op: op, res: res, ts: ts, now: now, inPlace: inPlace}
	ack := op.Ack
	if ack == syncer.AckDefault {
		ack = e.opt.Ack
	}
	for {
		if err := t.run(ctx); err != nil {
			return err
		}
		if t.seq == 0 || ack != syncer.AckStore {
			return nil
		}
		if err := e.awaitFlush(ctx, t.sh, t.en, t.seq); !errors.Is(err, errVoided) {
			return err
		}
		// The store had a reset that this node had not heard of: what is added now is younger.
		if ctx.Err() != nil {
			return errUnflushed
		}
	}
}

// operation is an [Op] in memory on its way.
type operation struct {
	e       *Engine
	op      *Op
	res     *Result
	ts, now int64
	inPlace bool
	// began is when the operation began in this term, after the others were asked: what the store
	// said earlier may lack what they have flushed since.
	began time.Time
	term  int64

	sh  *shard
	en  *entry
	seq uint64 // of the change that was made, 0 if there was none
}

// run runs the operation, when it does not have to wait for the store any more.
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

// try runs the operation, unless it has to wait for the store.
func (t *operation) try(ctx context.Context) (wait <-chan struct{}, err error) {
	e := t.e
	term, err := e.decide(ctx, t.op, t.inPlace)
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
			return nil, syncer.ErrNotOwner
		}
	}
	sh, id := e.lock(t.op)
	defer sh.mu.Unlock()
	en, err := e.entry(sh, id, t.op, len(t.op.Hashes) > 0 || e.opt.Store != nil)
	if err != nil {
		return nil, err
	}
	if en == nil { // a query of what is not there
		en = &entry{ladder: e.space(t.op.NS).scale}
	}
	t.sh, t.en, en.used = sh, en, time.Now()
	t.res.Degraded = e.isDown() || en.failed != nil && en.dirty()
	if !en.loaded && en.busy == nil && en.empty() && !t.inPlace {
		en.term = term // nothing is older, and it will be compared in this term
	}
	if t.needsStore(term) && !t.warm(term) {
		failed := en.failed != nil && !en.tried.Before(t.began)
		if !e.isDown() && !failed {
			return e.compare(en), nil
		}
		if err := t.withoutStore(failed); err != nil {
			return nil, err
		}
		e.compare(en) // for the next ones
		t.res.Degraded = true
	}
	return nil, t.decide(sh, en)
}

// withoutStore returns an error if nothing may be decided by what is in memory alone. failed says
// that the store was asked for this operation. Where it refused, it can be reached, and on-cold
// does not apply.
func (t *operation) withoutStore(failed bool) error {
	switch {
	case len(t.op.Limits) == 0:
		return nil
	case failed && errors.Is(t.en.failed, syncer.ErrRefused):
		return fmt.Errorf("%w: %w", errRefused, t.en.failed)
	case t.e.space(t.op.NS).OnCold == syncer.OnColdDeny:
		return errCold
	}
	return nil
}

// needsStore reports whether the operation relies on what the store has: to count, or, where there
// may have been a reset since the entry was made that it does not know of, so that what is added is
// not taken for older than that.
func (t *operation) needsStore(term int64) bool {
	return t.op.reads() || len(t.en.doubts) > 0 || !t.inPlace && t.en.term != term
}

// warm reports whether all that the store has of the key is in memory. Where this node is not the
// owner, others write meanwhile.
func (t *operation) warm(term int64) bool {
	en := t.en
	switch {
	case t.e.opt.Store == nil:
		return true
	case !en.loaded || len(en.doubts) > 0:
		return false
	case en.compared.After(t.began):
		en.term = term
		return true
	case t.inPlace:
		return time.Since(en.compared) < t.e.opt.FlushInterval
	}
	return en.term == term
}

// decide compares, adds, and counts.
func (t *operation) decide(sh *shard, en *entry) error {
	e, op, res := t.e, t.op, t.res
	defer e.answered(sh, en)
	en.prune(t.now)
	if !allows(&sh.union, en, op, res, t.now) {
		res.fill(&sh.union, en, op, t.ts, t.now)
		return nil
	}
	if len(op.Hashes) > 0 {
		if e.bytes.Load() > e.opt.MaxMemory/4*5 {
			return errFull
		}
		if en.add(op.Hashes, t.ts, t.now) {
			e.weigh(en)
			if t.seq = en.seq; e.opt.Store == nil {
				t.seq, en.flushed = 0, en.seq
			}
			sh.note(en)
		} else if en.dirty() {
			t.seq = en.seq // they may be among what the store lacks
		}
	}
	res.fill(&sh.union, en, op, t.ts, t.now)
	return nil
}

// allows compares the limits with what the windows would then have.
func allows(u *sketch.Union, en *entry, op *Op, res *Result, now int64) bool {
	res.Over, res.Allowed, res.RetryAfter = res.Over[:0], true, 0
	for i, l := range op.Limits {
		if en.count(u, l.Window, now, now, op.Hashes).Values <= l.Max {
			continue
		}
		res.Over = append(res.Over, i)
		if slices.Contains(op.Shadow, i) {
			continue
		}
		res.Allowed = false
		if res.RetryAfter >= 0 {
			res.after(en.retryAfter(u, l, now, op.Hashes))
		}
	}
	return res.Allowed
}

// after notes that a limit refuses for so many milliseconds, or for ever if that is negative.
func (res *Result) after(ms int64) {
	if res.RetryAfter = max(res.RetryAfter, ms); ms < 0 {
		res.RetryAfter = ms
	}
}

// fill counts what the windows have.
func (res *Result) fill(u *sketch.Union, en *entry, op *Op, ts, now int64) {
	res.Counts = res.Counts[:0]
	if res.Source = syncer.SourceMemory; res.Degraded {
		res.Source = syncer.SourceDegraded
	}
	for _, l := range op.Limits {
		res.Counts = append(res.Counts, en.count(u, l.Window, now, now, nil))
	}
	at := now
	if op.TS != 0 {
		at = ts
	}
	for _, w := range op.Windows {
		res.Counts = append(res.Counts, en.count(u, w, at, now, nil))
	}
}

// compare starts to compare an entry of a locked shard with the store, unless that is under way,
// and returns what is closed when it is over.
func (e *Engine) compare(en *entry) <-chan struct{} {
	if en.busy == nil {
		en.busy = make(chan struct{})
		if !e.spawn(func() { e.load(en) }) {
			en.failed, en.tried = syncer.ErrClosed, time.Now()
			close(en.busy)
			over := en.busy
			en.busy = nil
			return over
		}
	}
	return en.busy
}

// awaitFlush waits until the store has a change. The error is errVoided if a reset has made the
// change void.
func (e *Engine) awaitFlush(ctx context.Context, sh *shard, en *entry, seq uint64) error {
	for failures := 0; ; {
		sh.mu.Lock()
		switch {
		case en.voided >= seq:
			sh.mu.Unlock()
			return errVoided
		case en.flushed >= seq:
			sh.mu.Unlock()
			return nil
		}
		over := e.compare(en)
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
