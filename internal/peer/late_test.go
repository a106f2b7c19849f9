package peer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/hotkeys"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/simnet"
)

// counted returns how often the server has counted a key.
func (p *pair) counted(key string) int {
	p.fake.mu.Lock()
	defer p.fake.mu.Unlock()
	return p.fake.seen[key]
}

// dawdle makes the server take the given time for each message from now on.
func (p *pair) dawdle(d time.Duration) {
	p.fake.mu.Lock()
	defer p.fake.mu.Unlock()
	p.fake.delay = d
}

// TestShortDeadlines forwards with too little time to send a message: nothing is sent, and no
// caller gets the error that the node can't be reached. With a little more time the node answers.
func TestShortDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, simnet.Weather{Delay: 100 * time.Microsecond}, "", "")
		p.meet()
		for i, within := range []time.Duration{1, 300 * time.Microsecond, time.Millisecond,
			4 * time.Millisecond} {
			key := fmt.Sprint("short", i)
			if err := p.add(key, within); !errors.Is(err, rpc.ErrLate) ||
				!errors.Is(err, twotier.ErrUnavailable) {
				t.Errorf("%v: %v", within, err)
			}
			time.Sleep(time.Second)
			if n := p.counted(key); n != 0 {
				t.Errorf("%v: counted %d times", within, n)
			}
		}
		if err := p.add("long", 6*time.Millisecond); err != nil || p.counted("long") != 1 {
			t.Errorf("6ms: %v, counted %d times", err, p.counted("long"))
		}
	})
}

// TestAnswersAtTheDeadlineArrive has a node use all of its time: its answer still arrives.
func TestAnswersAtTheDeadlineArrive(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		p.dawdle(time.Hour)
		p.fake.end = 20 * time.Millisecond
		if err := p.add("k", time.Second); err != nil {
			t.Error(err)
		}
	})
}

// TestLateMessagesAreNotCarriedOut delays a task and a request until their sender has given up.
func TestLateMessagesAreNotCarriedOut(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		p.net.Slow("a", "b", 3*time.Second)
		if err := p.add("k", 200*time.Millisecond); !errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Errorf("a task: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := p.client.Ask(ctx, p.to, &hotkeys.LeaseRequest{},
			nil); !errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Errorf("a request: %v", err)
		}
		time.Sleep(10 * time.Second)
		if n := p.counted("k") + p.counted("spread"); n != 0 {
			t.Errorf("executed %d times, after its deadline", n)
		}
	})
}

// TestOneSlowMessageHoldsUpNobody has the node take long over more messages than there are workers.
// Others are answered, and the circuit stays closed.
func TestOneSlowMessageHoldsUpNobody(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		p.dawdle(1700 * time.Millisecond)
		slow := make(chan error, 4)
		for i := range cap(slow) {
			go func() { slow <- p.add(fmt.Sprint("slow", i), 2*time.Second) }()
			time.Sleep(600 * time.Millisecond / 4)
		}
		p.dawdle(0)
		began := time.Now()
		if err := p.add("other", 2*time.Second); err != nil ||
			time.Since(began) > 600*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		for range cap(slow) {
			if err := <-slow; err != nil {
				t.Errorf("slow: %v", err)
			}
		}
		if s := p.client.Stats(); len(s.Silent) > 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestAClassHoldsUpNoOther makes the node slow for tasks of one class. Tasks of another class don't
// wait for them.
func TestAClassHoldsUpNoOther(t *testing.T) {
	task := func(verb rpc.Verb, ack twotier.Ack) rpc.Task {
		return rpc.Task{Verb: verb, Op: twotier.Op{Kind: twotier.Add, Ack: ack}}
	}
	classes := [][]rpc.Task{
		{task(rpc.VerbDo, 0)},
		{task(rpc.VerbDo, twotier.AckStore)},
		{task(rpc.VerbCoordinate, 0)},
		{task(rpc.VerbReset, 0), task(rpc.VerbDrop, 0)},
	}
	for i, long := range classes {
		for j, short := range classes {
			for _, of := range long {
				for _, other := range short {
					if i != j {
						withPair(t, func(t *testing.T, p *pair) { p.holdsUpNoOther(of, other) })
					}
				}
			}
		}
	}
}

func (p *pair) holdsUpNoOther(of, other rpc.Task) {
	do := func(task rpc.Task, key string) error {
		task.Op.Checks = []twotier.Check{{Key: []byte(key), N: 1}}
		return p.do(task, 5*time.Second)
	}
	p.dawdle(time.Second)
	long := make(chan error, 4)
	for i := range cap(long) {
		go func() { long <- do(of, fmt.Sprint("long", i)) }()
	}
	time.Sleep(100 * time.Millisecond)
	p.dawdle(0)
	began := time.Now()
	if err := do(other, "other"); err != nil || time.Since(began) > 100*time.Millisecond {
		p.t.Errorf("%v, %v behind %v, %v: after %v: %v", other.Verb, other.Op.Ack, of.Verb,
			of.Op.Ack, time.Since(began), err)
	}
	for range cap(long) {
		if err := <-long; err != nil {
			p.t.Error(err)
		}
	}
}

// TestQueuedIsNotUnreachable lets a call wait behind others that wait for the store, until its time
// is up.
func TestQueuedIsNotUnreachable(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		p.dawdle(4 * time.Second)
		store := func(within time.Duration) error {
			task := adding("k")
			task.Op.Ack = twotier.AckStore
			return p.do(task, within)
		}
		for range 2 {
			go func() { _ = store(5 * time.Second) }()
			time.Sleep(5 * time.Millisecond)
		}
		if err := store(100 * time.Millisecond); !errors.Is(err, rpc.ErrLate) {
			t.Errorf("%v", err)
		}
		time.Sleep(10 * time.Second)
		if n := p.counted("k"); n != 2 {
			t.Errorf("counted %d times", n)
		}
	})
}

