package simtest

import (
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
)

// ban is the ban of a key by a rule.
type ban struct{ rule, key string }

// name is the key under which the ban is counted.
func (b ban) name() string { return b.rule + "/" + b.key }

var banNS = []byte(twotier.BanNamespace + "/" + twotier.DefaultNamespace)

// bans records the answers about bans.
type bans struct {
	mu        sync.Mutex
	about     map[ban]*history
	decisions map[string][]decision // by key
}

// history records everything known about one ban.
type history struct {
	starts []begun
	holds  []told
	lifts  []span
	losses []time.Time // when Redis or a process lost it
}

// begun is a ban that has started, or may have started, between two moments.
type begun struct {
	span
	certain bool
	by      verdict
	rule    *ruled
	until   int64
}

// mostBan is more than the length of any rule's ban, in milliseconds.
const mostBan = 21_000

// length returns how long the ban lasts, whatever happens to its rule, or may last at most.
func (s *begun) length() time.Duration {
	if !s.certain {
		return mostBan * time.Millisecond
	}
	return time.Duration(s.rule.ban) * time.Millisecond
}

// told is an answer that reports a ban in force.
type told struct {
	verdict
	rule  *ruled
	until int64
}

var forever = time.Unix(1<<40, 0)

func (s *bans) of(b ban, fn func(h *history)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.about == nil {
		s.about = map[ban]*history{}
	}
	h := s.about[b]
	if h == nil {
		h = &history{}
		s.about[b] = h
	}
	fn(h)
}

// late is the maximum delay between a request of unknown outcome and its effect.
const late = 30 * time.Second

func (s *bans) mayStart(b ban, from, to time.Time) {
	s.of(b, func(h *history) { h.starts = append(h.starts, begun{span: span{from, to}}) })
}

func (s *bans) start(b ban, r *ruled, v *decision, until int64) {
	s.of(b, func(h *history) {
		h.starts = append(h.starts, begun{span{v.asked, v.told}, true, v.verdict, r, until})
	})
}

func (s *bans) hold(b ban, r *ruled, v *decision, until int64) {
	s.of(b, func(h *history) { h.holds = append(h.holds, told{v.verdict, r, until}) })
}

func (s *bans) lift(b ban, during span) {
	s.of(b, func(h *history) { h.lifts = append(h.lifts, during) })
}

func (s *bans) decide(key string, v decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.decisions == nil {
		s.decisions = map[string][]decision{}
	}
	s.decisions[key] = append(s.decisions[key], v)
}

// lose records that a ban, by the name under which it is counted, may be gone, or that only a
// suspended process has it.
func (s *bans) lose(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b, h := range s.about {
		if b.name() == name {
			h.losses = append(h.losses, time.Now())
		}
	}
}

// storedBans returns the count of each ban in Redis.
func (w *world) storedBans() map[string]int64 {
	w.bans.mu.Lock()
	defer w.bans.mu.Unlock()
	n := map[string]int64{}
	for b := range w.bans.about {
		key := []byte(b.name())
		n[b.name()] = w.redis.Sum(w.placement().Of(banNS, key), banNS, key)
	}
	return n
}

// writeOff writes off counts in the memory of a process.
func (w *world) writeOff(ns, key []byte, n int64) {
	switch twotier.Companion(ns) {
	case twotier.ValuesNamespace:
		return // see writeOffValues
	case "":
		w.ledger.lose(string(key), n)
	default:
		w.bans.lose(string(key))
		w.holds.lose(w, ns, key)
	}
}

// apart returns the maximum difference between the times of two nodes.
func (p *plan) apart() time.Duration {
	if p.kind.wild() {
		return 4 * time.Second // some read a wrong time, see cast.hasAWrongTime
	}
	return 500 * time.Millisecond
}

