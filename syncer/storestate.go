package syncer

import "time"

// storeVersion is what the store says of the data that it has of a partition. The epoch names the
// data: one that was lost and drawn anew has another. Version and quieted count the changes of all
// writers in it, those that are heard of and those that are not, and lastChange names one that is
// in no other data of as many changes; see [Round].
type storeVersion struct {
	epoch, version, quieted uint64
	lastChange              string
}

func versionOf(r *Round) storeVersion {
	return storeVersion{r.Epoch, r.Version, r.Quieted, r.LastChange}
}

// address has a round say that this is what the store has.
func (v *storeVersion) address(r *Round) {
	r.Epoch, r.Version, r.Quieted, r.LastChange = v.epoch, v.version, v.quieted, v.lastChange
}

// atLeast returns v, or more of the same data if o has more.
func (v storeVersion) atLeast(o storeVersion) storeVersion {
	if v.epoch == o.epoch {
		if o.version+o.quieted > v.version+v.quieted {
			v.lastChange = o.lastChange
		}
		v.version, v.quieted = max(v.version, o.version), max(v.quieted, o.quieted)
	}
	return v
}

// storeState is what a partition knows of the store. It is guarded by the partition's lock.
//
// News: an answer counts all changes. If there are more than this counter made, others have changed
// the data, and whatever was loaded before may be out of date: a new generation begins.
//
// Loss: each round says what the store had at the latest. A store that has less, or other data,
// changes nothing and says so; what memory knows is restored then. So what is forgotten here is not
// noticed if the store loses it.
type storeState struct {
	known bool         // the store has said what it has
	told  storeVersion // by the last round that no other overlapped
	// loaded is what it said when keys were loaded beside other rounds. Whether that is news of
	// others can't be told, so told stays behind; but what was loaded may be from all that loaded
	// counts, and is lost when the store has less.
	loaded     storeVersion
	mustVerify bool   // it is to say once more what it has, soon
	generation uint32 // of what was loaded, 24 bits
	contactAt  time.Time
	verifiedAt time.Time // when it last said what it has and what others did
}

// latest is the most that the store is known to have had.
func (s *storeState) latest() storeVersion { return s.told.atLeast(s.loaded) }

// mayHaveChanged reports whether what was loaded first may be out of date.
func (s *storeState) mayHaveChanged() bool { return s.latest() != s.told }

// setTold takes over what the store has said, to whomever.
func (s *storeState) setTold(v storeVersion) { s.told, s.known = v, true }

// learn takes in an answer to a round that no other overlapped. after is what the store has if
// nobody else has changed anything; of quiet changes hears by itself who shares keys.
func (s *storeState) learn(answer, after storeVersion, hearsQuiet bool, now time.Time) {
	news := answer.version != after.version || answer.quieted != after.quieted && !hearsQuiet
	if s.known && news {
		s.outdate()
	}
	s.setTold(answer)
	s.mustVerify, s.verifiedAt = false, now
}

// learnLoaded takes in an answer to a round that others may have overlapped.
func (s *storeState) learnLoaded(answer storeVersion) { s.loaded = answer.atLeast(s.loaded) }

// outdate begins a new generation: what was loaded before has to be read again.
func (s *storeState) outdate() { s.generation = (s.generation + 1) & low24 }

// forget forgets what the store has said: another counter answers for it.
func (s *storeState) forget() {
	s.known, s.told, s.loaded, s.mustVerify = false, storeVersion{}, storeVersion{}, false
}

// age is how long ago the store last answered, in milliseconds; 0 if it has not yet.
func (s *storeState) age(now time.Time) int64 {
	if s.contactAt.IsZero() {
		return 0
	}
	return now.Sub(s.contactAt).Milliseconds()
}

// verifiedWithin reports whether the store has said in this time what it has and what others did.
func (s *storeState) verifiedWithin(d time.Duration) bool {
	return !s.verifiedAt.IsZero() && time.Since(s.verifiedAt) <= d
}
