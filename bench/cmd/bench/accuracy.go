package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"twotier.dev/twotier/bench/arithmetic"
	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/leaparray"
)

// Accuracy compares ways of counting with the truth: their estimates, at random moments, of windows
// whose lengths are not multiples of their buckets, and their decisions. The time is simulated, so
// a result depends on nothing but the seed.
type Accuracy struct {
	Seed      uint64        `help:"Seed of the traffic and of the moments of the reads." default:"1"`
	Length    time.Duration `help:"Simulated time covered by the reads." default:"24h"`
	Questions int           `help:"Reads of each window." default:"2000"`
}

// AccuracyResult is the result of Accuracy.
type AccuracyResult struct {
	PerSecond float64         `json:"events_per_second"`
	Ladders   []LadderOf      `json:"ladders"`
	Shapes    []AccuracyShape `json:"shapes"`
}

// LadderOf is a ladder with its name.
type LadderOf struct {
	Name   string `json:"name"`
	Levels string `json:"levels"`
}

// AccuracyShape is the measurement with one shape of traffic.
type AccuracyShape struct {
	Name      string         `json:"name"`
	About     string         `json:"about"`
	Reads     []AccuracyRead `json:"reads"`
	Decisions []Decided      `json:"decisions"`
}

// AccuracyRead is the error of the estimates of one window. The errors are relative to the mean of
// the truth.
type AccuracyRead struct {
	Method   string  `json:"method"`
	WindowMS int64   `json:"window_ms"`
	Truth    float64 `json:"mean_truth"`
	Mean     float64 `json:"mean_error"`
	P99      float64 `json:"p99_error"`
	Most     float64 `json:"worst_error"`
	// Bounds is the mean distance of the bounds, Outside how often the truth was not within them. A
	// method without bounds has -1.
	Bounds  float64 `json:"mean_bounds"`
	Outside int     `json:"outside_of_bounds"`
}

// Decided is the record of one method under one limit, judged by an exact log of its admissions.
type Decided struct {
	WindowMS int64 `json:"window_ms"`
	Limit    int64 `json:"limit"`
	Tally
}

// ladders returns the compared ladders, with the flags that make them.
func ladders() []LadderOf {
	return []LadderOf{
		{"twotier, default ladder", leaparray.Default().String()},
		{"twotier, fine ladder", "1s x 600, 10s x 720, 1m x 1440"},
		{"twotier, coarse ladder", "1m x 60, 1h x 24"},
	}
}

// readWindows returns the windows to read. None is a multiple of the default ladder's buckets.
func readWindows() []time.Duration {
	const s, m, h = time.Second, time.Minute, time.Hour
	const half = 537 * time.Millisecond
	return []time.Duration{3*s + half, 7*s + half, 17*s + half, 37*s + half, 59*s + half,
		97*s + half, 4*m + 37*s, 11*m + 37*s, 29*m + 37*s, 59*m + 37*s, 97*m + 37*s, 4*h + 37*m,
		11*h + 37*m, 23*h + 37*m}
}

// limitWindows returns the windows of limits: round ones, and others.
func limitWindows() []time.Duration {
	return []time.Duration{time.Minute, 97 * time.Second, 30 * time.Minute, time.Hour,
		5*time.Hour + 13*time.Minute}
}

// Run measures all shapes, and draws a picture of the errors for each.
func (o *Accuracy) Run(b *bench) error {
	r := AccuracyResult{PerSecond: perSecond, Ladders: ladders()}
	methods, err := methods()
	if err != nil {
		return err
	}
	for i, s := range shapes() {
		draw := rand.New(rand.NewPCG(o.Seed, uint64(i)))
		// Before the first estimate, traffic fills two calendar windows of the longest.
		warm := 2 * slices.Max(readWindows())
		times := s.times(draw, (warm + o.Length).Milliseconds())
		// A round number of days.
		const start = 20_000 * 24 * 3_600_000
		for k := range times {
			times[k] += start
		}
		at := AccuracyShape{Name: s.name, About: s.about}
		moments := make([]int64, o.Questions)
		for k := range moments {
			moments[k] = start + warm.Milliseconds() + draw.Int64N(o.Length.Milliseconds())
		}
		slices.Sort(moments)
		for _, m := range methods {
			for _, w := range readWindows() {
				if read, ok := readErrors(m, w.Milliseconds(), times, moments); ok {
					at.Reads = append(at.Reads, read)
				}
			}
		}
		at.Decisions = decideAll(methods, times)
		r.Shapes = append(r.Shapes, at)
	}
	return errors.Join(save(b, o, r), r.draw(b.out))
}

