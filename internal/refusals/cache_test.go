package refusals_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/refusals"
	"twotier.dev/twotier/internal/testing/must"
)

// acquire returns an operation on one key, and the owner's refusal of it.
func acquire(key string, retryMS int64) (*twotier.Op, *twotier.Result) {
	op := &twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{
		{Key: []byte(key), N: 1, Limits: []twotier.Limit{{Window: 60_000, Max: 5}}},
	}}
	res := &twotier.Result{Source: twotier.SourceOwner, RetryAfter: retryMS}
	check := res.AddCheck()
	check.Refused, check.RetryAfter = true, retryMS
	check.Limits = append(check.Limits, twotier.LimitResult{Count: 5})
	return op, res
}

// most is the approximate number of refusals that the caches of these tests remember.
const most = 1 << 12

// open returns a cache in a bubble whose time the test advances.
func open(t *testing.T) *refusals.Cache {
	t.Helper()
	c := new(refusals.Cache)
	must.Succeed(t, c.Open(most))
	t.Cleanup(c.Close)
	return c
}

// TestRefusalIsRememberedUntilItCouldPass refuses the same operation immediately, with a shorter
// wait as time passes, and asks the owner again when it could pass.
func TestRefusalIsRememberedUntilItCouldPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		op, refused := acquire("k", 300)
		c.Record(op, refused)
		c.Wait()
		time.Sleep(100 * time.Millisecond)
		var res twotier.Result
		if !c.Refuse(op, &res) {
			t.Fatal("a refusal is not remembered")
		}
		if res.Allowed || res.Source != twotier.SourceNear || res.RetryAfter != 200 ||
			res.AgeMS != 100 ||
			len(res.Checks) != 1 || !res.Checks[0].Refused || res.Checks[0].Limits[0].Count != 5 {
			t.Errorf("answered %+v", res)
		}
		time.Sleep(200 * time.Millisecond)
		if c.Refuse(op, &res) {
			t.Error("refused although it could pass")
		}
		if c.Hits() != 1 {
			t.Errorf("%d hits, want 1", c.Hits())
		}
	})
}

// TestRefusalIsRememberedForASecond checks that a refusal is forgotten after a second, even if the
// key can't pass for an hour, or ever.
func TestRefusalIsRememberedForASecond(t *testing.T) {
	for _, retry := range []int64{3_600_000, -1} {
		synctest.Test(t, func(t *testing.T) {
			c := open(t)
			op, refused := acquire("k", retry)
			c.Record(op, refused)
			c.Wait()
			time.Sleep(900 * time.Millisecond)
			if !c.Refuse(op, new(twotier.Result)) {
				t.Error("forgotten within a second")
			}
			time.Sleep(200 * time.Millisecond)
			if c.Refuse(op, new(twotier.Result)) {
				t.Error("remembered for more than a second")
			}
		})
	}
}

// TestOnlyTheSameIsRefused asks for different operations on the same key: each of them might pass.
func TestOnlyTheSameIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		op, refused := acquire("k", 900)
		c.Record(op, refused)
		c.Wait()
		for name, change := range map[string]func(op *twotier.Op){
			"another key":       func(op *twotier.Op) { op.Checks[0].Key = []byte("l") },
			"another namespace": func(op *twotier.Op) { op.Checks[0].NS = []byte("ns") },
			"another amount":    func(op *twotier.Op) { op.Checks[0].N = 2 },
			"another limit":     func(op *twotier.Op) { op.Checks[0].Limits[0].Max = 6 },
			"a calendar limit": func(op *twotier.Op) {
				op.Checks[0].Limits[0] = twotier.Limit{Max: 5, Period: period(t, "day")}
			},
			"in the past":          func(op *twotier.Op) { op.TS = 1 },
			"an add":               func(op *twotier.Op) { op.Kind = twotier.Add },
			"counted when refused": func(op *twotier.Op) { op.CountDenied = true },
			"with another key's too": func(op *twotier.Op) {
				op.Checks = append(op.Checks, op.Checks[0])
			},
		} {
			other, _ := acquire("k", 900)
			change(other)
			if c.Refuse(other, new(twotier.Result)) {
				t.Errorf("%s: refused from memory", name)
			}
		}
		named, _ := acquire("k", 900)
		named.Checks[0].NS = []byte(twotier.DefaultNamespace)
		if !c.Refuse(named, new(twotier.Result)) {
			t.Error("the default namespace, by its name, is taken for another")
		}
	})
}

