package room_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/syncer/internal/room"
)

// model is a room as two lists of waiting operations. It takes the bounds from the real one.
type model struct {
	most          [2]int64
	owed, granted int64
	refused       int64
	flushes       int64
	lines         [2][]int
	ended         map[int]room.Outcome
}

func (m *model) fits(class int) bool { return m.owed+m.granted < m.most[class] }

func (m *model) open(class int) bool {
	return m.fits(class) && len(m.lines[0]) == 0 && (class == 0 || len(m.lines[1]) == 0)
}

func (m *model) waiting() int { return len(m.lines[0]) + len(m.lines[1]) }

func (m *model) grant() {
	for class := range m.lines {
		for len(m.lines[class]) > 0 && m.fits(class) {
			m.ended[m.lines[class][0]] = room.Granted
			m.lines[class] = m.lines[class][1:]
			m.granted++
		}
	}
}

func (m *model) release() {
	m.granted--
	last := m.granted == 0
	if m.grant(); last && m.waiting() > 0 {
		m.flushes++
	}
}

func (m *model) retryAll() {
	for class := range m.lines {
		for _, id := range m.lines[class] {
			m.ended[id] = room.Retry
		}
		m.lines[class] = nil
	}
}

// world runs random operations on a room and its model, one at a time.
type world struct {
	t     *testing.T
	rnd   *rand.Rand
	real  *crowd
	model *model
	ends  chan end
	give  map[int]context.CancelFunc // ends the patience of an operation
	ended map[int]room.Outcome
}

// end is the end of the wait of an operation.
type end struct {
	id  int
	out room.Outcome
}

func (w *world) step(id int) {
	m, n := w.model, w.rnd.Int64N(4)
	switch w.rnd.IntN(12) {
	case 0, 1, 2, 3:
		w.join(id, w.rnd.IntN(2))
	case 4, 5:
		w.leave()
	case 6:
		w.real.AddOwed(n)
		m.owed += n
	case 7, 8:
		n = min(n, m.owed)
		w.real.AddOwed(-n)
		m.owed -= n
	case 9:
		if n == 0 {
			w.real.Grant()
		} else {
			w.real.Record(int(n-1), time.Duration(w.rnd.Int64N(int64(3*time.Second))))
			m.most = w.real.Stats().Most
		}
		m.grant()
	case 10:
		if m.granted > 0 {
			w.real.Release()
			m.release()
		}
	default:
		if w.rnd.IntN(10) == 0 {
			w.real.RetryAll()
			m.retryAll()
		}
	}
}

func (w *world) join(id, class int) {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.give[id] = cancel
	go func() { w.ends <- end{id, w.real.Wait(ctx, room.Class(class), 1000*time.Hour)} }()
	w.model.lines[class] = append(w.model.lines[class], id)
	w.model.flushes++
}

// leave has one of the waiting operations give up.
func (w *world) leave() {
	m := w.model
	if class := w.rnd.IntN(2); len(m.lines[class]) > 0 {
		i := w.rnd.IntN(len(m.lines[class]))
		id := m.lines[class][i]
		m.lines[class] = append(m.lines[class][:i:i], m.lines[class][i+1:]...)
		m.ended[id] = room.Refused
		m.refused++
		w.give[id]()
	}
}

func (w *world) compare(step int) {
	synctest.Wait()
	for len(w.ends) > 0 {
		e := <-w.ends
		w.ended[e.id] = e.out
		w.give[e.id]()
	}
	m := w.model
	want := room.Stats{Owed: m.owed, Most: w.real.Stats().Most, Granted: m.granted,
		Waiting: int64(m.waiting()), Refused: m.refused}
	if got := w.real.Stats(); got != want || w.real.flushes.Load() != m.flushes {
		w.t.Fatalf("step %d: %+v with %d flushes, want %+v with %d", step, got,
			w.real.flushes.Load(), want, m.flushes)
	}
	if !maps.Equal(w.ended, m.ended) {
		w.t.Fatalf("step %d: the waits ended %v, want %v", step, w.ended, m.ended)
	}
	for class := range m.lines {
		if got := w.real.HasRoom(room.Class(class)); got != m.open(class) {
			w.t.Fatalf("step %d: open for class %d: %v", step, class, got)
		}
	}
}

// TestModel compares a room with its model after each of many random steps.
func TestModel(t *testing.T) {
	first := seed.First()
	for s := first; s < first+50 && !t.Failed(); s++ {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("again with TWOTIER_TEST_FIRST=%d", s)
				}
			}()
			w := &world{t: t, rnd: rand.New(rand.NewPCG(s, 1)), real: newCrowd(),
				model: &model{ended: map[int]room.Outcome{}}, ends: make(chan end, 1000),
				give: map[int]context.CancelFunc{}, ended: map[int]room.Outcome{}}
			w.model.most = w.real.Stats().Most
			for i := range 300 {
				w.step(i)
				w.compare(i)
			}
			w.real.Close()
			w.model.retryAll()
			w.compare(300)
		})
	}
}
