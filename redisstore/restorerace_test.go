package redisstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
)

// remains is a server on which a loss has left the first of some events, each of another
// millisecond, and no state.
type remains struct {
	t    *testing.T
	node *miniredis.Miniredis
	s    *redisstore.Store
	name string // of the Hash
}

func newRemains(t *testing.T) *remains {
	t.Helper()
	node := miniredis.RunT(t)
	m := &remains{t: t, node: node, name: redisstore.Key(0, nil, []byte("k")),
		s: open(t, redisstore.Options{URL: "redis://" + node.Addr()})}
	r := m.restorer()
	r.apply(keyOfCells("k", eventsFrom(0, 1)))
	node.Del(prefix.StateKey(0))
	return m
}

// eventsFrom returns events with numbers from first on, up to but without last.
func eventsFrom(first, last int64) content {
	c := content{}
	for i := first; i < last; i++ {
		c[leaparray.Moment(t0+i)] = 1
	}
	return c
}

// restorer returns another node.
func (m *remains) restorer() *restorer { return &restorer{t: m.t, s: m.s} }

// part returns the only part of a node's restoration, before it knows of the remains.
func (m *remains) part(writer string, known content) *syncer.Round {
	return &syncer.Round{Writer: writer, Seq: 1, Republish: true, Now: t0,
		Keys: []syncer.KeyRound{keyOfCells("k", known)}}
}

// onRestore calls answer for each script that restores, with its number from 1.
func (m *remains) onRestore(answer func(c *server.Peer, n int, run func()) bool) {
	n, record := 0, prefix.RecordKey(0, nil, []byte("k"))
	onScripts(m.t, m.node, func(c *server.Peer, args []string, run func()) bool {
		if !slices.Contains(args, record) {
			return false
		}
		n++
		return answer(c, n, run)
	})
}

func (m *remains) check(want content) {
	m.t.Helper()
	if got := cellsOf(m.t, m.s, "key", "k"); !got.same(want) {
		m.t.Errorf("it has %v, want %v", got, want)
	}
}

// TestRestoreWhileAnotherRestores: between the moments when a node learns what is restored and when
// it adds what is missing, another node restores some of the same events, and others count. Each
// event is there once.
func TestRestoreWhileAnotherRestores(t *testing.T) {
	t.Parallel()
	m := newRemains(t)
	calls := 0
	m.onRestore(func(_ *server.Peer, n int, _ func()) bool {
		if calls = n; n != 2 {
			return false
		}
		read := &syncer.Round{Writer: "reader"}
		send(t, m.s, read)
		other := m.restorer()
		other.epoch, other.version = read.Epoch, read.Version
		other.restore(keyOfCells("k", eventsFrom(0, 4)))
		other.apply(keyOfCells("k", eventsFrom(9, 10)))
		return false
	})
	r := m.part("w", eventsFrom(2, 7))
	if send(t, m.s, r); r.Err != nil || r.Lost || r.Keys[0].Err != nil {
		t.Fatal(r.Err, r.Lost, r.Keys[0].Err)
	}
	want := eventsFrom(0, 7)
	want.add(eventsFrom(9, 10).cells())
	m.check(want)
	if got := contentOf(r.Keys[0].Loaded); !got.same(want) {
		t.Errorf("reported %v, want %v", got, want)
	}
	if calls != 3 {
		t.Errorf("%d calls, want 3: empty records, the remains, and what another restored", calls)
	}
}

// TestRestoreGivesUpWhenOthersKeepRestoring: nothing of a part is restored, even its other key,
// while others change a record each time. Later all of it is.
func TestRestoreGivesUpWhenOthersKeepRestoring(t *testing.T) {
	t.Parallel()
	m := newRemains(t)
	record, contended := prefix.RecordKey(0, nil, []byte("k")), true
	m.onRestore(func(_ *server.Peer, n int, _ func()) bool {
		if contended && n > 1 {
			m.node.HSet(record, layout.LogField, string(layout.AppendLog(nil,
				eventsFrom(int64(n), int64(n+1)).buckets())))
		}
		return false
	})
	r := m.part("w", eventsFrom(0, 2))
	r.Keys = append(r.Keys, keyOfCells("other", eventsFrom(0, 2)))
	send(t, m.s, r)
	if !errors.Is(r.Err, syncer.ErrNotApplied) || !errors.Is(r.Err, syncer.ErrLate) {
		t.Errorf("%v, want it to be late and not applied", r.Err)
	}
	m.check(eventsFrom(0, 1))
	if m.node.Exists(prefix.WriterKey(0, "w")) ||
		m.node.Exists(redisstore.Key(0, nil, []byte("other"))) {
		t.Error("a part of it was restored")
	}
	contended = false
	if send(t, m.s, r); r.Err != nil || r.Lost {
		t.Error(r.Err, r.Lost)
	}
	m.check(eventsFrom(0, 2))
	if got := cellsOf(t, m.s, "key", "other"); !got.same(eventsFrom(0, 2)) {
		t.Errorf("the other key has %v", got)
	}
}

