package syncer

// republish is the state of telling a store that has lost data what memory knows.
type republish struct {
	refs  []ref
	held  *Round // the round that found the loss; it is sent after
	round *Round // under way
	next  int
	// epoch is that of the data which counts are restored into.
	epoch uint64
}

// startRepublish begins after a round that was not carried out because the store has lost what it had acknowledged. The
// entries stay where they are until it is over: nothing is evicted or moved meanwhile.
func (c *Counter) startRepublish(p *partition, r *Round) {
	rp := &republish{held: r, epoch: r.Epoch}
	for _, s := range p.table.slots {
		if s == 0 {
			continue
		}
		if at := ref(s >> 32); p.arena.entry(at).synced() != 0 {
			rp.refs = append(rp.refs, at)
		}
	}
	p.republish, p.flight = rp, r
	p.met = false
}

// cutRepublish returns the next part of what is to be restored. Unlike a flush it says what the buckets must at least
// hold, so that sending it twice changes nothing.
func (c *Counter) cutRepublish(p *partition) *Round {
	rp := p.republish
	if rp.round != nil {
		rp.round.Epoch = rp.epoch
		return rp.round
	}
	r := &Round{Partition: p.id, Writer: rp.held.Writer, Acked: rp.held.Acked, Epoch: rp.epoch, Republish: true}
	for rp.next < len(rp.refs) && !c.full(r) {
		e := p.arena.entry(rp.refs[rp.next])
		rp.next++
		sp := c.spaces[e.space()]
		ns, key := e.name()
		k := r.addKey(ns, key)
		k.TTL = sp.ttl
		sp.ladder.Each(p.syncedOf(e), func(level int, idx, n int64) bool {
			r.buckets = append(r.buckets, Bucket{Level: uint8(level), Index: idx, N: n})
			return true
		})
		k.adds, k.expired = len(r.buckets), len(r.buckets)
	}
	r.seal()
	r.Final = rp.next == len(rp.refs)
	rp.round = r
	return r
}

// settleRepublish goes on with the next part, or with the round that found the loss.
func (c *Counter) settleRepublish(p *partition, r *Round) (more bool) {
	rp := p.republish
	rp.round = nil
	rp.epoch = r.Epoch
	if r.Lost {
		// It has lost everything once more, the parts that were told before this one too, and has not taken this one: if
		// it had restored the sequence, telling the others again would change nothing.
		rp.next = 0
		return true
	}
	if r.Final {
		p.republish, p.epoch = nil, r.Epoch
	}
	return true
}
