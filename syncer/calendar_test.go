package syncer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// monthLadder returns the default ladder with quarters of an hour for more than a month.
func monthLadder(t *testing.T) *leaparray.Ladder {
	t.Helper()
	levels := leaparray.DefaultLevels()
	levels[len(levels)-1].Count = 3072
	l, err := leaparray.NewLadder(leaparray.DefaultExact, levels...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// openCalendar opens a counter whose ladder covers a month.
func openCalendar(t *testing.T, clk *clock) *syncer.Counter {
	t.Helper()
	return open(t, syncer.Options{Now: clk.Now, Namespaces: map[string]syncer.Namespace{
		twotier.DefaultNamespace: {Ladder: monthLadder(t)}}})
}

func period(t *testing.T, text string) *twotier.Period {
	t.Helper()
	p, err := twotier.ParsePeriod(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func moment(t *testing.T, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMilli()
}

func TestCalendarLimit(t *testing.T) {
	clk := &clock{now: moment(t, "2026-07-13T23:00:00+01:00")}
	c := openCalendar(t, clk)
	monthly := []twotier.Limit{{Max: 3, Period: period(t, "month.14@Europe/Lisbon")}}
	for i := range int64(3) {
		res := acquire(t, c, "k", 1, 0, monthly)
		if lr := res.Checks[0].Limits[0]; !res.Allowed || lr.Count != i+1 || lr.Period == nil {
			t.Fatalf("acquire %d: %+v", i, res)
		}
	}
	res := acquire(t, c, "k", 1, 0, monthly)
	if res.Allowed || res.RetryAfter != time.Hour.Milliseconds() {
		t.Errorf("the fourth: %+v, want a refusal until the 14th", res)
	}
	if res := acquire(t, c, "k", 4, 0, monthly); res.Allowed || res.RetryAfter != -1 {
		t.Errorf("4 of 3: %+v, want a refusal forever", res)
	}
	// An event ahead of the present is in the period of its time.
	clk.set(moment(t, "2026-07-14T00:00:00+01:00") - 1)
	add(t, c, "k", 2, clk.Now()+1000)
	if res := acquire(t, c, "k", 1, 0, monthly); res.RetryAfter != 1 {
		t.Errorf("a millisecond before the 14th: %+v", res)
	}
	clk.set(clk.Now() + 1)
	if res := acquire(t, c, "k", 2, 0, monthly); res.Allowed {
		t.Errorf("2 beside 2 of 3: %+v", res)
	}
	if res := acquire(t, c, "k", 1, 0, monthly); !res.Allowed {
		t.Errorf("on the 14th: %+v", res)
	}
	// A late event belongs to the period of its time, which is full.
	if res := acquire(t, c, "k", 1, clk.Now()-5000, monthly); res.Allowed {
		t.Errorf("a late event: %+v", res)
	}
	clk.set(clk.Now() + 2000)
	for _, kind := range []twotier.Kind{twotier.Count, twotier.Add} {
		res = do(t, c, twotier.Op{Kind: kind, Checks: []twotier.Check{{Key: []byte("k"), N: 1,
			Limits: monthly}}})
		if lr := res.Checks[0].Limits[0]; lr.Lo != 3+int64(1-kind) || lr.Hi != lr.Lo ||
			res.Allowed != (kind == twotier.Count) {
			t.Errorf("kind %v: %+v", kind, res)
		}
	}
}

// TestCalendarLimitsAreNew counts first and judges later: a new quota has its history at once.
func TestCalendarLimitsAreNew(t *testing.T) {
	clk := &clock{now: moment(t, "2026-03-01T00:00:00Z")}
	c := openCalendar(t, clk)
	for range 30 {
		add(t, c, "k", 10, 0)
		clk.set(clk.Now() + 24*time.Hour.Milliseconds())
	}
	for text, want := range map[string]int64{"month": 300, "month.15": 160, "week.7": 20,
		"day": 0, "hour": 0} {
		res := acquire(t, c, "k", 0, 0, []twotier.Limit{{Max: want, Period: period(t, text)}})
		if lr := res.Checks[0].Limits[0]; lr.Count != want || res.Allowed || lr.BucketMS != 1 {
			t.Errorf("%s: %+v, want %d", text, res, want)
		}
	}
}

func TestCalendarWindowsBeyondTheLadder(t *testing.T) {
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now})
	for _, kind := range []twotier.Kind{twotier.Add, twotier.Acquire} {
		op := twotier.Op{Kind: kind, Checks: []twotier.Check{{Key: []byte("k"), N: 1,
			Limits: []twotier.Limit{{Max: 1, Period: period(t, "month")}}}}}
		err := c.Do(context.Background(), &op, new(twotier.Result))
		var invalid *twotier.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "window" ||
			!strings.Contains(err.Error(), "`1h x 768` in namespace default") {
			t.Errorf("a month: %v", err)
		}
	}
	wantCount(t, c, "k", 60_000, 0)
	if res := acquire(t, c, "k", 1, 0, []twotier.Limit{{Max: 1,
		Period: period(t, "day@America/New_York")}}); !res.Allowed {
		t.Errorf("a day: %+v", res)
	}
}

// TestCalendarLimitsLeaveRoomForReservations reserves two of three events. What may yet be counted
// is refused for a moment, and what is counted until the period ends.
func TestCalendarLimitsLeaveRoomForReservations(t *testing.T) {
	clk := &clock{now: moment(t, "2026-07-13T12:00:00Z")}
	c := openCalendar(t, clk)
	daily := []twotier.Limit{{Max: 3, Period: period(t, "day")}}
	op := twotier.Op{Kind: twotier.Acquire, Reserve: "id",
		Checks: []twotier.Check{{Key: []byte("k"), N: 2, Limits: daily}}}
	op.TS = clk.Now()
	if res := do(t, c, op); !res.Allowed {
		t.Fatalf("reserving: %+v", res)
	}
	if res := acquire(t, c, "k", 2, 0, daily); res.Allowed || res.RetryAfter > 1000 {
		t.Errorf("beside a reservation: %+v, want a refusal for a moment", res)
	}
	if res := acquire(t, c, "k", 1, 0, daily); !res.Allowed {
		t.Errorf("beside a reservation: %+v", res)
	}
	if err := c.Confirm(t.Context(), &op); err != nil {
		t.Fatal(err)
	}
	if res := acquire(t, c, "k", 1, 0, daily); res.Allowed ||
		res.RetryAfter != 12*time.Hour.Milliseconds() {
		t.Errorf("once it is counted: %+v, want a refusal until midnight", res)
	}
}

// TestCalendarLimitsLeaveRoomForLoans lends events to another counter. They count as used.
func TestCalendarLimitsLeaveRoomForLoans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoans(t, 1, prompt, twotier.Limit{Window: 60_000, Max: 10_000})
		l.ask(l.counters[1], 100)
		owner := l.counters[0].Counter
		daily := func(most int64) []twotier.Limit {
			return []twotier.Limit{{Max: most, Period: period(t, "day")}}
		}
		if res := acquire(t, owner, "hot", 1, 0, daily(100)); res.Allowed ||
			res.Checks[0].Limits[0].Hi != 100 {
			t.Errorf("1 of 100 beside a loan of 100: %+v", res)
		}
		if res := acquire(t, owner, "hot", 1, 0, daily(101)); !res.Allowed {
			t.Errorf("1 of 101 beside a loan of 100: %+v", res)
		}
	})
}

