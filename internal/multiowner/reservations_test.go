package multiowner_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/syncer"
)

// TestOutcomesAreBounded decides more than can be remembered: what can't be remembered is not
// confirmed, and what was is forgotten after the time in which others ask, not before.
func TestOutcomesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := multiowner.NewReservations()
		refused, n := 0, 0
		for range 40 {
			for range 10_000 {
				id := fmt.Sprint(n)
				r.Add(id, "self", time.Now())
				if err := r.Confirm(id); errors.Is(err, syncer.ErrOverload) {
					refused++
				} else if err != nil {
					t.Fatal(err)
				}
				n++
			}
			time.Sleep(50 * time.Millisecond)
		}
		if r.Outcomes() > multiowner.MaxOutcomes || refused == 0 || r.Outcomes()+refused != n {
			t.Errorf("%d of %d are remembered, %d refused", r.Outcomes(), n, refused)
		}
		for turn := range 8 {
			confirmed, _ := r.Outcome("0")
			if asked := time.Duration(turn) * 4 * time.Second; confirmed &&
				asked > 20*time.Second || !confirmed && asked < 12*time.Second {
				t.Errorf("%v later the first is known as confirmed: %v", asked, confirmed)
			}
			time.Sleep(4 * time.Second)
			id := fmt.Sprint("later", turn) // a decision drops the oldest generation
			r.Add(id, "self", time.Now())
			if err := r.Confirm(id); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestOverdueReservationsAreToldOnce confirms some in time, and some not.
func TestOverdueReservationsAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := multiowner.NewReservations()
		r.Add("a", "other", time.Now())
		r.Add("b", "other", time.Now())
		time.Sleep(700 * time.Millisecond)
		r.Add("c", "other", time.Now())
		if err := r.Confirm("b"); err != nil {
			t.Error(err)
		}
		for _, test := range []struct {
			wait time.Duration
			want []string
		}{{0, nil}, {400 * time.Millisecond, []string{"a"}}, {100 * time.Millisecond, nil},
			{time.Second, []string{"c"}}, {time.Hour, nil}} {
			time.Sleep(test.wait)
			if got := r.Overdue(time.Now()); !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		}
	})
}

// TestSettledOutcomesAreForgotten at once, when all other owners have been told.
func TestSettledOutcomesAreForgotten(t *testing.T) {
	r := multiowner.NewReservations()
	r.Add("a", "self", time.Now())
	if err := r.Confirm("a"); err != nil || r.Outcomes() != 1 {
		t.Fatal(err, r.Outcomes())
	}
	r.Settled("a")
	if _, decided := r.Outcome("a"); decided || r.Outcomes() != 0 {
		t.Error("it is still known")
	}
}

// BenchmarkOutcomes decides reservations whose outcome has to be remembered, and looks for overdue
// ones as often as a node that decides 20,000 a second does. It reports how much memory is kept in
// the end, and the longest time that a look held the lock.
func BenchmarkOutcomes(b *testing.B) {
	r := multiowner.NewReservations()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	longest := time.Duration(0)
	refused := 0
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		id := rand.Text()
		r.Add(id, "self", time.Now())
		if r.Confirm(id) != nil {
			refused++
			_ = r.Undo(id)
		}
		if i++; i%5000 == 0 {
			began := time.Now()
			r.Overdue(began)
			longest = max(longest, time.Since(began))
		}
	}
	b.StopTimer()
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/(1<<20), "MiB-kept")
	b.ReportMetric(float64(longest.Microseconds()), "us-longest-look")
	b.ReportMetric(float64(refused)/float64(i), "refused/op")
	runtime.KeepAlive(r)
}
