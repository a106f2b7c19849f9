package shifts

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// TestShifts rouses shifts at random moments. Each is due within an interval plus a tenth, whatever
// the others do, and no more often. A shift that is never roused is due when its rest is over.
func TestShifts(t *testing.T) {
	const interval, rest = 100 * time.Millisecond, 2 * time.Second
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		s := New(8, interval, rest)
		asked, served := make([]time.Time, 8), make([]time.Time, 8)
		end := time.Now().Add(time.Minute)
		go func() {
			for time.Now().Before(end) {
				time.Sleep(time.Duration(rnd.Int64N(int64(interval))))
				h := s.list[min(rnd.IntN(9), 6)] // the last is never roused
				h.Rouse()
				s.mu.Lock()
				if asked[h.number].IsZero() {
					asked[h.number] = time.Now()
				}
				s.mu.Unlock()
			}
		}()
		turns, last := 0, 0
		for timer := s.Start(); time.Now().Before(end); {
			<-timer.C
			h := s.Next()
			if h == nil {
				continue
			}
			turns++
			if h.number == 7 {
				last++
			}
			s.mu.Lock()
			now, since := time.Now(), asked[h.number]
			if late := now.Sub(since); !since.IsZero() && late > interval*12/10 {
				t.Errorf("shift %d is due %v after it was roused", h.number, late)
			}
			if pause := now.Sub(served[h.number]); pause < interval*8/10 {
				t.Errorf("shift %d is due again after %v", h.number, pause)
			}
			asked[h.number], served[h.number] = time.Time{}, now
			s.mu.Unlock()
		}
		time.Sleep(interval)
		if last < 25 || last > 35 {
			t.Errorf("a shift that nobody rouses was due %d times in a minute", last)
		}
		if turns > 1300+35 {
			t.Errorf("%d turns, although shifts were roused about 1200 times", turns)
		}
	})
}

// TestShiftsThatAreLate: each turn takes longer than an interval, but the roused shifts still come
// one after the other.
func TestShiftsThatAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(4, 20*time.Millisecond, time.Second)
		timer := s.Start()
		for i := range 100 {
			<-timer.C
			h := s.Next()
			if h == nil || h.number != i%4 {
				t.Fatalf("turn %d is of %+v", i, h)
			}
			for _, o := range s.list {
				o.Rouse()
			}
			time.Sleep(time.Duration(15+i) * time.Millisecond)
		}
	})
}
