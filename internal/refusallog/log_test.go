package refusallog_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/refusallog"
	"twotier.dev/twotier/internal/testing/must"
)

// bed is a log with a clock that the test moves.
type bed struct {
	*refusallog.Log
	now int64
}

func newBed(node string) *bed {
	b := &bed{now: 1_767_225_600_000}
	b.Log = refusallog.New(node, func() int64 { return b.now })
	return b
}

// record records a refusal, and returns its id.
func (b *bed) record(d *decisions.Decision) string {
	b.Record(d)
	return d.Refusal.String()
}

// refuse records a refusal of a key by a limit of a rule.
func (b *bed) refuse(key, rule string, count int64) string {
	return b.record(&decisions.Decision{Door: "http", Key: []byte(key), N: 1,
		Rule:       &twotier.Rule{Name: rule},
		RetryAfter: 1500, Version: 7, Limits: []twotier.LimitResult{
			{Window: 60_000, Max: 3, Count: count, Refused: true, Hi: count},
			{Window: 3_600_000, Max: 9, Count: count}}})
}

func (b *bed) find(t *testing.T, id string) refusallog.Refusal {
	t.Helper()
	r, err := b.Find(id)
	must.Succeed(t, err)
	return r
}

// TestEqualRefusalsShareARecord: equal refusals within a minute have one id, and their record
// describes the latest; anything else is a record of its own.
func TestEqualRefusalsShareARecord(t *testing.T) {
	b := newBed("n1")
	first := b.refuse("alice", "login", 3)
	b.now += 59_999
	if again := b.refuse("alice", "login", 4); again != first {
		t.Errorf("two ids within a minute: %s and %s", first, again)
	}
	r := b.find(t, first)
	if r.ID != first || r.Times != 2 || r.FirstAt != b.now-59_999 || r.At != b.now ||
		r.Count != 4 || r.Limit != 3 || r.Window != "1m" || r.NS != "default" ||
		r.Key != "alice" || r.Rule != "login" || r.Reason != "limit" || r.Version != 7 ||
		len(r.Limits) != 2 || !r.Limits[0].Refused || r.Limits[1].Refused {
		t.Errorf("%+v", r)
	}
	ids := map[string]bool{first: true, b.refuse("bob", "login", 3): true,
		b.refuse("alice", "other", 3): true}
	b.now++
	ids[b.refuse("alice", "login", 3)] = true
	if len(ids) != 4 {
		t.Errorf("%v", ids)
	}
	list := b.List([]byte("default"), []byte("alice"), 9)
	if len(list) != 3 || list[0].FirstAt != b.now || list[0].Rule != "login" {
		t.Errorf("%+v", list)
	}
	if short := b.List(nil, []byte("alice"), 1); len(short) != 1 || short[0].ID != list[0].ID {
		t.Errorf("%+v, want the newest of %+v", short, list)
	}
}

// TestRequestsOfOtherSizesAreOtherRefusals: a request for one event and one for seven have ids of
// their own, and random sizes make few records.
func TestRequestsOfOtherSizesAreOtherRefusals(t *testing.T) {
	b := newBed("n1")
	e := decisions.Decision{Door: "http", Key: []byte("alice"), N: 1}
	one := b.record(&e)
	e.N = 7
	seven := b.record(&e)
	e.N = 6
	six := b.record(&e)
	if r := b.find(t, one); r.N != 1 || r.Times != 1 {
		t.Errorf("of one event: %+v", r)
	}
	if r := b.find(t, seven); one == seven || six != seven || r.N != 6 || r.Times != 2 {
		t.Errorf("of seven events, and then six: %+v", r)
	}
	for e.N = range 4000 {
		b.Record(&e)
	}
	if n := len(b.List(nil, e.Key, 100)); n != 13 {
		t.Errorf("%d records of requests for up to 4000 events", n)
	}
}

// TestAHammeredKeyTakesNoRoom refuses one key a hundred thousand times an hour, and others once:
// those are still found.
func TestAHammeredKeyTakesNoRoom(t *testing.T) {
	b := newBed("n1")
	old := map[string]string{}
	for i := range 1000 {
		key := fmt.Sprint("user:", i)
		old[key] = b.refuse(key, "login", 3)
	}
	for range 59 {
		for range 2000 {
			b.refuse("hammered", "login", 3)
		}
		b.now += 60_000
	}
	for key, id := range old {
		if r := b.find(t, id); r.Key != key || r.Times != 1 {
			t.Errorf("%s: %+v", key, r)
		}
	}
	if n := len(b.List(nil, []byte("hammered"), 100)); n != 59 {
		t.Errorf("%d records of the hammered key in 59 minutes", n)
	}
}

// TestOldestGoFirst records more refusals than fit: the newest are found, the oldest are forgotten,
// and so is everything after an hour.
func TestOldestGoFirst(t *testing.T) {
	b := newBed("n1")
	var ids []string
	for i := range 40_000 {
		ids = append(ids, b.refuse(fmt.Sprint("user:", i), "login", 3))
	}
	found := 0
	for i, id := range ids {
		_, err := b.Find(id)
		if err == nil {
			found++
		}
		if i < 20_000 != (err != nil) && (i < 20_000 || i >= 28_000) {
			t.Fatalf("refusal %d of %d: %v", i, len(ids), err)
		}
		if err != nil && (!errors.Is(err, refusallog.ErrNotFound) ||
			!strings.Contains(err.Error(), "older than an hour")) {
			t.Fatal(err)
		}
	}
	if found != 16_384 {
		t.Errorf("%d refusals are kept", found)
	}
	last := ids[len(ids)-1]
	b.now += 3_599_999
	b.find(t, last)
	b.now++
	if _, err := b.Find(last); !errors.Is(err, refusallog.ErrNotFound) {
		t.Errorf("after an hour: %v", err)
	}
	if list := b.List(nil, []byte("user:39999"), 9); len(list) != 0 {
		t.Errorf("after an hour: %+v", list)
	}
}