// methods returns all methods, twotier's ladders first.
func methods() ([]arithmetic.Method, error) {
	var all []arithmetic.Method
	for _, l := range ladders() {
		levels, err := config.ParseLadder(l.Levels)
		if err != nil {
			return nil, fmt.Errorf("accuracy: %w", err)
		}
		m, err := arithmetic.Ladder(l.Name, leaparray.DefaultExact, levels...)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return append(all, arithmetic.Others()...), nil
}

// readErrors counts all times, and reads the window at each moment. ok is false if the method only
// decides.
func readErrors(m arithmetic.Method, length int64, times, moments []int64) (AccuracyRead, bool) {
	w, ok := m.New(length, math.MaxInt32).(arithmetic.Reader)
	if !ok {
		return AccuracyRead{}, false
	}
	r := AccuracyRead{Method: m.Name, WindowMS: length, Bounds: -1}
	wrong := make([]float64, 0, len(moments))
	next, first := 0, 0
	for _, at := range moments {
		for ; next < len(times) && times[next] <= at; next++ {
			w.Count(times[next])
		}
		for first < next && times[first] <= at-length {
			first++
		}
		truth, e := int64(next-first), w.Read(at)
		r.Truth += float64(truth)
		wrong = append(wrong, math.Abs(float64(e.Events-truth)))
		if e.Bounded {
			r.Bounds = max(r.Bounds, 0) + float64(e.Max-e.Min)
			if truth < e.Min || truth > e.Max {
				r.Outside++
			}
		}
	}
	r.summarize(wrong)
	return r, true
}

// summarize sets the errors, relative to the mean of the truth.
func (r *AccuracyRead) summarize(wrong []float64) {
	whole := max(r.Truth, 1)
	slices.Sort(wrong)
	for _, e := range wrong {
		r.Mean += e
	}
	n := float64(len(wrong))
	r.Truth /= n
	r.Mean /= whole
	r.P99, r.Most = wrong[len(wrong)*99/100]*n/whole, wrong[len(wrong)-1]*n/whole
	if r.Bounds > 0 {
		r.Bounds /= whole
	}
}

// decideAll puts every method under limits that half of the traffic exceeds.
func decideAll(methods []arithmetic.Method, times []int64) (list []Decided) {
	for _, window := range limitWindows() {
		for _, m := range append([]arithmetic.Method{exactLog()}, methods...) {
			list = append(list, decide(m, window.Milliseconds(),
				int64(window.Seconds()*perSecond/2), times))
		}
	}
	return list
}

// decide has a method decide about every event, and judges its decisions.
func decide(m arithmetic.Method, window, limit int64, times []int64) Decided {
	d := Decided{WindowMS: window, Limit: limit, Tally: Tally{Name: m.Name, Events: len(times)}}
	w := m.New(window, limit)
	check := limiter.One("key", []limiter.Limit{{Window: window, Max: limit}})
	for _, ts := range times {
		allowed := w.Fits(ts)
		if allowed {
			w.Count(ts)
		}
		d.judge(limiter.At(ts, check), allowed)
	}
	return d
}

// exactLog keeps the time of every event, as a sorted set in Redis does.
func exactLog() arithmetic.Method {
	return arithmetic.Method{Name: "exact log (sorted set)",
		New: func(length, most int64) arithmetic.Window {
			return &logOf{length: length, most: most}
		}}
}

type logOf struct {
	limiter.Exact
	length, most int64
}

func (l *logOf) Fits(ts int64) bool { return l.Held([]byte("key"), l.length, ts) < l.most }

func (l *logOf) Count(ts int64) { l.Record(limiter.At(ts, limiter.One("key", nil))) }

// Names returns the methods with reads, in order.
func (s AccuracyShape) Names() []string {
	return distinct(s.Reads, func(r AccuracyRead) string { return r.Method })
}

// Windows returns the windows that were read, in order.
func (s AccuracyShape) Windows() []int64 {
	return distinct(s.Reads, func(r AccuracyRead) int64 { return r.WindowMS })
}

// distinct returns the results of fn for the values of a list, each once.
func distinct[T any, V comparable](list []T, fn func(T) V) (all []V) {
	for _, of := range list {
		if v := fn(of); !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}

// Read returns the measurement of a method and a window.
func (s AccuracyShape) Read(method string, window int64) AccuracyRead {
	return s.Reads[slices.IndexFunc(s.Reads, func(r AccuracyRead) bool {
		return r.Method == method && r.WindowMS == window
	})]
}

// Picture returns the name of the picture's file.
func (s AccuracyShape) Picture() string {
	return "accuracy-" + strings.ReplaceAll(s.Name, " ", "-") + ".svg"
}

// draw draws one picture for each shape.
func (r AccuracyResult) draw(dir string) error {
	for _, s := range r.Shapes {
		p := Picture{
			Title: "Error of a count, " + s.Name, xUnit: "window, seconds",
			yUnit: "mean error, % of the mean count", logX: true, logY: true,
		}
		for _, read := range s.Reads {
			p.point(read.Method, float64(read.WindowMS)/1e3, 100*read.Mean)
		}
		picture, err := p.svg()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, s.Picture()), picture, 0o644); err != nil {
			return fmt.Errorf("accuracy: %w", err)
		}
	}
	return nil
}

// percent formats a share with two significant digits.
func percent(share float64) string {
	if share >= 0.1 {
		return fmt.Sprintf("%.0f %%", 100*share)
	}
	return fmt.Sprintf("%.2g %%", 100*share)
}
