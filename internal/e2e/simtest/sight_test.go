package simtest

import (
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/ring"
)

// sight records which members each process saw, and which hosts could not be reached, so that a
// judge can determine whether the owner of a key lived and was reachable.
type sight struct {
	mu     sync.Mutex
	procs  map[string]*seer // by name of the process
	away   []absence
	stands []standIn
}

// seer is a process, and its tables in order.
type seer struct {
	p     *proc
	born  time.Time
	views []view
}

type view struct {
	from  time.Time
	table *ring.Table
}

// absence is a time in which some others could not reach a host.
type absence struct {
	ip string
	span
	paused bool // it stood still
	unsaid bool // it received no gossip, but all other messages
}

// standIn is an operation that was carried out in place of some owner.
type standIn struct {
	by          *proc
	keys        []string
	asked, told time.Time
	table       *ring.Table // at the time of the answer, if that was immediate
}

// add adds a process, before it has its first table.
func (s *sight) add(p *proc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.procs == nil {
		s.procs = map[string]*seer{}
	}
	s.procs[p.ring.Name()] = &seer{p: p, born: time.Now()}
}

// see records a new table of a process.
func (s *sight) see(p *proc, t *ring.Table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.procs[p.ring.Name()]; o != nil {
		o.views = append(o.views, view{time.Now(), t})
	}
}

// unreached records that some others can't reach hosts until the returned function is called.
func (s *sight) unreached(ips ...string) (end func()) { return s.absent(absence{}, ips...) }

// paused records that a host stands still until the returned function is called.
func (s *sight) paused(ip string) (end func()) { return s.absent(absence{paused: true}, ip) }

// unsaid records that a host receives no gossip until the returned function is called.
func (s *sight) unsaid(ip string) (end func()) { return s.absent(absence{unsaid: true}, ip) }

func (s *sight) absent(how absence, ips ...string) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := len(s.away)
	for _, ip := range ips {
		how.ip, how.span = ip, span{time.Now(), forever}
		s.away = append(s.away, how)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range ips {
			s.away[first+i].to = time.Now()
		}
	}
}

// standIn records that a process has carried out an operation in place of an owner. A lone add
// waits for nothing, unless the mode changes: it is answered as soon as it is carried out.
func (s *sight) standIn(p *proc, op *twotier.Op, asked time.Time, alone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := standIn{by: p, asked: asked, told: time.Now()}
	if alone && op.Kind == twotier.Add && op.Checks[0].N > 0 && op.Ack < twotier.AckStore &&
		!p.w.plan.kind.changes() {
		o.table = p.ring.Table()
	}
	for i := range op.Checks {
		o.keys = append(o.keys, string(op.Checks[i].Key))
	}
	s.stands = append(s.stands, o)
}

// overlaps reports whether two times have a moment in common.
func (s span) overlaps(o span) bool { return !s.from.After(o.to) && !o.from.After(s.to) }

// isAway reports whether some others could not reach a host at any moment of a time.
func (s *sight) isAway(ip string, during span) bool {
	return slices.ContainsFunc(s.away, func(a absence) bool {
		return a.ip == ip && a.overlaps(during)
	})
}

// stoodStill reports whether a host was suspended at any moment of a time.
func (s *sight) stoodStill(ip string, during span) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.away, func(a absence) bool {
		return a.ip == ip && a.paused && a.overlaps(during)
	})
}

// isBack reports whether a host that could not be reached at some moment of a time is reachable at
// its end.
func (s *sight) isBack(ip string, during span) bool {
	return !s.isAway(ip, span{during.to, during.to})
}

// owned reports whether a process owned a partition by a table that it had during a time.
func (o *seer) owned(partition int, during span) bool {
	return slices.ContainsFunc(o.in(during), func(v view) bool {
		return v.table.Self() >= 0 && v.table.OwnedBySelf(partition)
	})
}

