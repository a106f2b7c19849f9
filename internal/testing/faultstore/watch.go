package faultstore

import (
	"fmt"
	"slices"
	"strings"

	"twotier.dev/twotier/syncer"
)

// place describes a round in reports.
type place struct{ r *syncer.Round }

func (p place) String() string {
	if p.r.Aside {
		return fmt.Sprintf("partition %d, writer %s, aside", p.r.Partition, p.r.Writer)
	}
	return fmt.Sprintf("partition %d, writer %s, round %d (acknowledged %d)",
		p.r.Partition, p.r.Writer, p.r.Seq, p.r.Acked)
}

// enter checks a round against the promises of the caller.
func (s *Store) enter(r *syncer.Round) {
	st := s.lane(r)
	if r.Aside {
		s.enterAside(st, r)
		return
	}
	where := place{r}
	if st.busy {
		s.opt.Report("%s: sent while another is under way", where)
	}
	st.busy = true
	if s.opt.Adopts {
		return
	}
	if r.Epoch != st.epoch {
		st.epoch, st.acked = r.Epoch, 0
	}
	if r.Acked != st.acked {
		s.opt.Report("%s: %d was answered last in this epoch", where, st.acked)
	}
	switch {
	case r.Seq == 0:
		if st.last != st.answered {
			s.opt.Report("%s: reads while the outcome of %d is open", where, st.last)
		}
	case r.Seq == st.last && st.last != st.answered:
		if c := content(r); c != st.content {
			s.opt.Report("%s: sent again with other content:\n%s\n%s", where, st.content, c)
		}
	case r.Seq == st.last+1 && st.last == st.answered:
	default:
		s.opt.Report("%s: out of order, %d was sent last and %d answered", where, st.last,
			st.answered)
	}
}

// enterAside checks an Aside round, which may be in flight together with another round, against the
// promises of the caller.
func (s *Store) enterAside(st *state, r *syncer.Round) {
	where := place{r}
	switch {
	case st.aside:
		s.opt.Report("%s: sent while another is under way", where)
	case r.Seq != 0 || r.Republish || slices.ContainsFunc(r.Keys, changes):
		s.opt.Report("%s: it is not only read: %+v", where, r)
	case r.Epoch == st.epoch && r.Acked > st.acked && !s.opt.Adopts:
		s.opt.Report("%s: %d is said to be acknowledged, %d was answered last", where, r.Acked,
			st.acked)
	}
	st.aside = true
}

// changes reports whether a round changes anything about a key.
func changes(k syncer.KeyRound) bool {
	return k.Reset || k.Renew || len(k.Adds) > 0 || len(k.Content) > 0
}

// leave records the result of a round that the caller sees.
func (s *Store) leave(r *syncer.Round) {
	st := s.lane(r)
	if r.Aside {
		st.aside = false
		return
	}
	st.busy = false
	if r.Seq == 0 {
		return
	}
	st.last = r.Seq
	if !s.opt.Adopts { // otherwise it is never compared
		st.content = content(r)
	}
	if r.Err == nil && !r.Lost && !r.Used {
		st.answered, st.acked = r.Seq, r.Seq
		if r.Republish {
			st.epoch = r.Epoch // a restoration may draw a new epoch
		}
	}
}

func (st *state) sentBefore(r *syncer.Round) bool { return r.Seq <= st.last }

// content returns everything of a round that must not change when it is sent again. That it knows
// the content of its keys, or loads them, may change.
func content(r *syncer.Round) string {
	var b strings.Builder
	fmt.Fprintf(&b, "at %d", r.Now)
	for i := range r.Keys {
		k := &r.Keys[i]
		fmt.Fprintf(&b, " %q %q %v %d %v:", k.NS, k.Key, k.Reset, k.TTL, k.Renew)
		for _, a := range k.Adds {
			fmt.Fprintf(&b, " %d/%d%+d", a.Start, a.Width, a.N)
		}
	}
	return b.String()
}

// clone copies a round, without its answer.
func clone(r *syncer.Round) *syncer.Round {
	c := *r
	c.Err, c.Lost, c.Used, c.Later, c.First = nil, false, false, false, false
	c.Keys = slices.Clone(r.Keys)
	for i := range c.Keys {
		k := &c.Keys[i]
		k.NS, k.Key, k.Loaded = slices.Clone(k.NS), slices.Clone(k.Key), nil
		k.Adds, k.Content = slices.Clone(k.Adds), slices.Clone(k.Content)
	}
	return &c
}

// garble fails a round and replaces its answer with unreliable values.
func garble(r *syncer.Round, err error) {
	r.Err, r.Lost, r.Version, r.Quieted, r.Epoch = err, false, 1<<40, 1<<40, 1<<40
	r.LastChange = "unknown"
	for i := range r.Keys {
		k := &r.Keys[i]
		k.Err, k.Loaded = nil, nil
		for j := range k.Adds {
			k.Adds[j].Stored = -1 << 40
		}
	}
}