// calendarLabels number the periods that clocks and calendars show, independently of
// twotier.Period.
var calendarLabels = map[string]func(at time.Time) time.Time{
	"hour": func(at time.Time) time.Time { return wall(at, 0).Truncate(time.Hour) },
	"day":  func(at time.Time) time.Time { return wall(at, 0).Truncate(24 * time.Hour) },
	"day.6": func(at time.Time) time.Time {
		return wall(at, 6*time.Hour).Truncate(24 * time.Hour)
	},
	"week.3": func(at time.Time) time.Time { // Truncate begins weeks with Monday
		return wall(at, 48*time.Hour).Truncate(7 * 24 * time.Hour)
	},
	"month": func(at time.Time) time.Time {
		return time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
	},
	"month.31": func(at time.Time) time.Time {
		next := wall(at, 0).AddDate(0, 0, 1) // the last day of a month is the first of its period
		return time.Date(next.Year(), next.Month(), 1, 0, 0, 0, 0, time.UTC)
	},
}

// wall returns the time that clocks showed so long before the ones at a moment, as if in UTC.
func wall(at time.Time, before time.Duration) time.Time {
	return time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(),
		at.Nanosecond(), time.UTC).Add(-before)
}

// TestCalendarSumsAgainstExactLog compares counts and decisions with a log of all events, while
// clocks change in three zones, on a ladder whose buckets are much wider than events are apart.
func TestCalendarSumsAgainstExactLog(t *testing.T) {
	for _, zone := range []string{"Europe/Lisbon", "America/New_York", "Australia/Lord_Howe"} {
		for _, change := range []string{"2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z",
			"2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z", "2026-04-04T15:00:00Z",
			"2026-10-03T15:30:00Z"} {
			t.Run(zone+" "+change[:10], func(t *testing.T) {
				t.Parallel()
				of := seed.First()
				t.Logf("seed %d", of)
				walkCalendar(t, rand.New(rand.NewPCG(of, 1)), zone, moment(t, change))
			})
		}
	}
}