// life returns the time in which a process ran, including its graceful stop.
func (o *seer) life() span {
	l := span{o.born, forever}
	if at := o.p.ended.Load(); at != 0 {
		l.to = time.Unix(0, at)
	}
	return l
}

// in returns the views that a process had during a time.
func (o *seer) in(during span) (list []view) {
	for i, v := range o.views {
		s := span{v.from, o.life().to}
		if i+1 < len(o.views) {
			s.to = o.views[i+1].from
		}
		if s.overlaps(during) {
			list = append(list, v)
		}
	}
	return list
}

// calm reports whether all processes that owned a partition during a time lived, could be reached,
// and were seen by all other reachable processes. It is not calm while a process comes back that
// decided about the partition on its own side of a split: the sides have yet to be added up.
func (s *sight) calm(partition int, during span) bool {
	owners := map[string]bool{}
	for _, o := range s.procs {
		if !o.life().overlaps(during) {
			continue
		}
		if s.isAway(o.p.ip, during) {
			if s.isBack(o.p.ip, during) && o.owned(partition, during) {
				return false
			}
			continue
		}
		for _, v := range o.in(during) {
			if at := v.table.Owner(partition); at >= 0 {
				owners[v.table.Member(at).Name] = true
			}
		}
	}
	for name := range owners {
		o := s.procs[name]
		if o == nil || s.isAway(o.p.ip, during) || s.unseen(o, during) ||
			!o.p.clean.Load() && o.life().to.Before(during.to) {
			return false
		}
	}
	return true
}

// joining is how long a process may take to see all others.
const joining = 3 * time.Second

// unseen reports whether some reachable process did not see a live one that was not about to leave:
// it saw it before, or both were there long enough.
func (s *sight) unseen(o *seer, during span) bool {
	name := o.p.ring.Name()
	for _, q := range s.procs {
		if q == o || s.isAway(q.p.ip, during) {
			continue
		}
		saw := false
		for _, v := range q.views {
			if v.table.Find(name) >= 0 {
				saw = true
				break
			}
		}
		for _, v := range q.in(during) {
			old := v.from.After(o.born.Add(joining)) && v.from.After(q.born.Add(joining))
			if v.table.Find(name) < 0 && (saw && o.sawOut(q, v) || old) && !o.leaves(v.from) {
				return true
			}
		}
	}
	return false
}

// sawOut reports whether a view of another process comes after one with this process.
func (o *seer) sawOut(q *seer, v view) bool {
	for _, earlier := range q.views {
		if earlier.table == v.table {
			return false
		}
		if earlier.table.Find(o.p.ring.Name()) >= 0 {
			return true
		}
	}
	return false
}

// leaves reports whether a process was leaving, or had ended, at a moment.
func (o *seer) leaves(at time.Time) bool {
	left := o.p.left.Load()
	return left != 0 && !at.Before(time.Unix(0, left)) || o.life().to.Before(at)
}

// long is how long an owner of an acquire may be out of reach before other owners count their
// reservations: less than in package multiowner, as messages take time.
const long = 8 * time.Second

// outOfReach reports whether some process was cut off for so long that the owners of a group may
// count their reservations, whatever the decision, or was considered dead although it lived. A
// process that merely stood still asks for the decision.
func (s *sight) outOfReach(g *group) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	during := span{g.begun, g.told.Add(settling)}
	if g.told.IsZero() {
		during.to = forever
	}
	cut := false
	for _, a := range s.away {
		if !a.paused && a.overlaps(during) {
			cut = true
			if a.to.Sub(a.from) > long {
				return true
			}
		}
	}
	for _, o := range s.procs {
		if o.p.w.plan.weather.PacketLoss+o.p.w.plan.weather.CallLoss == 0 && !cut {
			return false
		}
		if o.life().overlaps(during) && s.unseen(o, during) {
			return true
		}
	}
	return false
}

