package syncer

import "time"

// storeVersion is the store's state of a partition's data, as the store reports it. The epoch names
// the data, and changes with a loss. version and quieted count the changes by all writers: changes
// that others must notice, and changes that they need not. lastChange names a change that is in no
// other data with the same number of changes; see [Round].
type storeVersion struct {
	epoch, version, quieted uint64
	lastChange              string
}

func versionOf(r *round) storeVersion {
	return storeVersion{r.Epoch, r.Version, r.Quieted, r.LastChange}
}

// address sets v as the state that a round expects of the store.
func (v *storeVersion) address(r *round) {
	r.Epoch, r.Version, r.Quieted, r.LastChange = v.epoch, v.version, v.quieted, v.lastChange
}

// atLeast returns v, or the later of v and o if both are of the same data.
func (v storeVersion) atLeast(o storeVersion) storeVersion {
	if v.epoch == o.epoch {
		if o.version+o.quieted > v.version+v.quieted {
			v.lastChange = o.lastChange
		}
		v.version, v.quieted = max(v.version, o.version), max(v.quieted, o.quieted)
	}
	return v
}

// lastGeneration is the largest generation that an entry holds.
const lastGeneration = 1<<24 - 1

// storeState is a partition's knowledge of the store. It is guarded by the partition's lock.
//
// News: an answer counts all changes. If there are more than this counter made, others have changed
// the data, and everything loaded before may be out of date: a new generation begins.
//
// Loss: each round carries the state in the store's latest answer. A store that has less, or other
// data, changes nothing and reports the loss, and memory is then used to restore it. Forgetting
// this state would hide a loss.
type storeState struct {
	known bool         // the store has reported its state
	told  storeVersion // in the answer to the last round that no other overlapped
	// loaded is the state reported with keys that were loaded next to other rounds. Whether it
	// includes changes by others is unknown, so told stays behind. But the loaded counts may
	// include every change up to loaded, so a store that has less has lost data.
	loaded     storeVersion
	mustVerify bool   // the store must soon report its state again
	verifyNow  bool   // it must report now, together with other partitions
	generation uint32 // of the loaded keys; 24 bits
	quiet      uint32 // how often answers showed quiet changes by others
	contactAt  time.Time
	verifiedAt time.Time // when it last reported its state and the changes by others
}

// latest returns the most advanced state that the store is known to have had.
func (s *storeState) latest() storeVersion { return s.told.atLeast(s.loaded) }

// mayHaveChanged reports whether others may have changed keys after they were loaded.
func (s *storeState) mayHaveChanged() bool { return s.latest() != s.told }

// setTold records the state that the store has reported to this counter or another.
func (s *storeState) setTold(v storeVersion) { s.told, s.known = v, true }

// learn processes an answer to a round that no other overlapped. after is the store's state if
// nobody else has changed anything. With hearsQuiet, quiet changes are no news, because the
// partition has shared keys and reads them anyway. A counter that has handed the partition over
// meanwhile may know a later state than the answer. It is kept, because forgetting it would hide a
// loss.
func (s *storeState) learn(answer, after storeVersion, hearsQuiet bool, now time.Time) {
	news := answer.version != after.version || answer.quieted != after.quieted && !hearsQuiet
	if s.known && news {
		s.outdate()
	}
	if answer.quieted != after.quieted {
		s.quiet++
	}
	s.setTold(answer.atLeast(s.told))
	s.mustVerify, s.verifyNow, s.verifiedAt = false, false, now
}

// learnLoaded processes an answer to a round that others may have overlapped.
func (s *storeState) learnLoaded(answer storeVersion) { s.loaded = answer.atLeast(s.loaded) }

// stamp returns a value that changes when others may have changed anything.
func (s *storeState) stamp() listStamp { return listStamp{s.told.epoch, s.generation, s.quiet} }

// outdate begins a new generation: keys that were loaded before have to be read again.
func (s *storeState) outdate() { s.generation = (s.generation + 1) & lastGeneration }

// forget discards the store's reports, because another counter now answers for the partition.
func (s *storeState) forget() {
	s.known, s.told, s.loaded, s.mustVerify = false, storeVersion{}, storeVersion{}, false
}

// age returns how long ago the store last answered, in milliseconds; 0 if it has not yet.
func (s *storeState) age(now time.Time) int64 {
	if s.contactAt.IsZero() {
		return 0
	}
	return now.Sub(s.contactAt).Milliseconds()
}

// verifiedWithin reports whether the store has reported its state, including the changes by others,
// within the last d.
func (s *storeState) verifiedWithin(d time.Duration) bool {
	return !s.verifiedAt.IsZero() && time.Since(s.verifiedAt) <= d
}