// TestCalendarRefusals remembers the refusal of one period, and not of another one.
func TestCalendarRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		op, refused := acquire("k", 900)
		op.Checks[0].Limits[0] = twotier.Limit{Max: 5, Period: period(t, "day@Asia/Shanghai")}
		c.Record(op, refused)
		c.Wait()
		other, _ := acquire("k", 900)
		other.Checks[0].Limits[0] = twotier.Limit{Max: 5, Period: period(t, "day")}
		if c.Refuse(other, new(twotier.Result)) {
			t.Error("refused by another zone's day")
		}
		other.Checks[0].Limits[0].Period = period(t, "day@Asia/Shanghai")
		if !c.Refuse(other, new(twotier.Result)) {
			t.Error("the refusal of a day is not remembered")
		}
	})
}

func period(t *testing.T, text string) *twotier.Period {
	t.Helper()
	p, err := twotier.ParsePeriod(text)
	must.Succeed(t, err)
	return p
}

// TestWhatIsNotRemembered notes answers that don't predict the next one.
func TestWhatIsNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		for name, change := range map[string]func(res *twotier.Result){
			"allowed":  func(res *twotier.Result) { res.Allowed = true },
			"degraded": func(res *twotier.Result) { res.Degraded = true },
			"at once":  func(res *twotier.Result) { res.RetryAfter = 0 },
		} {
			op, res := acquire(name, 900)
			change(res)
			c.Record(op, res)
			c.Wait()
			if c.Refuse(op, new(twotier.Result)) {
				t.Errorf("%s: remembered", name)
			}
		}
	})
}

// TestTakingBackForgets forgets earlier refusals: after an add of a negative number, and by name.
func TestTakingBackForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, forget := range map[string]func(c *refusals.Cache, op *twotier.Op){
			"a negative add": func(c *refusals.Cache, op *twotier.Op) {
				check := op.Checks[0]
				check.N = -1
				back := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{check}}
				c.Record(&back, &twotier.Result{})
			},
			"a reset": func(c *refusals.Cache, op *twotier.Op) { c.Forget(&op.Checks[0]) },
		} {
			c := open(t)
			op, refused := acquire("k", 900)
			c.Record(op, refused)
			c.Wait()
			forget(c, op)
			c.Wait()
			if c.Refuse(op, new(twotier.Result)) {
				t.Errorf("%s: still refused", name)
			}
		}
	})
}

// TestResetForgets forgets the refusals before a reset, and those noted while the reset is in
// progress.
func TestResetForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		op, refused := acquire("k", 3_600_000)
		c.Record(op, refused)
		c.Wait()
		c.Reset(&op.Checks[0])
		for range 50 {
			c.Record(op, refused)
			c.Wait()
			if c.Refuse(op, new(twotier.Result)) {
				t.Fatal("refused from memory while the key is being reset")
			}
			time.Sleep(100 * time.Millisecond)
		}
		c.Record(op, refused)
		c.Wait()
		if !c.Refuse(op, new(twotier.Result)) {
			t.Error("a refusal after the reset is not remembered")
		}
	})
}

// TestRefusalsAreBounded notes three times as many refusals as fit.
func TestRefusalsAreBounded(t *testing.T) {
	c := open(t)
	for i := range 3 * most {
		c.Record(acquire(fmt.Sprint(i), -1))
	}
	c.Wait()
	kept := 0
	for i := range 3 * most {
		op, _ := acquire(fmt.Sprint(i), -1)
		if c.Refuse(op, new(twotier.Result)) {
			kept++
		}
	}
	if kept > most {
		t.Errorf("%d refusals are remembered, want at most %d", kept, most)
	}
}

// TestClosedRemembersNothing checks a cache that was never opened, as on a node outside of a
// cluster.
func TestClosedRemembersNothing(t *testing.T) {
	var c refusals.Cache
	op, refused := acquire("k", 900)
	c.Record(op, refused)
	c.Forget(&op.Checks[0])
	if c.Refuse(op, new(twotier.Result)) {
		t.Error("remembered without being open")
	}
	c.Close()
}

// TestNothingRememberedTakesNoMemory asks about a key without remembered refusals.
func TestNothingRememberedTakesNoMemory(t *testing.T) {
	c := new(refusals.Cache)
	must.Succeed(t, c.Open(most))
	defer c.Close()
	other, refused := acquire("other", -1)
	c.Record(other, refused)
	op, _ := acquire("k", 0)
	var res twotier.Result
	if n := testing.AllocsPerRun(100, func() { c.Refuse(op, &res) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkNothingRemembered asks about keys without remembered refusals, as a node does for each
// acquire that it forwards.
func BenchmarkNothingRemembered(b *testing.B) {
	c := new(refusals.Cache)
	must.Succeed(b, c.Open(1<<14))
	defer c.Close()
	var ops []*twotier.Op
	for i := range 1000 {
		op, _ := acquire(fmt.Sprint("user:", i), 0)
		ops = append(ops, op)
	}
	var res twotier.Result
	b.ReportAllocs()
	for i := range b.N {
		if c.Refuse(ops[i%len(ops)], &res) {
			b.Fatal("refused")
		}
	}
}
