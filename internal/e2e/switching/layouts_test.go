package switching

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// layout is how a limiter keeps what it has counted.
type layout struct {
	name string
	args string // of the import, with P for the prefix of the keys
	// write writes the state as the limiter would have left it at a time.
	write func(l *limiterState)
	// windows is set if the part of the window that has passed makes a difference.
	windows bool
	// fails is a part of the reason if nothing can be counted, and warns of a warning.
	fails, warns string
}

// limiterState is the state of a limiter whose window had passed by some part when it was written.
type limiterState struct {
	*bed
	*rand.Rand
	prefix string
	now    int64
	window int64 // in milliseconds
	phase  float64

	total int64
	// after returns the limiter's count some time later, if there are no more events, and how
	// far the import may be off.
	after func(later int64) (count, off int64)
}

// passed returns how much of the present window has passed.
func (l *limiterState) passed() int64 { return int64(l.phase * float64(l.window)) }

// set writes a number that expires, or stays if that is 0.
func (l *limiterState) set(key string, n, expires int64) {
	l.Helper()
	err := l.old.Set(l.Context(), l.prefix+key, n, 0).Err()
	if err == nil && expires > 0 {
		err = l.old.PExpireAt(l.Context(), l.prefix+key, time.UnixMilli(expires)).Err()
	}
	if err != nil {
		l.Fatal(err)
	}
	l.total += n
}

// events makes a log of the last window, and of some time before it.
func (l *limiterState) events(before int64) (list log) {
	for range 30 {
		list = append(list, l.now-1-l.Int64N(l.window+before))
	}
	l.total = int64(len(list))
	l.after = func(later int64) (count, off int64) {
		for _, ts := range list {
			if ts > l.now+later-l.window {
				count++
			}
		}
		return count, 0
	}
	return list
}

// fixed makes the number of a window that the limiter forgets at a time.
func (l *limiterState) fixed(start, expires, forgotten int64) {
	n := 1 + l.Int64N(900)
	l.set(fmt.Sprint("ann", l.suffix(start)), n, expires)
	l.after = func(later int64) (int64, int64) {
		if l.now+later >= forgotten {
			return 0, 0
		}
		return n, 0
	}
}

// suffix returns the number of a window that begins at a time, if names have it.
func (l *limiterState) suffix(start int64) string {
	if start == 0 {
		return ""
	}
	return fmt.Sprint(":", start/l.window)
}

// weighted makes the numbers of two windows, with the names and the ends that they are given.
func (l *limiterState) weighted(set func(start, n int64)) {
	begun := l.now - l.passed()
	previous, present := 1+l.Int64N(300), 1+l.Int64N(300)
	set(begun-l.window, previous)
	set(begun, present)
	l.after = func(later int64) (count, off int64) {
		at := l.passed() + later
		off = 2 + previous/32
		if at < l.window { // a bucket at the edge of the window
			return present + previous - previous*at/l.window, off
		}
		// The limiter assumes events to come in the rest of the window. An exact log has none.
		return present * (2*l.window - at - (l.window - l.passed())) / max(1, l.passed()),
			off + present/32 + 1
	}
}

// elementLayouts have an element for each event.
func elementLayouts() []layout {
	return []layout{
		{name: "zset", args: "--pattern P{key}", write: func(l *limiterState) {
			for i, ts := range l.events(l.window / 3) {
				l.old.ZAdd(l.Context(), l.prefix+"ann", redis.Z{Score: float64(ts), Member: i})
			}
		}},
		{name: "zset with weights", args: "--pattern P{key} --member {id}:{n}",
			write: func(l *limiterState) {
				weight := map[int64]int64{}
				for i, ts := range l.events(0) {
					weight[ts] += int64(i) * 40
					l.total += int64(i)*40 - 1
					l.old.ZAdd(l.Context(), l.prefix+"ann", redis.Z{Score: float64(ts),
						Member: fmt.Sprint("a:", i, ":", i*40)})
				}
				l.after = func(later int64) (count, off int64) {
					for ts, n := range weight {
						if ts > l.now+later-l.window {
							count += n
						}
					}
					return count, 0
				}
			}},
		{name: "list", args: "--pattern P{key}", write: func(l *limiterState) {
			for _, ts := range l.events(0) {
				l.old.LPush(l.Context(), l.prefix+"ann", fmt.Sprintf("%.6f", float64(ts)/1000))
			}
		}},
		{name: "hash", args: "--pattern P{key}", write: func(l *limiterState) {
			log := l.events(0)
			for _, ts := range log {
				l.old.HIncrBy(l.Context(), l.prefix+"ann", fmt.Sprint(ts), 1)
			}
		}},
	}
}