// TestAPatientCallerTakesNoTimeFromOthers shares a message between a caller that waits for longer
// than a message may take and one that does not.
func TestAPatientCallerTakesNoTimeFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, simnet.Weather{Delay: 20 * time.Millisecond}, "", "")
		p.meet()
		p.dawdle(200 * time.Millisecond)
		for i := range 2 { // these occupy the workers, so that the next two share one
			go func() { _ = p.add(fmt.Sprint("before", i), time.Second) }()
			time.Sleep(time.Millisecond)
		}
		p.dawdle(0)
		patient := make(chan error, 1)
		go func() { patient <- p.add("patient", 90*time.Second) }()
		time.Sleep(time.Millisecond)
		if err := p.add("hasty", 10*time.Second); err != nil {
			t.Errorf("with 10 s left: %v", err)
		}
		if err := <-patient; err != nil {
			t.Error(err)
		}
	})
}

// TestACallerDoesNotWaitForOthers shares a message between a caller with little time and one with
// much.
func TestACallerDoesNotWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, simnet.Weather{Delay: 20 * time.Millisecond}, "", "")
		p.meet()
		p.dawdle(time.Second)
		for i := range 2 { // these occupy the workers, so that the next two share one
			go func() { _ = p.add(fmt.Sprint("before", i), 1030*time.Millisecond) }()
			time.Sleep(time.Millisecond)
		}
		patient := make(chan error, 1)
		go func() { patient <- p.add("patient", 5*time.Second) }()
		began := time.Now()
		err := p.add("hasty", 400*time.Millisecond)
		if took := time.Since(began); took > 410*time.Millisecond ||
			!errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Errorf("after %v: %v", took, err)
		}
		if err := <-patient; err != nil {
			t.Error(err)
		}
	})
}

// monotonically returns a time with only its monotonic reading moved by d.
func monotonically(t time.Time, d time.Duration) time.Time {
	(*struct { // the layout of time.Time
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t)).ext += int64(d)
	return t
}

// TestDeadlinesInAnotherOrderByTheWallClock sends calls whose deadlines have another order by the
// wall clock than by the monotonic one, as when the wall clock is set back between them: no call
// ends earlier than the earliest deadline.
func TestDeadlinesInAnotherOrderByTheWallClock(t *testing.T) {
	now := time.Now()
	by := now.Add(time.Second)
	for _, apart := range []time.Duration{3 * time.Microsecond, time.Millisecond} {
		earlier := monotonically(by, -apart).Add(2 * time.Microsecond)
		want := by.Sub(earlier) + time.Microsecond
		for _, order := range [][]time.Time{{by, earlier}, {earlier, by}} {
			if got := peer.Leads(now, order...); !slices.Equal(got, []time.Duration{want, want}) {
				t.Errorf("%v apart: the calls end %v before the message, want %v", apart, got, want)
			}
		}
	}
}
