package syncer

import (
	"context"
	"fmt"
)

// commit waits until all tickets up to this one are acknowledged. It returns the mark that was
// acknowledged last.
func (p *partition) commit(ctx context.Context, ticket uint64) (Mark, error) {
	return p.commitIf(ctx, ticket, func() bool { return true })
}

// commitIf is commit, but returns errFailing if it would have to wait while worthwhile returns
// false. worthwhile is called with the partition locked.
func (p *partition) commitIf(ctx context.Context, ticket uint64,
	worthwhile func() bool) (Mark, error) {
	for {
		mark, news, err := p.committed(ticket, worthwhile)
		if news == nil {
			return mark, err
		}
		p.flusher.schedule(p)
		select {
		case <-news:
		case <-ctx.Done():
			return Mark{},
				fmt.Errorf("%w: counted in memory, but the store has not acknowledged it in time",
					ErrUnknownOutcome)
		}
	}
}

// committed returns the mark that was acknowledged last if that covers a ticket. If the
// acknowledgement may still come, it returns a channel that is closed when it is time to look
// again.
func (p *partition) committed(ticket uint64,
	worthwhile func() bool) (mark Mark, news <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.dirty.handedOff(ticket):
		return Mark{}, nil, errHandedOff
	case p.dirty.ackedTicket >= ticket && p.outbox.importsSent():
		// Rounds taken over from other counters draw no tickets. They are sent before all others,
		// so they must be acknowledged too.
		return p.outbox.mark, nil, nil
	case p.stopped:
		return Mark{}, nil, errStopped
	case !worthwhile():
		return Mark{}, nil, errFailing
	}
	p.dirty.due = true
	return Mark{}, p.settled.wait(), nil
}

// stopWaiting ends all waits: nothing will be settled any more.
func (p *partition) stopWaiting() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.wakeWaiters()
}

// lastTicket returns the ticket of the latest count.
func (p *partition) lastTicket() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dirty.lastTicket
}

// flushUpTo flushes everything up to a ticket without waiting for the clock.
func (p *partition) flushUpTo(ticket uint64) {
	p.mu.Lock()
	flushed := p.dirty.ackedTicket >= ticket
	p.dirty.due = p.dirty.due || !flushed
	p.mu.Unlock()
	if !flushed {
		p.flusher.schedule(p)
	}
}