// TestRestoreWithLostAnswers: the answer to a call of a restoration is lost, of the one that
// returns the records or of the one that restores. The node sends the part again and, if it then
// learns that the part has drawn an epoch, starts over. Each event is there once.
func TestRestoreWithLostAnswers(t *testing.T) {
	t.Parallel()
	for _, begun := range []bool{false, true} {
		for lost := 1; lost <= 2; lost++ {
			t.Run(fmt.Sprint("begun ", begun, ", call ", lost), func(t *testing.T) {
				t.Parallel()
				m := newRemains(t)
				m.loseAnswer(begun, lost)
			})
		}
	}
}

func (m *remains) loseAnswer(begun bool, lost int) {
	t := m.t
	r := m.part("w", eventsFrom(0, 5))
	if begun {
		read := &syncer.Round{Writer: "reader",
			Keys: []syncer.KeyRound{{Key: []byte("k"), Load: true}}}
		send(t, m.s, read)
		r.Epoch, r.Version, r.LastChange = read.Epoch, read.Version, read.LastChange
	}
	told := *r
	m.onRestore(func(c *server.Peer, n int, run func()) bool {
		if n == lost {
			run()
			c.Close()
		}
		return n == lost
	})
	send(t, m.s, r)
	if !errors.Is(r.Err, twotier.ErrUnknownOutcome) {
		t.Fatalf("%v, want an unknown outcome", r.Err)
	}
	r.Epoch, r.Version, r.LastChange = told.Epoch, told.Version, told.LastChange
	if send(t, m.s, r); r.Lost == begun {
		t.Errorf("sent again: lost %v", r.Lost)
	}
	if r.Lost {
		r.Writer = "w again"
		send(t, m.s, r)
	}
	if r.Err != nil || r.Lost || r.Used || r.Later {
		t.Fatal(r.Err, r.Lost, r.Used, r.Later)
	}
	m.check(eventsFrom(0, 5))
	if got := contentOf(r.Keys[0].Loaded); !got.same(eventsFrom(0, 5)) {
		t.Errorf("reported %v", got)
	}
	other := m.restorer()
	other.epoch, other.version = r.Epoch, r.Version
	other.restore(keyOfCells("k", eventsFrom(3, 6)))
	m.check(eventsFrom(0, 6))
}

// TestRestoreReportsRefusedKeysAgain: a key can't be restored, because something else is there, and
// the answer is lost. The part, sent again, still says so once nothing is in the way, so that the
// node keeps its counts and restores them in another part.
func TestRestoreReportsRefusedKeysAgain(t *testing.T) {
	t.Parallel()
	m := newRemains(t)
	m.node.Del(m.name)
	must.Succeed(t, m.node.Set(m.name, "foreign"))
	r := m.part("w", eventsFrom(0, 5))
	r.Keys = append(r.Keys, keyOfCells("other", eventsFrom(0, 2)))
	for range 2 {
		send(t, m.s, r)
		if err := r.Keys[0].Err; r.Err != nil || !errors.Is(err, syncer.ErrNotApplied) ||
			r.Keys[1].Err != nil {
			t.Fatal(r.Err, err, r.Keys[1].Err)
		}
		m.node.Del(m.name)
	}
	if !strings.Contains(r.Keys[0].Err.Error(), "refused") {
		t.Error(r.Keys[0].Err)
	}
	r.Seq, r.Acked, r.Keys = 2, 1, r.Keys[:1]
	if send(t, m.s, r); r.Err != nil || r.Keys[0].Err != nil {
		t.Fatal(r.Err, r.Keys[0].Err)
	}
	m.check(eventsFrom(0, 5))
}