// TestIDs: an id names its node, whatever that is called, and is unknown to another process.
func TestIDs(t *testing.T) {
	for _, node := range []string{"n1", "a.b.c-0", `a "b"` + "\n", "käse"} {
		b := newBed(node)
		id := b.refuse("alice", "", 3)
		if got, err := refusallog.NodeOf(id); got != node || err != nil {
			t.Errorf("%q: node %q, %v", id, got, err)
		}
		if strings.ContainsAny(id, "\" \n\\") || b.find(t, id).Node != node {
			t.Errorf("%q", id)
		}
		again := newBed(node)
		again.refuse("alice", "", 3)
		if _, err := again.Find(id); !errors.Is(err, refusallog.ErrNotFound) ||
			!strings.Contains(err.Error(), "since it was started") {
			t.Errorf("another process of the same name: %v", err)
		}
	}
	for _, id := range []string{"", "n1", ".1", "n1.", "n1.-1", "n1.zzzzzzzzzzzzzz", "%zz.1"} {
		if _, err := newBed("n1").Find(id); !errors.Is(err, refusallog.ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// TestReasons describes refusals by other causes than limits on events.
func TestReasons(t *testing.T) {
	b := newBed("n1")
	monthly, err := twotier.ParsePeriod("month@Europe/Lisbon")
	must.Succeed(t, err)
	for _, tt := range []struct {
		decision decisions.Decision
		want     string
	}{
		{decisions.Decision{Ban: &twotier.BanResult{Until: 5}, Limits: []twotier.LimitResult{
			{Window: 1000, Max: 1, Count: 1, Refused: true}}}, "ban  0/0 until 5"},
		{decisions.Decision{Ban: &twotier.BanResult{Until: 5, Started: true},
			Limits: []twotier.LimitResult{{Window: 1000, Max: 1, Count: 1, Refused: true}}},
			"limit 1s 1/1 until 5"},
		{decisions.Decision{Lease: &twotier.LeaseResult{Lease: twotier.Lease{Max: 4}, Open: 5}},
			"concurrent  5/4 until 0"},
		{decisions.Decision{Distinct: true, Limits: []twotier.LimitResult{
			{Window: 86_400_000, Max: 3, Count: 3, Refused: true}}}, "distinct 24h 3/3 until 0"},
		{decisions.Decision{Limits: []twotier.LimitResult{{Period: monthly, Max: 3, Count: 2,
			Refused: true}}}, "limit month@Europe/Lisbon 2/3 until 0"},
		{decisions.Decision{}, "cold  0/0 until 0"},
	} {
		tt.decision.Key, tt.decision.Door = []byte("k"), "resp"
		r := b.find(t, b.record(&tt.decision))
		if got := fmt.Sprintf("%s %s %d/%d until %d", r.Reason, r.Window, r.Count, r.Limit,
			r.Until); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}

// TestManyLimits: a record keeps the limits that refused, and bounds the others.
func TestManyLimits(t *testing.T) {
	b := newBed("n1")
	e := decisions.Decision{Key: []byte("k")}
	for i := range int64(200) {
		e.Limits = append(e.Limits, twotier.LimitResult{Window: 1000 + i, Max: 1,
			Refused: i >= 190})
	}
	if r := b.find(t, b.record(&e)); len(r.Limits) != 8 || r.Window != "1.19s" {
		t.Errorf("%+v", r)
	}
}

// TestConcurrentUse records, lists and finds at the same time, for the race detector.
func TestConcurrentUse(t *testing.T) {
	b := newBed("n1")
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 500 {
				key := fmt.Sprint("user:", i%7)
				id := b.refuse(key, "login", 3)
				if r, err := b.Find(id); err != nil || r.Key != key ||
					len(b.List(nil, []byte(key), 3)) == 0 {
					t.Errorf("goroutine %d: %+v, %v", g, r, err)
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkRecord records refusals: of one key again and again, and each of another key.
func BenchmarkRecord(b *testing.B) {
	e := decisions.Decision{Door: "http", Key: []byte("user:1234567"), N: 1,
		Rule:   &twotier.Rule{Name: "login"},
		Limits: []twotier.LimitResult{{Window: 60_000, Max: 3, Count: 3, Refused: true}}}
	b.Run("equal", func(b *testing.B) {
		log := refusallog.New("n1", func() int64 { return 1_767_225_600_000 })
		b.ReportAllocs()
		for b.Loop() {
			log.Record(&e)
		}
	})
	b.Run("different", func(b *testing.B) {
		log := refusallog.New("n1", func() int64 { return 1_767_225_600_000 })
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			for j := range 7 {
				e.Key[5+j] = '0' + byte(i>>(3*j)&7)
			}
			log.Record(&e)
		}
	})
}
