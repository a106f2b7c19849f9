package replay_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/replay"
)

type (
	memory  = replay.Memory[string, int, string]
	request = replay.Request[string, int, string]
	options = replay.Options[int]
)

// begin is the time at which the tests begin.
var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newMemory(opt options) *memory { return replay.New[string, int, string](opt) }

// enter enters a request and checks the verdict.
func enter(t *testing.T, m *memory, key string, seq uint64, after time.Duration,
	want replay.Verdict) *request {
	t.Helper()
	r, got := m.Begin(key, seq, 0, begin.Add(after))
	if got != want || (r != nil) != (got == replay.Fresh || got == replay.Repeated) {
		t.Errorf("%s %d: verdict %d, want %d", key, seq, got, want)
	}
	return r
}

// carryOut enters a new request and answers it.
func carryOut(t *testing.T, m *memory, key string, seq uint64, after time.Duration,
	answer string) *request {
	t.Helper()
	r := enter(t, m, key, seq, after, replay.Fresh)
	if r != nil {
		m.Finish(r, answer, len(answer))
	}
	return r
}

// repeat enters a request again and checks the answer; an empty answer means a forgotten one.
func repeat(t *testing.T, m *memory, key string, seq uint64, after time.Duration, want string) {
	t.Helper()
	r := enter(t, m, key, seq, after, replay.Repeated)
	if r == nil {
		return
	}
	got, state := m.AwaitAnswer(r, 0)
	if got != want || (state == replay.Answered) != (want != "") {
		t.Errorf("%s %d: %q, state %d, want %q", key, seq, got, state, want)
	}
}

// TestCopiesWait sends a copy while the request is being carried out, and then the next request.
func TestCopiesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(options{Sequences: 1, Bytes: 100, Answers: time.Hour, Numbers: time.Hour})
		first := enter(t, m, "a", 1, 0, replay.Fresh)
		again := enter(t, m, "a", 1, 0, replay.Repeated)
		if _, s := m.AwaitAnswer(again, time.Second); s != replay.UnderWay {
			t.Errorf("state %d while it is being carried out", s)
		}
		next := enter(t, m, "a", 2, 0, replay.Fresh)
		m.Finish(next, "next", 4)
		time.AfterFunc(time.Second, func() { m.Finish(first, "first", 5) })
		if a, s := m.AwaitAnswer(again, time.Minute); a != "first" || s != replay.Answered {
			t.Errorf("%q, state %d", a, s)
		}
		if n, bytes := m.Size(); n != 1 || bytes != 4 {
			t.Errorf("%d sequences, %d bytes, want 1 with the 4 of its last answer", n, bytes)
		}
	})
}

// TestAnswersAreForgottenFirst leaves some answers unused for long, and has some that are too
// large: the requests are not carried out again, and the sequences continue.
func TestAnswersAreForgottenFirst(t *testing.T) {
	opt := options{Sequences: 3, Bytes: 10, Answers: time.Minute, Numbers: time.Hour}
	m := newMemory(opt)
	carryOut(t, m, "old", 1, 0, "old")
	carryOut(t, m, "used", 1, 0, "used")
	repeat(t, m, "used", 1, 40*time.Second, "used")
	repeat(t, m, "used", 1, 80*time.Second, "used")
	repeat(t, m, "old", 1, 80*time.Second, "")
	enter(t, m, "old", 0, 30*time.Minute, replay.Stale)
	repeat(t, m, "old", 1, 80*time.Minute, "") // used within the hour
	carryOut(t, m, "old", 2, 80*time.Minute, "new")
	enter(t, m, "used", 1, 80*time.Minute, replay.Fresh) // not used within the hour

	m = newMemory(opt)
	carryOut(t, m, "a", 1, 0, "12345")
	carryOut(t, m, "b", 1, 0, "12345")
	repeat(t, m, "a", 1, 0, "12345")
	carryOut(t, m, "c", 1, 0, "1")
	repeat(t, m, "b", 1, 0, "")
	repeat(t, m, "a", 1, 0, "12345")
	carryOut(t, m, "b", 2, 0, "larger than all")
	repeat(t, m, "b", 2, 0, "")
	repeat(t, m, "a", 1, 0, "12345")
}

