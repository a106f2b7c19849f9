package ownership

import (
	"context"
	"maps"
	"time"

	"twotier.dev/twotier/ring"
)

// FollowTable brings the phases in line with the table, and starts to take over the partitions that
// the table newly assigns to this node. Call it when there is a new table, and periodically: it
// also ends phases that take too long.
func (o *Partitions) FollowTable() {
	t := o.opt.Table()
	gained, offers := o.applyTable(t, time.Now())
	if len(gained) > 0 {
		owners := o.previousOwners(t, gained)
		o.spawn(context.Background(), func(ctx context.Context) {
			o.takeOverFromPrevious(ctx, owners, gained)
		})
	}
	for at, parts := range offers {
		o.opt.Go(func(ctx context.Context) { o.offer(ctx, t.Member(at), parts) })
	}
}

// applyTable changes phases according to a table. It returns the partitions to take over, and the
// partitions to offer by the index of their new owner.
func (o *Partitions) applyTable(t *ring.Table, now time.Time) (gained []int, offers map[int][]int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.suspended {
		return nil, nil
	}
	if t != o.table {
		o.table, o.before = t, o.table
		maps.DeleteFunc(o.claims, func(name string, _ time.Time) bool { return t.Find(name) < 0 })
	}
	offers = map[int][]int{}
	for p := range o.parts {
		s := &o.parts[p]
		switch assigned := t.OwnedBySelf(p); {
		case assigned && s.phase == foreign && !o.claimed[p]:
			o.enterLocked(p, incoming)
			o.claimed[p] = true
			gained = append(gained, p)
		case assigned && s.phase == outgoing:
			o.enterLocked(p, own)
		case !assigned && s.phase == own:
			o.enterLocked(p, outgoing)
		case !assigned && s.phase == incoming:
			o.enterLocked(p, foreign)
		case s.phase == outgoing:
			o.reviewOutgoingLocked(p, t, now, offers)
		case s.phase == given:
			o.reviewGivenLocked(p, t, now)
		}
	}
	return gained, offers
}

// reviewOutgoingLocked offers a partition that its new owner does not claim. In the end it lets the
// partition go, unless the new owner is looking for the partition's holder or busy claiming others.
// Pending counts are still flushed, and the new owner finds them in the store.
func (o *Partitions) reviewOutgoingLocked(
	p int, t *ring.Table, now time.Time, offers map[int][]int,
) {
	s := &o.parts[p]
	switch {
	case now.Sub(s.since) > abandonTimeout && now.Sub(s.sought) > abandonTimeout &&
		now.Sub(o.claims[t.Member(t.Owner(p)).Name]) > abandonTimeout:
		o.abandonLocked(p)
	case now.Sub(s.since) > offerAfter && now.Sub(s.offered) > time.Second:
		s.offered = now
		offers[t.Owner(p)] = append(offers[t.Owner(p)], p)
	}
}

// reviewGivenLocked takes a partition back if the node that received it is gone, or has not
// confirmed for too long that everything arrived. Rounds that both nodes send to the store count
// once.
func (o *Partitions) reviewGivenLocked(p int, t *ring.Table, now time.Time) {
	s := &o.parts[p]
	if t.Find(s.to.Name) >= 0 && now.Sub(s.since) < givenTimeout {
		return
	}
	if t.OwnedBySelf(p) {
		o.takeBackLocked(p)
		return
	}
	if now.Sub(s.since) < givenTimeout {
		return // the next owner may claim it
	}
	o.abandonLocked(p)
}