// fixedLayouts have a number for each window.
func fixedLayouts() []layout {
	return []layout{
		{name: "fixed", windows: true,
			args: "--pattern P{key} --format fixed --window W",
			write: func(l *limiterState) {
				end := l.now + l.window - l.passed()
				l.fixed(0, end, end)
			}},
		{name: "fixed, and a timer", windows: true,
			args:  "--pattern P{key} --format fixed --window W",
			warns: "a time is in 1 key, such as P", write: func(l *limiterState) {
				end := l.now + l.window - l.passed()
				l.fixed(0, end, end)
				n := l.total
				l.set("ann:timer", end/1000, end)
				l.total = n
			}},
		{name: "only a timer", args: "--pattern P{key} --format fixed --window W",
			fails: "a time is in 1 key", write: func(l *limiterState) {
				l.set("ann:timer", l.now/1000, l.now+l.window)
			}},
		{name: "fixed that lives longer", windows: true,
			args:  "--pattern P{key} --format fixed --window W",
			warns: "live longer than --window", write: func(l *limiterState) {
				l.fixed(0, l.now+20*l.window, l.now+l.window)
			}},
		{name: "fixed without an end", args: "--pattern P{key} --format fixed --window W",
			fails: "no time to live", write: func(l *limiterState) { l.set("ann", 7, 0) }},
		{name: "fixed ahead of the clock", args: "--pattern P{key}:{index} --width W",
			fails: "ahead of the clock", write: func(l *limiterState) {
				l.set("ann"+l.suffix(l.now+5*l.window), 7, l.now+6*l.window)
			}},
		{name: "index", windows: true,
			args: "--pattern P{key}:{index} --width W", write: func(l *limiterState) {
				begun := l.now - l.passed()
				l.fixed(begun, begun+l.window+1000, begun+l.window)
			}},
	}
}

// weightedLayouts keep the window before the present one.
func weightedLayouts() []layout {
	return []layout{
		{name: "two windows", windows: true,
			args: "--pattern P{key}:{index} --width W --format weighted",
			write: func(l *limiterState) {
				l.weighted(func(start, n int64) {
					l.set("ann"+l.suffix(start), n, start+2*l.window+1000)
				})
			}},
		{name: "two windows, found out", windows: true,
			args: "--pattern P{key}:{index} --width W",
			write: func(l *limiterState) {
				l.weighted(func(start, n int64) {
					l.set("ann"+l.suffix(start), n, start+2*l.window+1000)
				})
			}},
		{name: "two windows without an index", windows: true,
			args: "--pattern P{key}/{which} --window W --format weighted --as {key}",
			write: func(l *limiterState) {
				names := []string{"ann/-1", "ann/0"}
				l.weighted(func(start, n int64) {
					l.set(names[0], n, start+2*l.window)
					names = names[1:]
				})
			}},
	}
}

// TestLayouts imports the state of each layout at several times in a window, twice, once from four
// processes at the same time: from then on twotier counts as the limiter would have, or as an exact
// log of its events. What can't be counted has a reason and an exit status.
func TestLayouts(t *testing.T) {
	b := newBed(t)
	rng := newRand(t)
	row := 0
	for _, l := range slices.Concat(elementLayouts(), fixedLayouts(), weightedLayouts()) {
		phases := []float64{0.01, 0.5, 0.98}
		if !l.windows {
			phases = phases[1:2]
		}
		for i, phase := range phases {
			row++
			s := &limiterState{bed: b, Rand: rng, prefix: fmt.Sprint("r", row, ":"), phase: phase}
			t.Run(fmt.Sprint(l.name, " ", phase), func(t *testing.T) {
				bed := *b
				bed.T = t
				s.bed = &bed
				s.importLayout(&l, row, i == 0)
			})
		}
	}
}

