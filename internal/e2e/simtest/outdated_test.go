package simtest

import "time"

// noticing bounds how long a process takes to declare a member dead whose leave it missed. Until
// then it stands in for that member, whose address refuses connections. TestALeaveIsMissed measures
// up to 11 s.
const noticing = 15 * time.Second

// isOutdated reports whether, at some moment of a time, a process at a host still had a table in
// which the owner of a partition is a process whose leave it missed.
func (s *sight) isOutdated(ip string, partition int, during span) bool {
	for _, by := range s.procs {
		if by.p.ip != ip {
			continue
		}
		for _, v := range by.in(during) {
			at := v.table.Owner(partition)
			if at < 0 {
				continue
			}
			owner := s.procs[v.table.Member(at).Name]
			if owner != nil && s.mayMiss(by, owner, during.to) {
				return true
			}
		}
	}
	return false
}

// mayMiss reports whether a process may still consider another one a member that has left in good
// order: the announcement did not arrive, because one of them could not be reached or the leaving
// one considered the other dead, and since then there was too little time to notice.
func (s *sight) mayMiss(by, owner *seer, at time.Time) bool {
	left, ended := owner.p.left.Load(), owner.life().to
	if left == 0 || ended.After(at) {
		return false
	}
	leaving := span{time.Unix(0, left), ended}
	if !s.isAway(by.p.ip, leaving) && !s.isAway(owner.p.ip, leaving) && owner.sees(by, leaving) {
		return false
	}
	since := ended
	for _, a := range s.away {
		if a.ip == by.p.ip && a.overlaps(span{leaving.from, at}) && a.to.After(since) {
			since = a.to
		}
	}
	return at.Before(since.Add(noticing))
}

// sees reports whether another process was a member in all tables that this one had in a time.
func (o *seer) sees(other *seer, during span) bool {
	for _, v := range o.in(during) {
		if v.table.Find(other.p.ring.Name()) < 0 {
			return false
		}
	}
	return true
}