// checkBans checks the decisions about the keys that rules judge.
func (w *world) checkBans() {
	stale := w.plan.stale()
	if w.plan.exact {
		stale = 0
	}
	w.bans.mu.Lock()
	defer w.bans.mu.Unlock()
	for key, list := range w.bans.decisions {
		a := w.ledger.copy(key)
		if v := exceeding(key, list, &a, stale, w.plan.leeway(), w.hindered()); v != nil {
			w.t.Errorf("%s: node %s admits (%s) at %s what was used up %v before: %+v", key, v.by,
				v.source, v.told.Format("05.000"), stale, *v.rules[0])
		}
	}
	for b, h := range w.bans.about {
		w.checkSeen(b, h, stale)
		w.checkEnds(b, h)
	}
}

// exceeding returns a decision that exceeds a limit of the version that judged it, like
// account.blind.
func exceeding(key string, list []decision, a *account, stale, leeway time.Duration,
	hindered []span) *decision {
	for i := range list {
		v := &list[i]
		if !v.allowed || v.degraded || v.hindered(stale, hindered) {
			continue
		}
		for _, r := range v.rules {
			for _, l := range r.of(key) {
				known := v.n
				since := v.told.Add(-certain(l.ms, leeway))
				for j := range list {
					if e := &list[j]; e.counted && e.told.Before(v.asked.Add(-stale)) &&
						e.asked.After(since) && !e.unheard(&v.verdict, stale, hindered) {
						known += e.n
					}
				}
				if r.state == "on" && known > l.most+a.lost {
					return v
				}
			}
		}
	}
	return nil
}

// checkSeen checks that no node let a key pass, or banned it again, during a ban that the node had
// to know.
func (w *world) checkSeen(b ban, h *history, stale time.Duration) {
	list := slices.Clone(w.bans.decisions[b.key])
	for i := range h.starts {
		if s := &h.starts[i]; s.certain {
			list = append(list, decision{verdict: s.by, allowed: true, rules: []*ruled{s.rule}})
		}
	}
	hindered := w.hindered()
	for i := range list {
		v := &list[i]
		at := slices.IndexFunc(v.rules, func(r *ruled) bool { return r.name == b.rule && r.bans() })
		if at < 0 || !v.allowed || v.degraded || v.hindered(stale, hindered) {
			continue
		}
		for j := range h.starts {
			s := &h.starts[j]
			length := s.length() - w.plan.apart()
			if s.certain && s.to.Before(v.asked.Add(-stale)) && v.told.Before(s.from.Add(length)) &&
				!h.excused(s, v.told) && !s.by.unheard(&v.verdict, stale, hindered) {
				w.t.Errorf("%s: node %s (%s) does not know at %s of the ban by %s that %s started "+
					"at %s", b.key, v.by, v.source, v.told.Format("05.000"), b.rule, s.by.by,
					s.to.Format("05.000"))
				w.t.Logf("%s:\n%s", b.key, w.journal.about(b.key))
				return
			}
		}
	}
}

// excused reports whether a ban may be gone by some time: lifted, or lost.
func (h *history) excused(s *begun, by time.Time) bool {
	return slices.ContainsFunc(h.lifts, func(l span) bool {
		return l.from.Before(by) && !l.to.Before(s.from)
	}) || slices.ContainsFunc(h.losses, func(at time.Time) bool {
		return at.Before(by) && !at.Before(s.from)
	})
}

// checkEnds checks that every refusal because of a ban was given within the time of that ban.
func (w *world) checkEnds(b ban, h *history) {
	for i := range h.holds {
		v := &h.holds[i]
		var since time.Time // when the last of the bans before was lifted for certain
		for _, l := range h.lifts {
			if w.plan.exact && !w.plan.kind.loses() && l.to.Before(v.asked) && l.from.After(since) {
				since = l.from
			}
		}
		if !slices.ContainsFunc(h.starts, func(s begun) bool {
			return s.from.Before(v.told) && !s.to.Before(since) &&
				v.asked.Before(s.to.Add(s.length()+w.plan.apart()))
		}) {
			w.t.Errorf("%s: node %s refuses at %s because of a ban by %s that nothing started, or "+
				"that has ended", b.key, v.by, v.told.Format("05.000"), b.rule)
			w.t.Logf("%s:\n%s", b.key, w.journal.about(b.key))
			return
		}
	}
}
