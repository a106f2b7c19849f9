package storetest

import (
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier/syncer"
)

// history sends rounds of several writers to a partition, each with the state that an earlier one
// has reported.
type history struct {
	t   *testing.T
	s   syncer.Store
	seq map[string]uint64
}

// send sends a round of a key by a writer that knows the state of the partition after another
// round.
func (h *history) send(writer string, after *syncer.Round, quiet bool,
	k syncer.KeyRound) *syncer.Round {
	h.t.Helper()
	h.seq[writer]++
	r := &syncer.Round{Partition: 17, Writer: writer, Now: start + 20_000, Seq: h.seq[writer],
		Acked: h.seq[writer] - 1, Quiet: quiet, Keys: []syncer.KeyRound{k}}
	if after != nil {
		r.Epoch, r.Version, r.Quieted, r.LastChange = after.Epoch, after.Version, after.Quieted,
			after.LastChange
	}
	h.exchange(r)
	return r
}

func (h *history) exchange(r *syncer.Round) {
	h.t.Helper()
	if exchange(h.t, h.s, r); r.Lost || r.Keys[0].Err != nil {
		h.t.Fatalf("lost %v, %v", r.Lost, r.Keys[0].Err)
	}
}

// loaded returns all that the store has of a key, and the size of its log.
func (h *history) loaded(name string) (have []syncer.Bucket, log int) {
	h.t.Helper()
	r := &syncer.Round{Partition: 17, Writer: "reader",
		Keys: []syncer.KeyRound{{Key: []byte(name), Load: true}}}
	h.exchange(r)
	return slices.Clone(r.Keys[0].Loaded), r.Keys[0].LoadedLog
}

// testContent counts in a key whose content its counter knows, with a rewrite and without. The
// store writes the content if nobody else has changed the partition since, and counts otherwise.
func testContent(t *testing.T, s syncer.Store) {
	h := &history{t, s, map[string]uint64{}}
	for name, others := range map[string][]bool{"nobody": nil, "others": {false},
		"others quietly": {true}, "both": {true, false}} {
		for _, rewrite := range []bool{false, true} {
			id := name
			was := key(id, bucket(0, 1, 2), moment(0, 3), moment(19_000, 4))
			if rewrite {
				id += ", rewrite"
				was.Key = []byte(id)
			}
			was.New = true
			first := h.send("w", nil, false, was)
			want := contentOf(was.Adds)
			for i, quiet := range others {
				h.send("v", nil, quiet, key(id, moment(19_500, int64(7+i))))
				want[moment(19_500, 0).Stretch] += int64(7 + i)
			}
			k := key(id, bucket(0, 19, 5))
			k.Content = []syncer.Bucket{bucket(0, 1, 2), bucket(0, 19, 5)}
			want[at(0, 19)] = 5
			written := len(others) == 0 || name == "others quietly" && !rewrite
			if rewrite {
				k.Content = []syncer.Bucket{moment(19_000, 4), bucket(0, 19, 5), bucket(2, 0, 5)}
				k.Rewrite, k.ContentLog = true, syncer.WholeLog
				if written {
					want = contentOf(k.Content)
				}
			}
			r := h.send("w", first, false, k)
			if r.Keys[0].Read == written {
				t.Errorf("%s: read %v", id, r.Keys[0].Read)
			}
			checkContent(t, s, id, bucketsOf(want)...)
			h.exchange(r) // as if its answer were lost
			checkContent(t, s, id, bucketsOf(want)...)
			if _, log := h.loaded(id); (log > 0) != (len(others) > 0) {
				t.Errorf("%s: a log of %d", id, log)
			}
		}
	}
}

func bucketsOf(c content) (list []syncer.Bucket) {
	for _, cell := range cellsOf(c) {
		list = append(list, syncer.Bucket{Stretch: cell.Stretch, N: cell.N})
	}
	return list
}

// testLog counts in keys without their content, so that they get a log, and rewrites them.
func testLog(t *testing.T, s syncer.Store) {
	h := &history{t, s, map[string]uint64{}}
	r := h.send("w", nil, false, key("a", bucket(0, 0, 2), bucket(1, 0, 3)))
	r = h.send("w", r, false, key("a", bucket(0, 0, 2), moment(5, 1), bucket(1, 0, -3)))
	have, log := h.loaded("a")
	want := []syncer.Bucket{moment(5, 1), bucket(0, 0, 4)}
	if !slices.Equal(have, want) || log == 0 {
		t.Errorf("loaded %v with a log of %d, want %v", have, log, want)
	}
	k := key("a", moment(6, 1))
	k.Content = []syncer.Bucket{moment(5, 1), moment(6, 1), bucket(0, 0, 4)}
	k.Rewrite, k.ContentLog, k.Load = true, syncer.WholeLog, true
	r = h.send("w", r, false, k)
	if got := r.Keys[0]; !slices.Equal(got.Loaded, k.Content) || got.LoadedLog != 0 {
		t.Errorf("rewritten, it has %v with a log of %d", got.Loaded, got.LoadedLog)
	}
	checkTTL(t, s, "a", time.Hour)
	// A rewrite without adds.
	k = key("a")
	k.Content = []syncer.Bucket{bucket(2, 0, 6)}
	k.Rewrite, k.ContentLog = true, syncer.WholeLog
	h.send("w", r, false, k)
	checkContent(t, s, "a", bucket(2, 0, 6))
}

// testContentKeepsTheRestOfALog rewrites a key that another writer counts in quiet rounds. What
// that has added since the key was loaded stays.
func testContentKeepsTheRestOfALog(t *testing.T, s syncer.Store) {
	h := &history{t, s, map[string]uint64{}}
	was := key("a", bucket(0, 0, 1))
	was.New = true
	h.send("w", nil, false, was)
	h.send("v", nil, true, key("a", bucket(0, 0, 2), moment(5, 1)))
	loads := key("a", bucket(0, 1, 3))
	loads.Load = true
	r := h.send("w", nil, false, loads)
	log := r.Keys[0].LoadedLog
	h.send("v", nil, true, key("a", bucket(0, 0, 10), moment(5, 10)))
	k := key("a", bucket(0, 2, 4))
	k.Content = []syncer.Bucket{moment(5, 1), bucket(0, 0, 3), bucket(0, 1, 3), bucket(0, 2, 4)}
	k.Rewrite, k.ContentLog = true, log
	if r = h.send("w", r, false, k); r.Keys[0].Read {
		t.Error("the content was not written")
	}
	want := []syncer.Bucket{moment(5, 11), bucket(0, 0, 13), bucket(0, 1, 3), bucket(0, 2, 4)}
	have, rest := h.loaded("a")
	if !slices.Equal(have, want) || rest == 0 || rest >= log+log {
		t.Errorf("loaded %v with a log of %d after %d, want %v", have, rest, log, want)
	}
	k = key("a")
	k.Content, k.Rewrite, k.ContentLog = want, true, rest
	h.send("w", r, false, k)
	if have, rest = h.loaded("a"); !slices.Equal(have, want) || rest != 0 {
		t.Errorf("loaded %v with a log of %d", have, rest)
	}
}
