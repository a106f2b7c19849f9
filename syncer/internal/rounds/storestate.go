package rounds

import (
	"time"

	"twotier.dev/twotier/syncer/store"
)

// lastGeneration is the largest generation that an entry holds.
const lastGeneration = 1<<24 - 1

// StoreState is a partition's knowledge of the store. It is guarded by the partition's lock.
//
// News: an answer counts all changes. If there are more than this counter made, others have changed
// the data, and everything loaded before may be out of date: a new generation begins.
//
// Loss: each round carries the state in the store's latest answer. A store that has less, or other
// data, changes nothing and reports the loss, and memory is then used to restore it. Forgetting
// this state would hide a loss.
type StoreState struct {
	Report   Report
	Reported store.Told // in the answer to the last round that no other overlapped
	// loaded is the state reported with keys that were loaded next to other rounds. Whether it
	// includes changes by others is unknown, so Reported remains unchanged. But the loaded counts
	// may include every change up to loaded, so a store that has less has lost data.
	loaded     store.Told
	Generation uint32 // of the loaded keys; 24 bits
	quiet      uint32 // how often answers showed quiet changes by others
	ContactAt  time.Time
	VerifiedAt time.Time // when it last reported its state and the changes by others
}

// Latest returns the most advanced state that the store is known to have had.
func (s *StoreState) Latest() store.Told { return s.Reported.LaterOf(s.loaded) }

// MayHaveChanged reports whether others may have changed keys after they were loaded.
func (s *StoreState) MayHaveChanged() bool { return s.Latest() != s.Reported }

// SetReported records the state that the store has reported to this counter or another.
func (s *StoreState) SetReported(v store.Told) {
	s.Reported, s.Report = v, max(s.Report, Fresh)
}

// ApplyAnswer processes an answer to a round that no other overlapped. after is the store's state
// if nobody else has changed anything. With hearsQuiet, quiet changes are no news, because the
// partition has shared keys and reads them anyway. A counter that has handed the partition over
// meanwhile may know a later state than the answer. It is kept, because forgetting it would hide a
// loss.
func (s *StoreState) ApplyAnswer(answer, after store.Told, hearsQuiet bool, now time.Time) {
	news := answer.Version != after.Version || answer.Quieted != after.Quieted && !hearsQuiet
	if s.IsKnown() && news {
		s.BeginGeneration()
	}
	if answer.Quieted != after.Quieted {
		s.quiet++
	}
	s.SetReported(answer.LaterOf(s.Reported))
	s.Report, s.VerifiedAt = min(s.Report, Fresh), now
}

// ApplyLoadAnswer processes an answer to a round that others may have overlapped.
func (s *StoreState) ApplyLoadAnswer(answer store.Told) { s.loaded = answer.LaterOf(s.loaded) }

// ListStamp changes whenever others have changed the partition, or may have.
type ListStamp struct {
	Epoch      uint64
	generation uint32
	quiet      uint32
}

// Stamp returns a value that changes when others may have changed anything.
func (s *StoreState) Stamp() ListStamp { return ListStamp{s.Reported.Epoch, s.Generation, s.quiet} }

// BeginGeneration begins a new generation: keys that were loaded before have to be read again.
func (s *StoreState) BeginGeneration() { s.Generation = (s.Generation + 1) & lastGeneration }

// Clear discards the store's reports, because another counter now answers for the partition.
func (s *StoreState) Clear() {
	s.Report, s.Reported, s.loaded = Unknown, store.Told{}, store.Told{}
}

// Age returns how long ago the store last answered, in milliseconds; 0 if it has not yet.
func (s *StoreState) Age(now time.Time) int64 {
	if s.ContactAt.IsZero() {
		return 0
	}
	return now.Sub(s.ContactAt).Milliseconds()
}

// VerifiedWithin reports whether the store has reported its state, including the changes by others,
// within the last d.
func (s *StoreState) VerifiedWithin(d time.Duration) bool {
	return !s.VerifiedAt.IsZero() && time.Since(s.VerifiedAt) <= d
}

// Report is the state of the store's report about a partition. An answer to a round that no other
// overlapped makes it Fresh.
type Report uint8

const (
	// Unknown: the store has not reported yet.
	Unknown Report = iota
	// Asked: the store has not reported yet, and has to.
	Asked
	// Fresh: the store has reported.
	Fresh
	// Together: it has reported, and is to report again along with other partitions.
	Together
	// Requested: it must report again before decisions or a handoff rely on it.
	Requested
	// Suspected: a load has seen a loss, which a round without overlap must find again. Nothing is
	// loaded until then.
	Suspected
)

// IsKnown reports whether the store has reported.
func (s *StoreState) IsKnown() bool { return s.Report >= Fresh }

// IsDue reports whether the store is to report now, whatever the clock says.
func (s *StoreState) IsDue() bool { return s.Report == Asked || s.Report > Fresh }

// IsConfirmed reports whether nothing speaks against the last report.
func (s *StoreState) IsConfirmed() bool { return s.Report < Requested }

// RequestReport makes the store report soon. It reports whether that is news.
func (s *StoreState) RequestReport() (news bool) {
	before := s.Report
	switch before {
	case Unknown:
		s.Report = Asked
	case Fresh, Together:
		s.Report = Requested
	}
	return s.Report != before
}

// ReportWithOthers makes the store report along with other partitions.
func (s *StoreState) ReportWithOthers() {
	switch s.Report {
	case Unknown:
		s.Report = Asked
	case Fresh:
		s.Report = Together
	}
}

// SuspectLoss records that a load has seen a loss.
func (s *StoreState) SuspectLoss() {
	if s.Report = Suspected; s.Reported == (store.Told{}) {
		s.Report = Asked // so the next round asks for the state
	}
}

// EndSuspicion records an answer to a round without overlap, which finds a loss if there is one.
func (s *StoreState) EndSuspicion() {
	if s.Report == Suspected {
		s.Report = Fresh
	}
}

// The shortest and the longest pause before a retry, and the longest after a refusal.
const (
	FirstBackoff   = 25 * time.Millisecond
	longestBackoff = 2 * time.Second
	longestRefused = 200 * time.Millisecond // operations may be waiting
)

// Backoff determines when to retry after a failure: after a pause that doubles with each
// consecutive failure.
type Backoff struct {
	Failures int // in a row
	pause    time.Duration
	Until    time.Time
}

// Failing reports whether the last attempt failed.
func (b *Backoff) Failing() bool { return b.Failures > 0 }

// Waiting reports whether it is too early to retry.
func (b *Backoff) Waiting(now time.Time) bool { return now.Before(b.Until) }

// Fail delays a retry by a pause that doubles with each failure.
func (b *Backoff) Fail(now time.Time) {
	b.Failures++
	b.pause = min(max(2*b.pause, FirstBackoff), longestBackoff)
	b.Until = now.Add(b.pause)
}

// Postpone delays a retry by the shortest pause after a late answer, which is no failure.
func (b *Backoff) Postpone(now time.Time) { *b = Backoff{Until: now.Add(FirstBackoff)} }

// Refuse delays a retry by a pause that doubles, but stays short, after the store has
// refused something as a whole. The answer shows that the store can be reached, so it is no
// failure.
func (b *Backoff) Refuse(now time.Time) {
	pause := min(max(2*b.pause, FirstBackoff), longestRefused)
	*b = Backoff{pause: pause, Until: now.Add(pause)}
}

// Succeed ends the delays.
func (b *Backoff) Succeed() { *b = Backoff{} }
