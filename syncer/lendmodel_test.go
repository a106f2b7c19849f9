package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier"
)

// TestLoansNeverExceedALimit is a model test: three counters lend each other a key and reserve some
// of it. Messages are lost, late, and arrive twice; borrowers can't flush, the partition moves, one
// of them dies, clocks step forward. Now and then one uses up everything that is left. The exact
// list of admissions never exceeds a limit in any window.
func TestLoansNeverExceedALimit(t *testing.T) {
	eachSeed(t, 20, func(t *testing.T, seed uint64) {
		m := &loanModel{loans: newLoans(t, seed, nil,
			twotier.Limit{Window: 2_000, Max: 500}, twotier.Limit{Window: 20_000, Max: 2_500})}
		m.run(m.moving)
	})
}

// TestLoansBetweenClocksThatDiffer is the same with borrowers whose clocks are ahead or behind. The
// owner stays the same, as its clock is the one that counts.
func TestLoansBetweenClocksThatDiffer(t *testing.T) {
	eachSeed(t, 20, func(t *testing.T, seed uint64) {
		m := &loanModel{loans: newLoans(t, seed, nil, twotier.Limit{Window: 2_000, Max: 500})}
		for _, b := range m.counters[1:] {
			b.skew.Store(int64(m.rnd.IntN(4000) - 2000))
		}
		m.run(m.staying)
	})
}

// loanModel is counters that lend each other a key, and the messages on their way between them.
type loanModel struct {
	*loans
	requests []message
	answers  []message
	reserved []reserved
}

// message is a request for a loan, or its answer, that arrives late.
type message struct {
	to, from *borrower
	q        twotier.LoanRequest
	a        twotier.LoanResponse
	asked    time.Time
}

// reserved is a reservation that is neither confirmed nor undone.
type reserved struct {
	op twotier.Op
	n  int64
	at time.Time
}

// run lets things happen in episodes. At the end of each, all counters use up everything that is
// left.
func (m *loanModel) run(step func(b *borrower)) {
	for range 60 {
		for range 10 + m.rnd.IntN(60) {
			step(m.counters[m.rnd.IntN(len(m.counters))])
		}
		for _, i := range m.rnd.Perm(len(m.counters)) {
			if b := m.counters[i]; !b.dead {
				m.drain(b)
			}
		}
		m.settle()
		m.check()
		m.forget()
		m.pause(3000)
	}
}

// forget forgets the admissions that have left every window.
func (m *loanModel) forget() {
	longest := m.limits[len(m.limits)-1].Window
	since := m.now().Add(-time.Duration(longest) * time.Millisecond)
	m.admitted = slices.DeleteFunc(m.admitted, since.After)
}

// moving is a step of counters with one clock, any of which may become the owner.
func (m *loanModel) moving(b *borrower) {
	switch n := m.rnd.IntN(400); {
	case b.dead:
	case n == 0 && b != m.lender():
		m.settle()
		m.hand(b)
	case n == 1 && b != m.lender() && m.names > 20 && !m.anyDead():
		b.dead = true
		b.StopOwning(0)
	case n < 4:
		m.stepped.Add(m.rnd.Int64N(300) * int64(time.Millisecond))
	case n == 4:
		m.stepped.Add(m.limits[0].Window * int64(3*time.Millisecond))
	default:
		m.staying(b)
	}
}

// staying is a step that keeps the owner of the key.
func (m *loanModel) staying(b *borrower) {
	switch n := m.rnd.IntN(100); {
	case b.dead:
	case n < 25 && b != m.lender():
		m.exchange(b)
	case n < 30:
		m.deliver()
	case n < 34:
		m.reserve()
	case n < 36:
		m.settle()
	case n < 38 && b != m.lender():
		b.heldUp.Store(!b.heldUp.Load())
	case n < 39:
		m.pause(4000)
	case n < 42:
		m.drain(m.lender())
	case n < 70:
		for range m.rnd.IntN(30) {
			m.acquire(b)
		}
	default:
		m.pause(150)
	}
}

func (m *loanModel) lender() *borrower { return m.counters[m.owner] }

func (m *loanModel) anyDead() bool {
	return slices.ContainsFunc(m.counters, func(b *borrower) bool { return b.dead })
}

func (m *loanModel) pause(most int) {
	time.Sleep(time.Duration(m.rnd.IntN(most)) * time.Millisecond)
}

// exchange asks the owner for a loan. The request or the answer may be late, or come twice.
func (m *loanModel) exchange(b *borrower) {
	asked, ok := m.prepare(b, int64(m.rnd.IntN(100)))
	if !ok {
		return
	}
	request := message{to: m.lender(), from: b, q: b.q, asked: asked}
	fate := m.rnd.IntN(10)
	if fate < 2 {
		m.requests = append(m.requests, request)
	}
	if fate == 0 {
		return
	}
	time.Sleep(time.Duration(m.rnd.IntN(5)) * time.Millisecond)
	if answer, ok := m.lend(request); ok {
		if m.rnd.IntN(5) == 0 {
			m.answers = append(m.answers, answer)
		} else {
			b.AcceptLoan(&answer.q, &answer.a, asked)
		}
	}
}

// lend has a request answered.
func (m *loanModel) lend(request message) (answer message, ok bool) {
	var err error
	answer = request
	answer.a, err = request.to.Lend(m.t.Context(), &request.q)
	return answer, err == nil
}

// deliver delivers one of the late messages.
func (m *loanModel) deliver() {
	if n := len(m.requests); n > 0 && m.rnd.IntN(2) == 0 {
		request := m.requests[m.rnd.IntN(n)]
		m.requests = nil
		if answer, ok := m.lend(request); ok {
			m.answers = append(m.answers, answer)
		}
		return
	}
	if n := len(m.answers); n > 0 {
		late := m.answers[m.rnd.IntN(n)]
		m.answers = nil
		if !late.from.dead {
			late.from.AcceptLoan(&late.q, &late.a, late.asked)
		}
	}
}

// reserve reserves some of the key at its owner.
func (m *loanModel) reserve() {
	r := reserved{n: 1 + int64(m.rnd.IntN(50)), at: m.now().Truncate(time.Millisecond)}
	r.op = twotier.Op{Kind: twotier.Acquire, Reserve: fmt.Sprint("r", m.names, len(m.reserved)),
		Checks: []twotier.Check{{Key: []byte("hot"), N: r.n, Limits: m.limits}}}
	var res twotier.Result
	if err := m.lender().Do(m.t.Context(), &r.op, &res); err != nil {
		m.t.Fatal(err)
	}
	if res.Allowed {
		r.op.TS = r.at.UnixMilli()
		m.reserved = append(m.reserved, r)
	}
	m.names++
}

// settle confirms or undoes the reservations.
func (m *loanModel) settle() {
	for _, r := range m.reserved {
		if m.rnd.IntN(4) == 0 {
			m.lender().Undo(&r.op)
			continue
		}
		err := m.lender().Confirm(context.Background(), &r.op)
		if err != nil && !errors.Is(err, twotier.ErrUnavailable) {
			m.t.Fatal(err)
		}
		for range r.n {
			m.admitted = append(m.admitted, r.at)
		}
	}
	m.reserved = nil
	slices.SortStableFunc(m.admitted, time.Time.Compare)
}
