package syncer

import (
	"context"
	"fmt"
)

// commit waits until all tickets up to this one are acknowledged, and returns what was acknowledged
// last.
func (p *partition) commit(ctx context.Context, ticket uint64) (Mark, error) {
	return p.commitIf(ctx, ticket, func() bool { return true })
}

// commitIf is commit, but returns errFailing when it would have to wait although a condition, which
// is looked at under the partition's lock, does not hold.
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

// committed returns what was acknowledged last if that covers a ticket. If that may still come, it
// returns when to look again.
func (p *partition) committed(ticket uint64,
	worthwhile func() bool) (mark Mark, news <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.dirty.handedOff(ticket):
		return Mark{}, nil, errHandedOff
	case p.dirty.ackedTicket >= ticket && p.outbox.importsSent():
		// What was taken over from others draws no tickets. It goes before all else.
		return p.outbox.mark, nil, nil
	case p.stopped:
		return Mark{}, nil, errStopped
	case !worthwhile():
		return Mark{}, nil, errFailing
	}
	p.dirty.due = true
	return Mark{}, p.settled.wait(), nil
}

// stopWaiting ends the wait of everybody: nothing is settled any more.
func (p *partition) stopWaiting() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.lookAgain()
}

// lastTicket is that of what was counted last.
func (p *partition) lastTicket() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dirty.lastTicket
}

// flushUpTo has what was counted up to a ticket flushed without waiting for the clock.
func (p *partition) flushUpTo(ticket uint64) {
	p.mu.Lock()
	flushed := p.dirty.ackedTicket >= ticket
	p.dirty.due = p.dirty.due || !flushed
	p.mu.Unlock()
	if !flushed {
		p.flusher.schedule(p)
	}
}
