package loans

import (
	"bytes"
	"slices"
	"time"

	"twotier.dev/twotier"
)

// Keys holds a partition's shared keys, of which there are few.
type Keys []*Key

// Key is a key that several counters count at the same time, because it is in higher demand than
// one of them can serve: its owner, and the borrowers of some of the room left in its limits.
type Key struct {
	// NS is empty for the default namespace. The names are copies.
	NS, Name []byte
	// ReadAt is when the store last reported the counts flushed by others.
	ReadAt time.Time
	// Log is the size of the key's log in the store when the key was last read.
	Log int
	// Credit is set at a borrower.
	Credit *Credit

	reads uint64 // how many rounds were cut that read the key
	seen  uint64 // the number of the last read that was answered
	loans []loan // at the owner
}

// Find returns a shared key, or nil if the key is not shared.
func (s Keys) Find(ns, key []byte) *Key {
	for _, k := range s {
		if bytes.Equal(k.Name, key) && bytes.Equal(k.NS, ns) {
			return k
		}
	}
	return nil
}

// Share returns the shared key with this name. It adds the key if necessary.
func (s *Keys) Share(ns, key []byte) (k *Key, added bool) {
	if k = s.Find(ns, key); k != nil {
		return k, false
	}
	k = &Key{NS: bytes.Clone(ns), Name: bytes.Clone(key)}
	*s = append(*s, k)
	return k, true
}

// BeginRead records that a round that reads the key is being cut.
func (k *Key) BeginRead() {
	k.reads++
	for i := range k.loans {
		k.loans[i].reading = k.loans[i].inStore
	}
}

// EndRead records that a round has read the key: this counter now sees everything that the store
// had at the last BeginRead.
func (k *Key) EndRead() {
	k.seen = k.reads
	for i := range k.loans {
		l := &k.loans[i]
		l.Seen = max(l.Seen, min(l.reading, l.Ceiling))
	}
}

// ReadsBegun returns how many reads of the key have begun.
func (k *Key) ReadsBegun() uint64 { return k.reads }

// ReadSince reports whether a read has ended that began after this many others.
func (k *Key) ReadSince(reads uint64) bool { return k.seen > reads }

// EndLoans drops the loans that no longer matter: all their events were seen, or have left every
// window of length span. It must be called often during a loan's lifetime. It reports whether the
// key is idle, neither lent nor borrowed.
func (k *Key) EndLoans(span, ms int64, now time.Time) (idle bool) {
	for i := range k.loans {
		k.loans[i].extend(ms, now)
	}
	k.loans = slices.DeleteFunc(k.loans, func(l loan) bool {
		return !l.running(now) && (l.unseen() == 0 || l.unseenWithin(span, ms, now) == 0)
	})
	return k.Credit == nil && len(k.loans) == 0
}

// Cancel drops the key's loans and its credit.
func (k *Key) Cancel() { k.loans, k.Credit = nil, nil }

// AppendLoans appends all loans, for a handoff.
func (s Keys) AppendLoans(list []twotier.Loan) []twotier.Loan {
	for _, k := range s {
		for j := range k.loans {
			l := k.loans[j].Loan
			l.NS, l.Key = k.NS, k.Name
			list = append(list, l)
		}
	}
	return list
}

// Adopt takes over another counter's loan of the key, unless a request as recent as the loan's last
// one has arrived here already.
func (k *Key) Adopt(l *twotier.Loan, now time.Time) {
	known := slices.ContainsFunc(k.loans, func(o loan) bool {
		return o.Name == l.Name && o.Number >= l.Number
	})
	if !known {
		k.loans = slices.DeleteFunc(k.loans, func(o loan) bool { return o.Name == l.Name })
		k.loans = append(k.loans, loan{Loan: *l, requestedAt: now, unconfirmed: true})
	}
}
