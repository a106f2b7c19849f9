package verdicts_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/verdicts"
)

// keeper is a node that counts the recorded operations by namespace and key, unless fail makes them
// fail.
type keeper struct {
	// fail returns the error for a key, if any.
	fail func(key string) error

	mu      sync.Mutex
	counts  map[string]int64
	batches []int
}

func (k *keeper) Record(_ context.Context, ops []twotier.Op, res []twotier.Result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.batches = append(k.batches, len(ops))
	for i := range ops {
		check := ops[i].Checks[0]
		if k.fail != nil {
			res[i].Err = k.fail(string(check.Key))
		}
		if res[i].Err == nil {
			k.counts[fmt.Sprintf("%s %s", check.NS, check.Key)] += check.N
		}
	}
}

// wall is the clock of the keeper.
func wall() int64 { return time.Now().UnixMilli() }

// text returns the recorded counts.
func (k *keeper) text() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(k.counts)) {
		lines = append(lines, fmt.Sprint(name, " ", k.counts[name]))
	}
	return strings.Join(lines, "\n")
}

// TestHistoryRecordsEverySecond records the new counts every second, and the rest at the end.
func TestHistoryRecordsEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, k := verdicts.New(), &keeper{counts: map[string]int64{}}
		h := verdicts.NewHistory(c, k, wall)
		h.Open()
		note(c, verdicts.HTTP, "", "", twotier.Allowed, 2)
		note(c, verdicts.RESP, "", "", twotier.Allowed, 3)
		note(c, verdicts.HTTP, "sms", "receiver", twotier.Refused, 1)
		time.Sleep(1500 * time.Millisecond)
		const first = "@verdicts @all/allowed 5\n@verdicts @all/refused 1\n" +
			"@verdicts default/allowed 5\n@verdicts sms/refused/receiver 1"
		if got := k.text(); got != first {
			t.Errorf("got\n%s\nwant\n%s", got, first)
		}
		time.Sleep(time.Minute) // nothing new: the node gets no operations
		note(c, verdicts.HTTP, "sms", "receiver", twotier.Refused, 4)
		note(c, verdicts.HTTP, "sms", "receiver", twotier.ShadowRefused, 7)
		h.Close()
		h.Close() // again
		const second = "@verdicts @all/allowed 5\n@verdicts @all/refused 5\n" +
			"@verdicts @all/shadow_refused 7\n@verdicts default/allowed 5\n" +
			"@verdicts sms/refused/receiver 5\n" +
			"@verdicts sms/shadow_refused/receiver 7"
		if got := k.text(); got != second || !slices.Equal(k.batches, []int{4, 4}) {
			t.Errorf("got\n%s\nwant\n%s\nin %v", got, second, k.batches)
		}
	})
}

// TestHistoryNeverCountsTwice repeats additions that certainly failed, and gives up additions of
// unknown outcome.
func TestHistoryNeverCountsTwice(t *testing.T) {
	c, k := verdicts.New(), &keeper{counts: map[string]int64{}}
	h := verdicts.NewHistory(c, k, wall)
	errs := map[string]error{"a/allowed": twotier.ErrUnavailable, "b/allowed": twotier.ErrFull,
		"c/allowed": twotier.ErrUnknownOutcome, "d/allowed": context.DeadlineExceeded}
	k.fail = func(key string) error { return errs[key] }
	for _, ns := range []string{"a", "b", "c", "d"} {
		note(c, verdicts.HTTP, ns, "", twotier.Allowed, 3)
	}
	h.Record()
	clear(errs)
	note(c, verdicts.HTTP, "c", "", twotier.Allowed, 1)
	h.Record()
	h.Record()
	const want = "@verdicts @all/allowed 13\n" +
		"@verdicts a/allowed 3\n@verdicts b/allowed 3\n@verdicts c/allowed 1"
	if got := k.text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if page := exposition(t, c); !strings.Contains(page,
		"\ntwotier_decisions_unrecorded_total 6\n") {
		t.Error(page)
	}
}

// TestHistoryOfManyRules needs several batches, and hashes names that can't be part of a key.
func TestHistoryOfManyRules(t *testing.T) {
	c, k := verdicts.New(), &keeper{counts: map[string]int64{}}
	const rules = 1200
	for i := range rules {
		note(c, verdicts.GRPC, "edge", fmt.Sprint("r", i), twotier.Allowed, 1)
	}
	note(c, verdicts.GRPC, "edge", "two\nlines", twotier.Allowed, 1)
	verdicts.NewHistory(c, k, wall).Record()
	hashed := 0
	for name := range k.counts {
		if strings.HasPrefix(name, "@verdicts sha256:") {
			hashed++
		}
	}
	if len(k.counts) != rules+2 || hashed != 1 || len(k.batches) != 2 {
		t.Errorf("%d keys, %d hashed, batches %v", len(k.counts), hashed, k.batches)
	}
}

// lateKeeper is a node that counts late, by the second in which it does.
type lateKeeper struct {
	delay   func() time.Duration
	seconds map[int64]int64
}

func (k *lateKeeper) Record(_ context.Context, ops []twotier.Op, _ []twotier.Result) {
	time.Sleep(k.delay())
	for i := range ops {
		if check := ops[i].Checks[0]; string(check.Key) == "@all/allowed" {
			k.seconds[time.Now().Unix()] += check.N
		}
	}
}

// TestHistoryOfSteadyTrafficIsSmooth counts ten decisions a second, whose additions are late by up
// to 400 ms. Whenever the process has started, no second is empty and none has those of another.
func TestHistoryOfSteadyTrafficIsSmooth(t *testing.T) {
	for phase := time.Duration(0); phase < time.Second; phase += 70 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(phase)))
			c, k := verdicts.New(), &lateKeeper{seconds: map[int64]int64{}}
			k.delay = func() time.Duration { return time.Duration(r.IntN(400)) * time.Millisecond }
			time.Sleep(phase)
			h := verdicts.NewHistory(c, k, wall)
			h.Open()
			time.Sleep(3 * time.Millisecond) // decisions and additions are never at the same time
			first := time.Now().Unix() + 2
			for range 300 {
				note(c, verdicts.HTTP, "", "", twotier.Allowed, 1)
				time.Sleep(100 * time.Millisecond)
			}
			last := time.Now().Unix() - 2
			h.Close()
			for second := first; second < last; second++ {
				if n := k.seconds[second]; n != 10 {
					t.Errorf("phase %v: %d decisions in a second, want 10", phase, n)
				}
			}
		})
	}
}
