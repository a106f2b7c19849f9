package mirror

// event is one decision of the old limiter about a key.
type event struct {
	ts      int64
	n       int32
	counted bool
}

// maxEvents is the number of events of a key that are remembered.
const maxEvents = 256

// models holds what each kind of limiter would remember about a limit of a key, after the events
// that the old limiter has really counted. Times and windows are in milliseconds.
type models struct {
	window, max int64

	slot, count, previous int64 // fixed windows, by the clock
	start, first          int64 // of the window that began with its first event, and its count

	tokens float64 // of a bucket that was full at first
	filled int64   // when they were that many
}

func newModels(window, most, ts int64) models {
	return models{window: window, max: most, slot: ts / window, start: ts - window,
		tokens: float64(most), filled: ts}
}

// move lets time pass. Time that goes back stands still.
func (m *models) move(ts int64) {
	if slot := ts / m.window; slot > m.slot {
		m.previous = 0
		if slot == m.slot+1 {
			m.previous = m.count
		}
		m.slot, m.count = slot, 0
	}
	if ts > m.filled {
		gained := float64(ts-m.filled) * float64(m.max) / float64(m.window)
		m.tokens = min(float64(m.max), m.tokens+gained)
		m.filled = ts
	}
	if ts-m.start >= m.window {
		m.first = 0
	}
}

// predict returns which kinds of limiters allow n events at the time of the last move.
func (m *models) predict(ts, n int64) (allowed mask) {
	elapsed := float64(max(0, ts-m.slot*m.window)) / float64(m.window)
	estimate := float64(m.previous)*(1-elapsed) + float64(m.count)
	const rounding = 1e-6
	allowed.set(isFixedWindow, m.count+n <= m.max)
	allowed.set(isFirstEventWindow, m.first+n <= m.max)
	allowed.set(isWeightedWindow, estimate+float64(n) <= float64(m.max)+rounding)
	allowed.set(isTokenBucket, float64(n) <= m.tokens+rounding)
	return allowed
}

// add counts n events at the time of the last move.
func (m *models) add(ts, n int64) {
	if m.first == 0 && n > 0 {
		m.start = ts
	}
	m.count += n
	m.first += n
	m.tokens = max(0, m.tokens-float64(n))
}

// key is the memory of the models about one key.
type key struct {
	name   string
	since  int64 // when it was remembered again after other keys took its place, or 0
	lost   int64 // when an event of it was lost last, or 0
	limits []models
	events []event // the last ones, oldest first
}

// find returns the models of a limit.
func (k *key) find(window, most, ts int64) *models {
	for i := range k.limits {
		if m := &k.limits[i]; m.window == window && m.max == most {
			return m
		}
	}
	if len(k.limits) == maxLimits {
		k.limits = k.limits[:0]
	}
	k.limits = append(k.limits, newModels(window, most, ts))
	return &k.limits[len(k.limits)-1]
}

// maxLimits bounds the limits of one key that have models.
const maxLimits = 32

// remember adds an event.
func (k *key) remember(e event) {
	if len(k.events) == maxEvents {
		k.events = append(k.events[:0], k.events[maxEvents/2:]...)
	}
	k.events = append(k.events, e)
}

// sum returns the events of a window that ends at ts, only the counted ones if so asked.
func (k *key) sum(ts, window int64, counted bool) (n int64) {
	for _, e := range k.events {
		if e.ts > ts-window && e.ts <= ts && (e.counted || !counted) {
			n += int64(e.n)
		}
	}
	return n
}

// tolerance returns how far from the edge of a window an event is at the edge.
func tolerance(window int64) int64 { return min(max(window/32, 50), 15*60*1000) }
