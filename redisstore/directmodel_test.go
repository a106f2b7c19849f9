package redisstore_test

import (
	"cmp"
	"context"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/decide"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// model carries out operations as a Direct should, by the arithmetic of leaparray. It is a doer.
type model struct {
	ladders map[string]*leaparray.Ladder
	now     func() int64
	keys    map[string]*modelKey
}

// modelKey is a key of a model. Its cells equal the cells of the hash in Redis.
type modelKey struct {
	ladder *leaparray.Ladder
	cells  []leaparray.Cell
	grown  bool // it may have to fold after the operation
}

func newModel(ladders map[string]*leaparray.Ladder, now func() int64) *model {
	return &model{ladders: ladders, now: now, keys: map[string]*modelKey{}}
}

func (m *model) ladder(ns []byte) *leaparray.Ladder {
	switch l := m.ladders[string(ns)]; {
	case l != nil:
		return l
	case twotier.Companion(ns) != "":
		return syncer.CompanionLadders()[twotier.Companion(ns)]
	}
	return m.ladders[twotier.DefaultNamespace]
}

// key returns the key of a check.
func (m *model) key(c *twotier.Check) *modelKey {
	name := string(c.AppendName(nil))
	if m.keys[name] == nil {
		m.keys[name] = &modelKey{ladder: m.ladder(c.NS)}
	}
	return m.keys[name]
}

// view returns a view of a key's cells, which has room for all of them: nothing in it has folded.
func (k *modelKey) view(now int64) leaparray.View {
	roomy, err := leaparray.NewLadder(leaparray.MaxExact, k.ladder.Levels()...)
	if err != nil {
		panic(err)
	}
	v := k.viewBy(roomy, now)
	v.Ladder = k.ladder
	return v
}

// viewBy returns the view of a process that counts by a ladder.
func (k *modelKey) viewBy(l *leaparray.Ladder, now int64) leaparray.View {
	cells := slices.SortedFunc(slices.Values(k.cells), func(a, b leaparray.Cell) int {
		return cmp.Or(cmp.Compare(b.End(), a.End()), cmp.Compare(b.Start, a.Start))
	})
	v := leaparray.View{Ladder: l, Now: now}
	for _, c := range cells {
		if c.N > 0 {
			v.Put(&v.A, leaparray.Heap{}, c.Stretch, c.N)
		} else {
			v.Mark(&v.A, leaparray.Heap{}, c.Stretch)
		}
	}
	return v
}

// blur matches leaparray.View.PeakBlur, but looks only at the cells that have events.
func (k *modelKey) blur(window, at int64) (width int64) {
	after, before := at-window+1, at-window+1
	if slices.ContainsFunc(k.cells, func(c leaparray.Cell) bool {
		return c.N > 0 && c.Start > at
	}) {
		after, before = at-window, at+window
	}
	width = 1
	for _, c := range k.cells {
		if c.N > 0 && c.Start < before && c.End() > after {
			width = max(width, c.Width)
		}
	}
	return width
}

// put adds n to a cell. A cell that comes to zero is gone, unless it may be a mark.
func (k *modelKey) put(s leaparray.Stretch, n int64) {
	i := slices.IndexFunc(k.cells, func(c leaparray.Cell) bool { return c.Stretch == s })
	if i < 0 {
		i = len(k.cells)
		k.cells = append(k.cells, leaparray.Cell{Stretch: s})
		k.grown = k.grown || n > 0 && (len(k.cells)%8 == 0 || len(k.cells) > k.ladder.MaxCells())
	}
	if k.cells[i].N += n; k.cells[i].N == 0 && s.Width != k.ladder.Width(0) {
		k.cells = slices.Delete(k.cells, i, i+1)
	}
}

// fold folds a key that has grown, if enough cells are due.
func (k *modelKey) fold(now int64) {
	folds := k.ladder.ListFolds(k.cells, now, 0)
	if !k.grown || len(folds) < 32 && len(k.cells) <= k.ladder.MaxCells() {
		folds = nil
	}
	k.grown = false
	for _, f := range folds {
		k.cells = slices.DeleteFunc(k.cells, func(c leaparray.Cell) bool {
			return c.Stretch == f.Stretch
		})
		if f.Into.Width > 0 && f.N > 0 {
			k.put(f.Into, f.N)
			k.grown = false
		}
	}
}

// Do carries out an operation.
func (m *model) Do(_ context.Context, op *twotier.Op, res *twotier.Result) error {
	now := m.now()
	ts, err := twotier.Validate(op, m.ladder, now)
	if err != nil {
		return err
	}
	res.Reset()
	res.Allowed = true
	if op.Kind == twotier.Add {
		if err := m.reach(op, ts, now); err != nil {
			return err
		}
		m.count(op, ts, now, true)
	}
	for i := range op.Checks {
		if err := m.compare(op, i, ts, now, res); err != nil {
			return err
		}
	}
	if op.Kind == twotier.Acquire && !op.DryRun && (res.Allowed ||
		op.CountsRefused(res)) {
		m.count(op, ts, now, res.Allowed)
	}
	if op.Kind == twotier.Acquire && (res.Allowed || op.CountsRefused(res)) {
		m.include(op, res)
	}
	if op.Kind == twotier.Acquire && !res.Allowed && !op.DryRun {
		m.ban(op, now, res)
	}
	if op.Counts(res) && !op.TakesNewest() {
		for i := range res.Checks {
			switch c := &op.Checks[i]; {
			case c.IsLease() && res.Allowed:
				res.Checks[i].TS = c.Until
			case c.N != 0 && !c.IsLease():
				res.Checks[i].TS = ts
			}
		}
	}
	for i := range op.Checks {
		m.key(&op.Checks[i]).fold(now)
	}
	return nil
}

// reach refuses an add with a window that is out of reach.
func (m *model) reach(op *twotier.Op, ts, now int64) error {
	for i := range op.Checks {
		v := m.key(&op.Checks[i]).view(now)
		for _, limit := range op.Checks[i].Limits {
			if window := limit.WindowAt(ts); !v.Covers(window, ts) {
				return twotier.OutOfReach(op, v.Ladder, window, ts, now)
			}
		}
	}
	return nil
}

func (m *model) count(op *twotier.Op, ts, now int64, allowed bool) {
	for i := range op.Checks {
		c := &op.Checks[i]
		k := m.key(c)
		v := k.view(now)
		var taken []leaparray.Cell
		take := func(s leaparray.Stretch, n int64) {
			taken = append(taken, leaparray.Cell{Stretch: s, N: n})
		}
		switch {
		case c.IsLease():
			if allowed {
				k.put(leaparray.Moment(c.Until), c.N)
			}
		case op.TakesNewest():
			v.SelectNewest(-c.N, take)
		case c.N < 0:
			v.SelectAt(ts, -c.N, take)
		case c.N > 0:
			k.put(v.Cell(ts), c.N)
			k.mark(ts, now)
		}
		for _, t := range taken {
			k.put(t.Stretch, -t.N)
		}
	}
}

// mark marks that an event lies ahead.
func (k *modelKey) mark(ts, now int64) {
	beyond := k.ladder.BucketAfter(ts)
	if ts > now && !slices.ContainsFunc(k.cells, func(c leaparray.Cell) bool {
		return c.Width == beyond.Width && c.Start >= beyond.Start
	}) {
		k.cells = append(k.cells, leaparray.Cell{Stretch: beyond})
	}
}

// compare appends the result of a check.
func (m *model) compare(op *twotier.Op, i int, ts, now int64, res *twotier.Result) error {
	c, r := &op.Checks[i], res.AddCheck()
	v := m.key(c).view(now)
	for _, limit := range c.Limits {
		lr := twotier.LimitResult{Window: limit.Window, Max: limit.Bound(), Period: limit.Period}
		window := limit.WindowAt(ts)
		switch {
		case c.IsBan():
			lr.BucketMS = 1
			if end := decide.BanEnd(v); end > now {
				lr.Count, lr.Lo, lr.Hi, lr.Refused = 1, 1, end, true
				r.RetryAfter = end - now
			}
		case c.IsLease():
			compareLeases(op, i, v, &lr, r)
		case !v.Covers(window, ts):
			return twotier.OutOfReach(op, v.Ladder, window, ts, now)
		case op.Kind == twotier.Acquire && limit.Period != nil:
			m.key(c).comparePeriod(limit.Period, ts, max(1, sumOf(op, i)), &lr, r)
		case op.Kind == twotier.Acquire:
			n := max(1, sumOf(op, i))
			peak, _ := v.Peak(limit.Window, ts)
			lr.Count, lr.Lo, lr.Hi, lr.BucketMS = peak, peak, peak,
				m.key(c).blur(limit.Window, ts)
			if lr.Refused = peak+n > lr.Max; lr.Refused {
				retry := v.RetryAfter(limit.Window, ts, n, lr.Max)
				if r.RetryAfter >= 0 && (retry < 0 || retry > r.RetryAfter) {
					r.RetryAfter = retry
				}
			}
		default:
			e, _ := m.key(c).viewBy(v.Ladder, now).Count(window, ts, ts >= now)
			lr.Count, lr.Lo, lr.Hi, lr.BucketMS = e.Count, e.Lo, e.Hi, e.Width
			lr.Refused = op.Kind == twotier.Add && e.Hi > lr.Max
		}
		r.Refused = r.Refused || lr.Refused
		r.Limits = append(r.Limits, lr)
	}
	res.Allowed = res.Allowed && !r.Refused
	if res.RetryAfter >= 0 && (r.RetryAfter < 0 || r.RetryAfter > res.RetryAfter) {
		res.RetryAfter = r.RetryAfter
	}
	return nil
}

// comparePeriod compares n events at a moment with the ones in the period around it.
func (k *modelKey) comparePeriod(p *twotier.Period, ts, n int64, lr *twotier.LimitResult,
	r *twotier.CheckResult) {
	start, end := p.Around(ts)
	sum, blur := int64(0), int64(1)
	for _, c := range k.cells {
		if c.N <= 0 || c.End() <= start || c.Start >= end {
			continue
		}
		if sum += c.N; c.Start < start || c.End() > end {
			blur = max(blur, c.Width)
		}
	}
	lr.Count, lr.Lo, lr.Hi, lr.BucketMS = sum, sum, sum, blur
	if lr.Refused = sum+n > lr.Max; !lr.Refused {
		return
	}
	retry := end - ts
	if n > lr.Max {
		retry = -1
	}
	if r.RetryAfter >= 0 && (retry < 0 || retry > r.RetryAfter) {
		r.RetryAfter = retry
	}
}

// compareLeases compares leases that are taken or returned.
func compareLeases(op *twotier.Op, i int, v leaparray.View, lr *twotier.LimitResult,
	r *twotier.CheckResult) {
	c, sum := &op.Checks[i], sumOf(op, i)
	openAt := func(ms int64) (n int64) {
		v.Ladder.EachCell(v.A, func(at leaparray.Stretch, count int64) bool {
			if at.Width == 1 && at.Start > ms {
				n += count
			}
			return true
		})
		return n
	}
	lr.BucketMS = 1
	if c.N < 0 {
		lr.Count = v.Value(leaparray.Moment(c.Until))
		lr.Refused = c.Until <= v.Now || lr.Count+min(c.N, sum) < 0
		if lr.Refused {
			r.RetryAfter = -1
		}
	} else {
		lr.Count = openAt(v.Now)
		room := lr.Max - max(0, sum)
		lr.Refused = lr.Count > room
		for ; lr.Refused && room >= 0 && openAt(v.Now+r.RetryAfter) > room; r.RetryAfter++ {
		}
		if room < 0 {
			r.RetryAfter = -1
		}
	}
	lr.Lo, lr.Hi = lr.Count, lr.Count
}

// sumOf returns the sum that all checks of an operation count for the key of check i.
func sumOf(op *twotier.Op, i int) (n int64) {
	name := string(op.Checks[i].AppendName(nil))
	for j := range op.Checks {
		if string(op.Checks[j].AppendName(nil)) == name {
			n += op.Checks[j].N
		}
	}
	return n
}

// include adds the counts of the acquire to the figures.
func (m *model) include(op *twotier.Op, res *twotier.Result) {
	for i := range op.Checks {
		if op.Checks[i].IsLease() && !res.Allowed {
			continue
		}
		for j := range res.Checks[i].Limits {
			lr, n := &res.Checks[i].Limits[j], sumOf(op, i)
			lr.Count, lr.Lo, lr.Hi = lr.Count+n, lr.Lo+n, lr.Hi+n
		}
	}
}

// ban starts the bans of a refused acquire.
func (m *model) ban(op *twotier.Op, now int64, res *twotier.Result) {
	var banned *twotier.CheckResult
	for i := range op.Checks {
		c, r := &op.Checks[i], &res.Checks[i]
		if !c.IsBan() {
			if !c.IsLease() {
				banned = r
			}
			continue
		}
		starts := false
		for j := c.Ban.From; j < c.Ban.To; j++ {
			starts = starts || banned.Limits[j].Refused
		}
		if r.Refused || !starts {
			continue
		}
		k, lr := m.key(c), &r.Limits[0]
		if decide.BanEnd(k.view(now)) == 0 {
			k.put(leaparray.Moment(now+lr.Window), 1)
		}
		end := decide.BanEnd(k.view(now))
		lr.Refused, lr.Count, lr.Lo, lr.Hi = true, 1, 1, end
		r.Refused, r.RetryAfter, r.TS = true, end-now, now
		if res.RetryAfter >= 0 {
			res.RetryAfter = max(res.RetryAfter, end-now)
		}
	}
}
