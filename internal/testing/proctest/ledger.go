package proctest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Outcome is the state of a request as its client knows it.
type Outcome uint8

// The outcomes: the request was carried out, it certainly was not, or that is unknown.
const (
	Acked Outcome = iota
	Refused
	Unknown
)

// Account is the number of events that were sent for one key, in all and by outcome.
type Account struct {
	Sent, Acked, Failed, Unknown int64
}

// Ledger records the events that all workers sent, and their outcomes.
type Ledger struct {
	mu   sync.Mutex
	keys map[string]*Account
	// Answers counts requests with any outcome, and Events acknowledged events.
	Answers, Events atomic.Int64
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{keys: map[string]*Account{}} }

func (l *Ledger) of(key string) *Account {
	a := l.keys[key]
	if a == nil {
		a = &Account{}
		l.keys[key] = a
	}
	return a
}

// Sending records that n events are about to be sent.
func (l *Ledger) Sending(key string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(key).Sent += n
}

// Note records the outcome of n events.
func (l *Ledger) Note(key string, n int64, o Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(key)
	switch o {
	case Acked:
		a.Acked += n
		l.Events.Add(n)
	case Refused:
		a.Failed += n
	case Unknown:
		a.Unknown += n
	}
}

// Of returns the account of a key.
func (l *Ledger) Of(key string) Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.of(key)
}

// Names returns all keys, sorted.
func (l *Ledger) Names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.keys))
}

// Totals returns A, U and the number of failed events, over all keys.
func (l *Ledger) Totals() (a, u, f int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.keys {
		a, u, f = a+k.Acked, u+k.Unknown, f+k.Failed
	}
	return a, u, f
}

// WriteOff moves events that are acknowledged but missing from counts to failed, and returns their
// number.
func (l *Ledger) WriteOff(counts map[string]int64) (lost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, a := range l.keys {
		d := max(0, a.Acked-counts[key])
		a.Acked, a.Failed, lost = a.Acked-d, a.Failed+d, lost+d
	}
	return lost
}

// Check compares counts with the ledger. It returns R and the number of missing events over all
// keys. It returns an error if a key was counted too often, or if more than loss events are
// missing.
func (l *Ledger) Check(counts map[string]int64, loss int64) (r, missing int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for key, a := range l.keys {
		n := counts[key]
		r += n
		missing += max(0, a.Acked-n)
		if n > a.Acked+a.Unknown {
			errs = append(errs, fmt.Errorf("%s: counted %d, more than A %d + U %d", key, n, a.Acked,
				a.Unknown))
		}
		if n < a.Acked && loss == 0 {
			errs = append(errs, fmt.Errorf("%s: counted %d, less than A %d", key, n, a.Acked))
		}
	}
	if missing > loss {
		errs = append(errs, fmt.Errorf("%d missing, at most %d may be", missing, loss))
	}
	if len(errs) > 6 {
		errs = append(errs[:6], fmt.Errorf("and %d more", len(errs)-6))
	}
	return r, missing, errors.Join(errs...)
}