// excess returns a verdict that admits more than a limit allows although the owners of the key
// lived and were reachable, from a while before the request until the answer. They had to know
// everything they had admitted by then, and everything any node had admitted a while before.
func (w *world) excess(key string, a *account, limit twotier.Limit) *verdict {
	if w.plan.exact || limit.Window < hourMS || a.admitted() <= limit.Max {
		return nil
	}
	s, list, partition := &w.sight, w.hindered(), w.partition(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	while, most := w.plan.stale(), limit.Max+a.lost+a.withheld
	calm := func(v *verdict, to time.Time) bool {
		during := span{v.asked.Add(-while), to}
		return v.ip != "" && !s.isAway(v.ip, during) && s.calm(partition, during) &&
			!s.isOutdated(v.ip, partition, during)
	}
	for i := range a.verdicts { // in the order of their answers, see blind
		v, known := &a.verdicts[i], int64(0)
		if v.degraded || v.hindered(while, list) || !calm(v, v.told) {
			continue
		}
		for j := range a.verdicts[:i] {
			e := &a.verdicts[j]
			if e.told.Before(v.asked.Add(-while)) && !e.unheard(v, while, list) ||
				e.source != twotier.SourceFallback && calm(e, v.told) {
				known += e.n
			}
		}
		if known+v.n > most {
			return v
		}
	}
	return nil
}

// missed reports whether a process could not reach the owners of the keys, by its table when it
// stood in for them. If it was an owner itself, it may have stood in for one that had yet to hand a
// partition over. It may have seen other owners before its table changed.
func (s *sight) missed(o *standIn) bool {
	w := o.by.w
	settled := span{o.asked.Add(-time.Second), o.told}
	if o.table == nil || w.plan.weather.PacketLoss+w.plan.weather.CallLoss > 0 ||
		len(s.procs[o.by.ring.Name()].in(settled)) > 1 {
		return true
	}
	during := span{o.asked.Add(-w.plan.stale()), o.told}
	unreached := func(ip string) bool {
		return slices.ContainsFunc(s.away, func(a absence) bool {
			return a.ip == ip && !a.unsaid && a.overlaps(during)
		})
	}
	for _, key := range o.keys {
		at := o.table.Owner(w.partition(key))
		if at < 0 || at == o.table.Self() {
			return true
		}
		owner := s.procs[o.table.Member(at).Name]
		if owner == nil || !owner.life().to.After(o.told) || unreached(owner.p.ip) {
			return true
		}
	}
	return unreached(o.by.ip) || o.by.dead.Load()
}

// leftWithAny reports whether a process ended without handing over everything that it held. Until
// the new owners know, some nodes stand in for it.
func (s *sight) leftWithAny(during span) bool {
	for _, o := range s.procs {
		if o.p.stuck.Load() && o.life().overlaps(during) && o.life().to.Before(during.to) {
			return true
		}
	}
	return false
}

// wrongStandIn returns an operation that a process carried out in place of owners that all lived
// and could be reached, or nil if there is none.
func (w *world) wrongStandIn() *standIn {
	s := &w.sight
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.stands {
		o := &s.stands[i]
		during := span{o.asked.Add(-w.plan.stale()), o.told}
		uneasy := func(key string) bool {
			return !s.calm(w.partition(key), during) ||
				s.isOutdated(o.by.ip, w.partition(key), during)
		}
		if s.missed(o) && (s.isAway(o.by.ip, during) || o.by.dead.Load() || s.leftWithAny(during) ||
			slices.ContainsFunc(o.keys, uneasy)) {
			continue
		}
		return o
	}
	return nil
}

// checkStandIns checks that no process stood in for owners that all lived and could be reached.
func (w *world) checkStandIns() {
	if o := w.wrongStandIn(); o != nil {
		w.t.Errorf("%s: node %s stood in for an owner that lived and could be reached at %s",
			o.keys[0], o.by.id, o.told.Format("05.000"))
		w.t.Logf("%s:\n%s", o.keys[0], w.journal.about(o.keys[0]))
	}
}