// walkCalendar counts from five days before a moment until four days after it.
func walkCalendar(t *testing.T, rnd *rand.Rand, name string, change int64) {
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	const hour = int64(time.Hour / time.Millisecond)
	clk := &clock{now: change - 5*24*hour}
	c := openCalendar(t, clk)
	var log []event
	for clk.now < change+4*24*hour {
		step := rnd.Int64N(hour)
		if d := change - clk.now; -3*hour < d && d < 3*hour {
			step /= 20 // more often when clocks change
		}
		clk.set(clk.now + step)
		e := event{ts: clk.now - rnd.Int64N(2)*rnd.Int64N(6*hour), n: 1 + rnd.Int64N(40)}
		add(t, c, "k", e.n, e.ts)
		log = append(log, e)
		for text, label := range calendarLabels {
			compareCalendar(t, c, clk.now, log, period(t, text+"@"+name),
				func(ms int64) time.Time { return label(time.UnixMilli(ms).In(zone)) })
		}
	}
}

// compareCalendar compares the count of the current period, and a decision at its edge, with a log.
func compareCalendar(t *testing.T, c *syncer.Counter, now int64, log []event, p *twotier.Period,
	label func(ms int64) time.Time) {
	t.Helper()
	want, today := int64(0), label(now)
	for _, e := range log {
		if label(e.ts).Equal(today) {
			want += e.n
		}
	}
	full := []twotier.Limit{{Max: want + 1, Period: p}}
	res := do(t, c, twotier.Op{Kind: twotier.Count,
		Checks: []twotier.Check{{Key: []byte("k"), Limits: full}}})
	if lr := res.Checks[0].Limits[0]; lr.Count != want || lr.Lo != want || lr.Hi != want {
		t.Fatalf("%v at %d: %+v, want %d", p, now, lr, want)
	}
	dry := twotier.Op{Kind: twotier.Acquire, DryRun: true,
		Checks: []twotier.Check{{Key: []byte("k"), N: 1, Limits: full}}}
	if res = do(t, c, dry); !res.Allowed || res.Checks[0].Limits[0].BucketMS != 1 {
		t.Fatalf("%v at %d: %+v, want room for 1 beside %d", p, now, res, want)
	}
	dry.Checks[0].N = 2
	res = do(t, c, dry)
	next := now + res.RetryAfter
	switch {
	case want == 0 && res.RetryAfter != -1:
		t.Fatalf("%v at %d: %+v, want a refusal forever", p, now, res)
	case want == 0:
	case res.Allowed || !label(next-1).Equal(today) || label(next).Equal(today):
		t.Fatalf("%v at %d: %+v, want a refusal until the period ends", p, now, res)
	}
}
