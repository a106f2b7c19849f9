package loans_test

import (
	"errors"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/loans"
)

// TestLendable covers how much one of several borrowers may be lent.
func TestLendable(t *testing.T) {
	for _, test := range []struct {
		name                              string
		most, left, lent, own, others, ok int64
	}{
		{"much is left: an eighth of it", 1_000_000, 800_000, 0, 0, 1, 100_000},
		{"divided among all", 1_000_000, 800_000, 0, 0, 4, 25_000},
		{"less what it has", 1_000_000, 700_000, 100_000, 40_000, 2, 0},
		{"little is left: a part of the limit", 1_000_000, 20_000, 0, 0, 1, 7812},
		{"less is left: half of it", 1_000_000, 1000, 0, 0, 1, 500},
		{"too little is left", 1_000_000, 30, 0, 0, 1, 0},
		{"nothing is left", 1_000_000, 0, 0, 0, 1, 0},
		{"less than nothing", 1_000_000, -5, 0, 0, 1, 0},
		{"a small limit", 100, 100, 0, 0, 1, 0},
	} {
		n := loans.Lendable(test.most, test.left, test.lent, test.own, test.others)
		if n != test.ok {
			t.Errorf("%s: %d, want %d", test.name, n, test.ok)
		}
	}
}

// minute is a limit of 10,000 events a minute.
func minute() []twotier.Limit { return []twotier.Limit{{Window: 60_000, Max: 10_000}} }

// noCounts returns the counts of a key without any.
func noCounts() *loans.Counts {
	return &loans.Counts{View: leaparray.View{Ladder: leaparray.Default(), Now: begin}, At: begin}
}

// begin is the time of the tests on the counter's clock.
const begin = 1_700_000_000_000

// lend answers a request, which must not be outdated.
func lend(t *testing.T, k *loans.Key, q *twotier.LoanRequest, counts *loans.Counts,
	now time.Time) twotier.LoanResponse {
	t.Helper()
	r, err := k.Lend(q, counts, begin, now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLoanLife follows a loan from its first request to its end, on both sides.
func TestLoanLife(t *testing.T) {
	var owner loans.Keys
	k, _ := owner.Share(nil, []byte("k"))
	now := time.Now()
	q := twotier.LoanRequest{Loan: "a", Limits: minute()}
	credit := loans.NewCredit(&q)
	credit.FillRequest(&q, 100)
	r := lend(t, k, &q, noCounts(), now)
	if r.Ceiling != 100 || k.LentWithin(60_000, begin, now) != 100 {
		t.Fatalf("lent %d, ceiling %d, want 100", k.LentWithin(60_000, begin, now), r.Ceiling)
	}
	credit.Accept(&r, now, now)
	check := twotier.Check{N: 60, Limits: minute()}
	op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{check}}
	if !credit.Valid(now) || !credit.Covers(&op, &check, 0, now) {
		t.Fatal("60 of 100 borrowed events are not covered")
	}
	credit.Use(60, begin, now)
	if credit.Covers(&op, &check, 0, now) {
		t.Error("120 of 100 borrowed events are covered")
	}
	if got := credit.Needed(); got != 60+60 {
		t.Errorf("demand %+v", got)
	}
	// The store acknowledges the 60 events, the rest is given back.
	now = now.Add(100 * time.Millisecond)
	credit.RecordStored(1, 0, true, now)
	credit.RecordStored(1, 1, true, now)
	credit.FillRequest(&q, 0)
	k.BeginRead()
	lend(t, k, &q, noCounts(), now)
	k.EndRead()
	if n := k.LentWithin(60_000, begin, now); n != 60 {
		t.Errorf("%d events count as lent before the owner reads them, want 60", n)
	}
	if !credit.IsRepaid(&q) {
		t.Error("the loan is not repaid")
	}
	k.BeginRead()
	k.EndRead()
	if n := k.LentWithin(60_000, begin, now); n != 0 || k.EndLoans(60_000, begin, now) {
		t.Errorf("%d events count as lent; the key is idle too early", n)
	}
	if late := now.Add(3 * time.Second); !k.EndLoans(60_000, begin+3000, late) {
		t.Error("the key is never idle")
	}
}

// TestUnknownLoans covers loans that the owner does not know, or has given up: the lent events are
// taken back, and count as lent until the borrower confirms that.
func TestUnknownLoans(t *testing.T) {
	now := time.Now()
	used := &loans.Counts{View: noCounts().View, At: begin, Reserved: 10_000}
	for _, test := range []struct {
		name          string
		counts        *loans.Counts
		ceiling, lent int64
	}{
		{"there is room for it", noCounts(), 500, 500},
		{"the limit is used up", used, 200, 500},
		{"the counts are unknown", nil, 200, 500},
	} {
		k := new(loans.Key)
		k.Adopt(&twotier.Loan{Name: "a", Number: 1, Ceiling: 500}, now)
		q := twotier.LoanRequest{Loan: "a", Number: 2, Limits: minute(), Ceiling: 500, InStore: 200}
		r := lend(t, k, &q, test.counts, now)
		lent := k.LentWithin(60_000, begin, now)
		if r.Ceiling != test.ceiling || lent != test.lent {
			t.Errorf("%s: ceiling %d, lent %d, want %d and %d", test.name, r.Ceiling, lent,
				test.ceiling, test.lent)
		}
	}
}

// TestOutdatedRequests covers requests and responses that arrive twice or late.
func TestOutdatedRequests(t *testing.T) {
	now, k := time.Now(), new(loans.Key)
	q := twotier.LoanRequest{Loan: "a", Limits: minute()}
	credit := loans.NewCredit(&q)
	credit.FillRequest(&q, 100)
	r := lend(t, k, &q, noCounts(), now)
	if _, err := k.Lend(&q, noCounts(), begin, now); !errors.Is(err, twotier.ErrUnavailable) {
		t.Errorf("the same request again: %v", err)
	}
	credit.Pause()
	credit.Accept(&r, now, now)
	check := twotier.Check{N: 1}
	if credit.Covers(&twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{check}}, &check, 0,
		now) {
		t.Error("a response from before a pause is accepted")
	}
}

// TestReservations covers reservations of several operations for the same key.
func TestReservations(t *testing.T) {
	var r loans.Reservations
	r.Add("1", nil, []byte("k"), 3)
	r.Add("2", nil, []byte("k"), 4)
	r.Add("2", []byte("n"), []byte("k"), 5)
	if n := r.ReservedEvents(nil, []byte("k")); n != 7 {
		t.Errorf("%d events reserved, want 7", n)
	}
	if r.Remove("2"); r.ReservedEvents(nil, []byte("k")) != 3 ||
		r.ReservedEvents([]byte("n"), []byte("k")) != 0 {
		t.Errorf("reserved after the end of one: %+v", r)
	}
}
