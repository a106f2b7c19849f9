package faultstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"twotier.dev/twotier/syncer"
)

// ListKeys implements syncer.Lister with the wrapped store, if that implements it. The faults are
// the same as for a read-only round.
func (s *Store) ListKeys(ctx context.Context, lists []*syncer.KeyList) {
	err := s.wait(ctx)
	for _, l := range lists {
		if err == nil {
			s.listKeys(ctx, l)
		} else {
			l.Err = err
		}
	}
	time.Sleep(time.Microsecond) // lets overlapping calls overlap
	if err := s.wait(ctx); err != nil {
		for _, l := range lists {
			l.Err = err
		}
	}
}

func (s *Store) listKeys(ctx context.Context, l *syncer.KeyList) {
	inner, ok := s.opt.Store.(syncer.Lister)
	switch fault := s.listFault(l); {
	case !ok:
		l.Err = fmt.Errorf("faultstore: %w", errors.ErrUnsupported)
	case fault == Hang:
		<-ctx.Done()
		l.Err = ctx.Err()
	case fault != None && fault != KeyRefused && fault != WriteRefused:
		l.Err = ErrLost
	default:
		inner.ListKeys(ctx, []*syncer.KeyList{l})
	}
}

func (s *Store) listFault(l *syncer.KeyList) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.down:
		return RequestLost
	case s.opt.Decide != nil:
		return s.opt.Decide(&syncer.Round{Partition: l.Partition})
	}
	return None
}
