package syncer

import (
	"cmp"
	"context"
	"fmt"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/store"
)

// countedKey is a key that an operation has counted, while the operation waits for the store.
type countedKey struct {
	hash    uint32
	ns, key []byte
	at      int // position of the operation in its batch
	// err is set when the ticket is acknowledged, if the store nevertheless lacks the counts of
	// this key.
	err error
}

// awaitAck waits until all tickets up to this one are acknowledged. It returns the latest
// acknowledged mark, and an error if the store lacks counts of these keys by then.
func (p *partition) awaitAck(ctx context.Context, ticket uint64,
	keys ...countedKey) (store.Mark, error) {
	mark, err := p.awaitAckIf(ctx, ticket, keys, func() bool { return true })
	for i := range keys {
		err = cmp.Or(err, keys[i].err)
	}
	return mark, err
}

// awaitAckIf is awaitAck, but leaves the errors of single keys to the caller, and returns
// errFailing if it would have to wait while worthwhile returns false. worthwhile is called with the
// partition locked.
func (p *partition) awaitAckIf(ctx context.Context, ticket uint64, keys []countedKey,
	worthwhile func() bool) (store.Mark, error) {
	for {
		mark, news, err := p.ackedMark(ticket, keys, worthwhile)
		if news == nil {
			return mark, err
		}
		p.flusher.schedule(p)
		select {
		case <-news:
		case <-ctx.Done():
			return store.Mark{},
				fmt.Errorf("%w: counted in memory, but the store has not acknowledged it in time",
					twotier.ErrUnknownOutcome)
		}
	}
}

// ackedMark returns the latest acknowledged mark if it covers a ticket, and sets the errors of the
// keys. If the acknowledgement may still come, it returns a channel that is closed when the caller
// should look again.
func (p *partition) ackedMark(ticket uint64, keys []countedKey,
	worthwhile func() bool) (mark store.Mark, news <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.dirty.HandedOff(ticket):
		return store.Mark{}, nil, errHandedOff
	case p.dirty.AckedTicket >= ticket && p.outbox.ImportsSent():
		// Rounds taken over from other counters draw no tickets. They are sent before all others,
		// so they must be acknowledged too.
		for i := range keys { // now: after a handoff of the partition they are unknown
			keys[i].err = p.refusalError(keys[i].hash, keys[i].ns, keys[i].key, ticket)
		}
		return p.outbox.Mark, nil, nil
	case p.phase == stopped:
		return store.Mark{}, nil, errStopped
	case !worthwhile():
		return store.Mark{}, nil, errFailing
	}
	p.dirty.MakeDue()
	return store.Mark{}, p.settled.nextNews(), nil
}

// endAllWaits ends all waits, because nothing will be settled any more.
func (p *partition) endAllWaits() {
	p.mu.Lock()
	p.phase = stopped
	p.mu.Unlock()
	p.wakeWaiters()
}

// lastTicket returns the ticket of the latest count.
func (p *partition) lastTicket() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dirty.LastTicket
}

// flushUpTo flushes everything up to a ticket without waiting for the clock.
func (p *partition) flushUpTo(ticket uint64) {
	p.mu.Lock()
	flushed := p.dirty.AckedTicket >= ticket
	if !flushed {
		p.dirty.MakeDue()
	}
	p.mu.Unlock()
	if !flushed {
		p.flusher.schedule(p)
	}
}
