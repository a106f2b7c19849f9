package syncer

import "time"

// storeVersion is what the store says about its data of a partition. The epoch names the data:
// after a loss the data has another one. Version and quieted count the changes by all writers,
// those that others must hear of and those that they need not. lastChange names a change that is in
// no other data with the same number of changes; see [Round].
type storeVersion struct {
	epoch, version, quieted uint64
	lastChange              string
}

func versionOf(r *Round) storeVersion {
	return storeVersion{r.Epoch, r.Version, r.Quieted, r.LastChange}
}

// address makes a round say that this is what the store has.
func (v *storeVersion) address(r *Round) {
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

// storeState is what a partition knows about the store. It is guarded by the partition's lock.
//
// News: an answer counts all changes. If there are more than this counter made, others have changed
// the data, and everything loaded before may be out of date: a new generation begins.
//
// Loss: each round says how much the store had by its latest answer. A store that has less, or
// other data, changes nothing and says so, and what memory knows is then restored. So if this state
// were forgotten, a loss would go unnoticed.
type storeState struct {
	known bool         // the store has said what it has
	told  storeVersion // by the answer to the last round that no other overlapped
	// loaded is what it said when keys were loaded next to other rounds. Whether that includes
	// changes by others can't be told, so told stays behind. But what was loaded may include
	// everything that loaded counts, so the store has lost data if it has less.
	loaded     storeVersion
	mustVerify bool   // the store must soon say again what it has
	verifyNow  bool   // the store is to say so now, while it does for other partitions
	generation uint32 // of what was loaded; 24 bits
	quiet      uint32 // how often quiet changes by others were heard of
	contactAt  time.Time
	verifiedAt time.Time // when it last said what it has and what others did
}

// latest returns the most that the store is known to have had.
func (s *storeState) latest() storeVersion { return s.told.atLeast(s.loaded) }

// mayHaveChanged reports whether keys may have been changed by others after they were loaded.
func (s *storeState) mayHaveChanged() bool { return s.latest() != s.told }

// setTold takes over what the store has told this counter or another.
func (s *storeState) setTold(v storeVersion) { s.told, s.known = v, true }

// learn takes in an answer to a round that no other overlapped. after is what the store has if
// nobody else has changed anything. hearsQuiet says that quiet changes are no news, because the
// partition has shared keys and reads them anyway. If another counter has handed the partition over
// meanwhile, it may have heard of more than the answer says. Were that forgotten, its loss would go
// unnoticed.
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

// learnLoaded takes in an answer to a round that others may have overlapped.
func (s *storeState) learnLoaded(answer storeVersion) { s.loaded = answer.atLeast(s.loaded) }

// stamp returns what tells whether others may have changed anything since.
func (s *storeState) stamp() listStamp { return listStamp{s.told.epoch, s.generation, s.quiet} }

// outdate begins a new generation: keys that were loaded before have to be read again.
func (s *storeState) outdate() { s.generation = (s.generation + 1) & low24 }

// forget forgets what the store has said, because another counter now answers for the partition.
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

// verifiedWithin reports whether the store has said within the last d what it has and what others
// did.
func (s *storeState) verifiedWithin(d time.Duration) bool {
	return !s.verifiedAt.IsZero() && time.Since(s.verifiedAt) <= d
}