// importLayout writes and imports one state.
func (l *limiterState) importLayout(x *layout, row int, atOnce bool) {
	l.now = time.Now().UnixMilli()
	// A window of about ten hours whose multiples lie so that now is at the phase.
	windows := l.now / (600 * minute)
	l.window = int64(float64(l.now) / (float64(windows) + l.phase))
	l.phase = float64(l.now-windows*l.window) / float64(l.window)
	x.write(l)
	args := strings.Fields(strings.NewReplacer("P", l.prefix, "W",
		fmt.Sprint(l.window, "ms")).Replace(x.args))
	key := fmt.Sprint("row", row)
	for i, a := range args {
		if a == "--as" {
			args = append(args[:i], args[i+2:]...)
			break
		}
	}
	args = append(args, "--as", key+"{key}")
	if x.fails != "" {
		r, err := l.tryImport(args...)
		if text := fmt.Sprint(err, r.Failed); err == nil || !strings.Contains(text, x.fails) ||
			r.Counted > 0 {
			l.Errorf("%+v, %v; want %s", r, err, x.fails)
		}
		return
	}
	if atOnce {
		l.importAtOnce(args)
	} else if r := l.imports(args...); r.Counted != l.total {
		l.Errorf("%+v, want %d events", r, l.total)
	}
	r := l.imports(args...)
	warning := strings.ReplaceAll(x.warns, "P", l.prefix)
	if r.Counted != 0 || r.Repeated != l.total ||
		!strings.Contains(strings.Join(r.Warnings, " "), warning) {
		l.Errorf("repeated: %+v, want %d repeated and %q", r, l.total, warning)
	}
	for _, part := range []int64{0, 10, 25, 50, 75, 95} {
		// The count in a shorter window is that in the whole one some time later.
		later := time.Now().UnixMilli() - l.now + l.window*part/100
		want, off := l.after(later)
		got := l.count(key+"ann", fmt.Sprint(l.window-l.window*part/100, "ms"))
		if got.Max < want-off || got.Min > want+off {
			l.Errorf("%d%% of a window later: %+v, want %d +-%d", part, got, want, off)
		}
	}
}

// importAtOnce imports from four processes at once: each reports what it has counted.
func (l *limiterState) importAtOnce(args []string) {
	var reports [4]report
	var all sync.WaitGroup
	for i := range reports {
		all.Go(func() {
			var err error
			if reports[i], err = l.tryImport(args...); err != nil {
				l.Error(err)
			}
		})
	}
	all.Wait()
	sum := int64(0)
	for _, r := range reports {
		sum += r.Counted
		if r.Counted+r.Repeated+r.Meanwhile != l.total {
			l.Errorf("%+v, want %d events", r, l.total)
		}
	}
	if sum > l.total { // less if an answer got lost
		l.Errorf("%d events are counted in all, want %d", sum, l.total)
	}
}

// TestCountersGoOn: between two imports a limiter counts more events, and moves the end of its key
// with each of them, or to a later time than its window: the second import adds those.
func TestCountersGoOn(t *testing.T) {
	b := newBed(t)
	now := time.Now().UnixMilli()
	hour := 60 * minute
	for i, test := range []struct {
		name, args     string
		end, laterEnd  int64
		counted, later int64
	}{
		{"fixed", "--format fixed --window 1h", 10 * minute, 10 * minute, 5, 3},
		{"moved with each event", "--format fixed --window 1h", 30 * minute, 50 * minute, 5, 3},
		{"moved to now", "--format fixed --window 1h", 30 * minute, hour, 5, 3},
		{"lives longer", "--format fixed --window 1h", 20 * hour, 20 * hour, 5, 3},
		{"lives longer each time", "--format fixed --window 1h", 20 * hour, 22 * hour, 5, 3},
		{"weighted", "--format weighted --window 1h", 100 * minute, 100 * minute, 5, 3},
	} {
		key := fmt.Sprint("g", i, ":ann")
		args := append(strings.Fields(test.args), "--pattern", fmt.Sprint("g", i, ":{key}"), "--as",
			fmt.Sprint("g", i, "{key}"))
		for _, n := range []int64{test.counted, 8} {
			end := now + test.end
			if n == 8 {
				end = now + test.laterEnd
			}
			b.old.Set(t.Context(), key, n, 0)
			b.old.PExpireAt(t.Context(), key, time.UnixMilli(end))
			want := test.counted
			if n == 8 {
				want = test.later
			}
			if r := b.imports(args...); r.Counted != want {
				t.Errorf("%s: at %d: %+v, want %d", test.name, n, r, want)
			}
		}
	}
}
