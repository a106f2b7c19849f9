package syncer

import (
	"slices"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/store"
)

// restoration sends the counts in memory to a store that has lost data. Unlike a flush it carries
// the full counts of the buckets, so sending it twice changes nothing. While it is active, nothing
// else is sent and no entry is evicted or moved. The methods are called with the partition locked.
type restoration struct {
	*ledger
	loads  *loading
	job    *republish // nil unless active
	totals *totals
	report *reporter
}

// republish is the data to restore, and the progress of that.
type republish struct {
	store.Told // the data that counts are restored into
	// after is the epoch in which the counts were known.
	after uint64
	refs  []arena.Ref // keys in memory
	// keys were taken over from another counter; for keys that are in memory too, memory is more
	// recent.
	keys    []KeyState
	next    int           // position in both
	round   *rounds.Round // in flight
	again   []KeyState    // refused by the store
	retries int           // how often refused keys were sent again
}

// restoreRetries is how many more times a key that the store refuses is sent. It may never accept
// the key, and everything else waits.
const restoreRetries = 3

// retryRefused appends the refused keys to the remaining ones, and reports whether there are any.
func (j *republish) retryRefused() bool {
	if len(j.again) == 0 || j.retries == restoreRetries {
		return false
	}
	j.retries++
	j.keys, j.again = append(j.keys, j.again...), nil
	return true
}

func (j *republish) len() int { return len(j.refs) + len(j.keys) }

// isEmpty reports whether there is nothing to restore, and the epoch is new, so that every counter
// notices the loss. Sending an empty part anyway would be a change of the data. If the store went
// back in time once more, that change could make up for a lost one.
func (j *republish) isEmpty() bool { return j.len() == 0 && j.Epoch > j.after }

func (s *restoration) active() bool { return s.job != nil }

// beginAfterLoss begins to restore the counts in memory after the store has reported a loss.
func (s *restoration) beginAfterLoss(now store.Told) {
	s.totals.losses.Add(1)
	s.report.logLoss(s.id)
	s.restoreAll(now)
	if s.job.isEmpty() {
		s.end()
	}
}

// restoreAll begins to restore the counts in memory into the store's present data. A round that
// could not be sent because of the loss stays the partition's flight, and is sent after that.
func (s *restoration) restoreAll(now store.Told) {
	s.begin(&republish{Told: now, after: s.store.Reported.Epoch, refs: s.syncedRefs()})
	s.loads.VoidAll()
}

// begin starts a job that goes before everything else. Its parts begin the sequence of a new
// writer, which later rounds continue. Only a flight that has to keep its number uses the old
// writer.
func (s *restoration) begin(j *republish) {
	s.job = j
	s.listing.leave(listComplete) // keys that are not in memory may be restored
	s.outbox.ChangeWriter()
	s.requestRenewals()
}

// requestRenewals requests a new time to live, and so a listing, for all keys that are part of
// rounds. The rounds were cut as if the store still had the keys, with the counts known then.
func (s *restoration) requestRenewals() {
	for _, r := range s.outbox.All() {
		for i := range r.Parts {
			if at := s.refOf(&r.Parts[i]); at != 0 && !r.Parts[i].Forgotten {
				s.keys.EntryAt(at).SetFlags(keys.FlagRenew)
			}
		}
	}
}

// alsoRestore adds another counter's counts in an epoch to the restoration, unless that is the
// epoch that is restored into, whose data is in the store. If the store has gone back in time, the
// job still has the lost epoch until the first part has drawn a new one.
func (s *restoration) alsoRestore(epoch uint64, keys []KeyState) {
	if j := s.job; j.Epoch != epoch || j.Epoch <= j.after {
		j.after = max(j.after, epoch)
		j.keys = append(j.keys, keys...)
	}
}

// cut returns the next part of the restoration.
func (s *restoration) cut() *rounds.Round {
	j := s.job
	if j.round != nil {
		return j.round
	}
	r := s.newRound()
	r.Acked, r.Republish, r.After, r.Now = s.outbox.Acked, true, j.after, s.keys.Clock.Now()
	s.outbox.AssignSequence(r)
	for ; j.next < j.len() && !r.Full(); j.next++ {
		if i := j.next - len(j.refs); i >= 0 {
			k := &j.keys[i]
			s.addKnown(r, k.NS, k.Key, 0).AppendBuckets(r, k.Buckets)
			continue
		}
		at := j.refs[j.next]
		e := s.keys.EntryAt(at)
		ns, key := e.Name()
		k := s.addKnown(r, ns, key, at)
		r.Buckets = s.appendSynced(r.Buckets, e)
		k.AppendBuckets(r, nil)
	}
	r.Seal()
	j.round = r
	return r
}

// addKnown adds a key with known counts to a part.
func (s *restoration) addKnown(r *rounds.Round, ns, key []byte, at arena.Ref) *rounds.Part {
	sp := s.keys.Names.Of(ns)
	k := r.AddKey(ns, key)
	k.Ref, k.Hash = at, s.keys.Names.Hash(ns, key)
	k.TTL, k.Renew = sp.TTL, true
	return k
}

// settle continues with the next part, and ends the restoration after the last.
func (s *restoration) settle(r *rounds.Round) {
	j := s.job
	j.round = nil
	if r.Lost || r.Used || r.Later {
		s.startOver(r)
		return
	}
	j.Told, s.outbox.Acked = r.Told(), r.Seq
	s.applyRestored(r)
	if j.next == j.len() && !j.retryRefused() {
		s.end()
	}
}

// startOver restores everything into the store's present data: the store has lost data once more,
// another counter has drawn an epoch, or a copy of this process uses the same writer.
func (s *restoration) startOver(r *rounds.Round) {
	j := s.job
	if r.Lost {
		j.after = max(j.after, j.Epoch)
	}
	j.Told, j.refs, j.next = r.Told(), s.syncedRefs(), 0
	s.outbox.ChangeWriter()
	if j.isEmpty() {
		s.end()
	}
}

// applyRestored sets synced to the store's counts after a part, because only synced counts can be
// restored once more. Values are synced already.
func (s *restoration) applyRestored(r *rounds.Round) {
	for i := range r.Parts {
		k := &r.Parts[i]
		switch {
		case k.Forgotten:
			continue
		case k.Err != nil:
			s.job.again = append(s.job.again, KeyState{
				NS: slices.Clone(k.NS), Key: slices.Clone(k.Key), Buckets: slices.Clone(k.Adds),
			})
			continue
		}
		at := s.refOf(k)
		if at == 0 {
			continue
		}
		e := s.keys.EntryAt(at)
		if e.HasFlag(keys.FlagReset) {
			continue // the key was reset meanwhile: the next round deletes it
		}
		if !e.IsValues() && CheckCounts(k.Loaded) == nil {
			s.keys.ReplaceSynced(e, cellsOf(k.Loaded))
		}
	}
}

// end begins a new epoch. Only the restoration is acknowledged in it. Others may have counted
// before everything was restored, so keys have to be read again before a decision relies on them.
func (s *restoration) end() {
	s.store.SetReported(s.job.Told)
	s.job = nil
	s.store.BeginGeneration()
	s.outbox.ForgetAcked()
}