// TestForgottenSequencesDontBeginAnew checks sequences that begin with 1: there is room for any
// number of new ones, and forgotten ones stay refused.
func TestForgottenSequencesDontBeginAnew(t *testing.T) {
	m := newMemory(options{Sequences: 2, Bytes: 100, Answers: time.Minute, Numbers: time.Minute,
		FromOne: true})
	enter(t, m, "a", 2, 0, replay.Stale)
	carryOut(t, m, "a", 1, 0, "a")
	slow := enter(t, m, "b", 1, 0, replay.Fresh)
	repeat(t, m, "a", 1, 0, "a")
	carryOut(t, m, "c", 1, 0, "c") // replaces b
	m.Finish(slow, "b", 1)
	repeat(t, m, "a", 1, 0, "a")
	for _, seq := range []uint64{1, 2} {
		enter(t, m, "b", seq, 0, replay.Stale)
		enter(t, m, "b", seq, 59*time.Second, replay.Stale)
	}
	if n, bytes := m.Size(); n != 2 || bytes != 2 {
		t.Errorf("%d sequences, %d bytes", n, bytes)
	}
}

// TestSequencesAreTheirSenders lets another sender continue a sequence and ask for its answer.
func TestSequencesAreTheirSenders(t *testing.T) {
	m := newMemory(options{Sequences: 2, Bytes: 1, Answers: time.Minute, Numbers: time.Minute,
		Continues: func(last, next int) bool { return next >= last }})
	for _, step := range []struct {
		seq  uint64
		by   int
		want replay.Verdict
	}{{1, 5, replay.Fresh}, {1, 4, replay.WrongSender}, {2, 4, replay.WrongSender},
		{0, 4, replay.WrongSender}, {1, 6, replay.Repeated}, {2, 6, replay.Fresh},
		{2, 5, replay.WrongSender}} {
		r, got := m.Begin("a", step.seq, step.by, begin)
		if got != step.want {
			t.Errorf("%+v: %d", step, got)
		}
		if got == replay.Fresh {
			m.Finish(r, "too long to keep", 16) // its sender is remembered all the same
		}
	}
}

// TestNamesAreRemembered fills the memory of names: no name in it is mistaken for new, few new
// names are mistaken for known, and once it is full no name is accepted until a generation has
// passed.
func TestNamesAreRemembered(t *testing.T) {
	b := replay.NewNames(10 * time.Minute)
	name := func(i int) string { return fmt.Sprintf("session-%012d", i) }
	wrong, n := 0, 0
	for room := true; room; n++ {
		var fresh bool
		if fresh, room = b.Add(name(n), begin); !fresh {
			wrong++
		}
	}
	if wrong > n/200 || n < 500_000 {
		t.Errorf("%d of %d new names were taken for old ones", wrong, n)
	}
	for _, later := range []time.Duration{time.Minute, 9 * time.Minute, 19 * time.Minute} {
		for i := 0; i < n-1; i += 101 {
			if fresh, _ := b.Add(name(i), begin.Add(later)); fresh {
				t.Fatalf("name %d is new after %v", i, later)
			}
		}
	}
	if _, room := b.Add(name(n+1), begin.Add(19*time.Minute)); !room {
		t.Error("there is no room after 19 minutes")
	}
}

// TestFewNamesTakeLittleMemory begins as many sequences as there are workers to a node, in each of
// a hundred memories.
func TestFewNamesTakeLittleMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		m := newMemory(options{Sequences: 40, Bytes: 1, Answers: time.Minute, Numbers: time.Hour,
			FromOne: true})
		for i := range 40 {
			enter(t, m, fmt.Sprint(i), 1, 0, replay.Fresh)
		}
	}
	runtime.ReadMemStats(&after)
	if bytes := (after.TotalAlloc - before.TotalAlloc) / 100; bytes > 64<<10 {
		t.Errorf("a memory with 40 sequences allocated %d bytes", bytes)
	}
}

// model is a memory and, to compare it with, a list of all requests that were ever carried out.
type model struct {
	*testing.T
	opt     options
	m       *memory
	rnd     *rand.Rand
	now     time.Time
	entered map[string]map[uint64]time.Time // when each request first came
	answer  map[string]map[uint64]string
	running []*request
	names   map[*request]string
	seqs    map[*request]uint64
	used    map[string]time.Time // when the last request of a sequence was last used
	lost    map[string]bool      // unused for so long that the answer may be forgotten
	roomy   bool                 // there is room for everything
	kinds   map[string]int
}

// modelKeys is the number of sequences.
const modelKeys = 8

// TestModel sends requests and copies of them in any order, as long as no sender would have given
// up: each is carried out once, a copy gets the same answer or none, and bounds are kept. Answers
// within the bounds of room and time are kept.
func TestModel(t *testing.T) {
	kinds := map[string]int{}
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		m := &model{T: t, rnd: rnd, now: begin, kinds: kinds,
			opt: options{Sequences: 1 + rnd.IntN(6), Bytes: rnd.IntN(60), FromOne: rnd.IntN(2) == 0,
				Answers: time.Minute, Numbers: time.Duration(1+rnd.IntN(10)) * time.Minute},
			entered: map[string]map[uint64]time.Time{}, answer: map[string]map[uint64]string{},
			names: map[*request]string{}, seqs: map[*request]uint64{},
			used: map[string]time.Time{}, lost: map[string]bool{}}
		if m.roomy = rnd.IntN(3) == 0; m.roomy {
			m.opt.Sequences, m.opt.Bytes = modelKeys, modelKeys*50
		}
		m.m = newMemory(m.opt)
		for range 300 {
			m.step()
		}
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, m.opt)
		}
	}
	for _, kind := range []string{"fresh", "answered", "forgotten", "under way", "stale", "full"} {
		if kinds[kind] == 0 {
			t.Errorf("no request was ever %s: %v", kind, kinds)
		}
	}
}

func (m *model) step() {
	m.now = m.now.Add(time.Duration(m.rnd.Int64N(int64(20 * time.Second))))
	key := fmt.Sprint("k", m.rnd.IntN(modelKeys))
	seq := uint64(1 + m.rnd.IntN(4))
	first, was := m.entered[key][seq]
	switch {
	case len(m.running) > 0 && m.rnd.IntN(2) == 0:
		m.finish()
	case was && m.now.Sub(first) >= m.opt.Numbers: // no client sends it any more
	default:
		m.enter(key, seq, was)
	}
	n, bytes := m.m.Size()
	if n > m.opt.Sequences || bytes > m.opt.Bytes || bytes < 0 {
		m.Errorf("%d sequences, %d bytes", n, bytes)
	}
}

func (m *model) enter(key string, seq uint64, was bool) {
	r, v := m.m.Begin(key, seq, 0, m.now)
	kept := !m.lost[key] && m.now.Sub(m.used[key]) < m.opt.Answers
	m.used[key], m.lost[key] = m.now, !kept
	switch v {
	case replay.Fresh:
		m.kinds["fresh"]++
		if was {
			m.Errorf("%s %d is carried out again", key, seq)
		}
		if m.entered[key] == nil {
			m.entered[key], m.answer[key] = map[uint64]time.Time{}, map[uint64]string{}
		}
		m.entered[key][seq], m.lost[key] = m.now, false
		m.running = append(m.running, r)
		m.names[r], m.seqs[r] = key, seq
	case replay.Repeated:
		if !was {
			m.Errorf("%s %d was never there before", key, seq)
		}
		m.hear(key, seq, r, kept)
	case replay.Stale:
		m.kinds["stale"]++
	case replay.Full:
		m.kinds["full"]++
		if n, _ := m.m.Size(); n < m.opt.Sequences || m.opt.FromOne {
			m.Errorf("full with %d sequences", n)
		}
	default:
		m.Errorf("%s %d: %d", key, seq, v)
	}
}

// hear checks an answer. kept means that it can't have been forgotten.
func (m *model) hear(key string, seq uint64, r *request, kept bool) {
	want, finished := m.answer[key][seq]
	got, s := m.m.AwaitAnswer(r, 0)
	switch s {
	case replay.Answered:
		m.kinds["answered"]++
		if !finished || got != want {
			m.Errorf("%s %d: %q, want %q", key, seq, got, want)
		}
	case replay.Forgotten:
		m.kinds["forgotten"]++
		if kept && m.roomy {
			m.Errorf("%s %d is forgotten already", key, seq)
		}
	case replay.UnderWay:
		m.kinds["under way"]++
		if finished {
			m.Errorf("%s %d is under way for good", key, seq)
		}
	}
}

// finish answers a request.
func (m *model) finish() {
	i := m.rnd.IntN(len(m.running))
	r := m.running[i]
	m.running = append(m.running[:i], m.running[i+1:]...)
	key, seq := m.names[r], m.seqs[r]
	answer := fmt.Sprintf("%s-%d-%0*d", key, seq, m.rnd.IntN(20), 0)
	m.answer[key][seq] = answer
	m.m.Finish(r, answer, len(answer))
}

// BenchmarkEnter enters, answers and repeats requests of as many sequences as are remembered.
func BenchmarkEnter(b *testing.B) {
	m := replay.New[[64]byte, struct{}, []byte](replay.Options[struct{}]{Sequences: 8192,
		Bytes: 32 << 20, Answers: time.Minute, Numbers: time.Hour})
	var key [64]byte
	answer := make([]byte, 100)
	b.ReportAllocs()
	for i := range b.N {
		key[0], key[1] = byte(i), byte(i>>8)&31
		r, v := m.Begin(key, uint64(i), struct{}{}, begin)
		if v != replay.Fresh {
			b.Fatal(v)
		}
		m.Finish(r, answer, len(answer))
	}
}
