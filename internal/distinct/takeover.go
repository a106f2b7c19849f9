package distinct

import (
	"context"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// Pending holds a node's unflushed values of a key.
type Pending struct {
	NS, Key []byte
	Values  []byte // see leaparray.Values.AppendChanged
}

// size returns the approximate number of bytes sent.
func (p *Pending) size() int { return len(p.NS) + len(p.Key) + len(p.Values) + 16 }

// IsCut reports whether an answer of [Engine.ListUnflushed] is so long that keys may be missing.
func IsCut(list []Pending) bool {
	size := 0
	for i := range list {
		size += list[i].size()
	}
	return size >= MaxPending
}

// Gather asks all other nodes for their unflushed values of some partitions.
type Gather func(ctx context.Context, partitions []int) []Pending

// MaxPending bounds an answer of [Engine.ListUnflushed], or a list of [Engine.HandOver], in bytes,
// not counting the last key. To get keys that don't fit into an answer, see [IsCut], ask for fewer
// partitions, or read the store after the next flush of the answering node.
const MaxPending = 1 << 20

// decidingTerm returns the term in which this node decides about a key, 0 without an owner or in
// place of it. At the beginning of a term it asks the other nodes first.
func (e *Engine) decidingTerm(ctx context.Context, op *Op, inPlace bool) (term int64, err error) {
	if e.owner == nil || inPlace {
		return 0, nil
	}
	p := e.Partition(op)
	term, decides := e.owner.Term(p)
	switch {
	case !decides:
		return 0, twotier.ErrNotOwner
	case e.gather != nil && e.terms[p].Load() != term:
		return term, e.takeOver(ctx, p)
	}
	return term, nil
}

// takeOver waits until other nodes' unflushed values of a partition have arrived. The gathering
// serves later operations too, so it goes on even if ctx ends.
func (e *Engine) takeOver(ctx context.Context, partition int) error {
	select {
	case e.taking <- struct{}{}:
	case <-ctx.Done():
		return errLate
	}
	over := make(chan struct{})
	if !e.spawn(func() {
		defer close(over)
		defer func() { <-e.taking }()
		if begun, decides := e.owner.Term(partition); decides &&
			e.terms[partition].Load() != begun {
			e.takeOverAll(e.run)
		}
	}) {
		<-e.taking
		return twotier.ErrClosed
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return errLate
	}
}

// takeOverAll gathers other nodes' values of all partitions that this node has begun to decide
// about.
func (e *Engine) takeOverAll(ctx context.Context) {
	var list []int
	terms := map[int]int64{}
	for p := range e.terms {
		if term, decides := e.owner.Term(p); decides && e.terms[p].Load() != term {
			list, terms[p] = append(list, p), term
		}
	}
	if left := e.merge(e.gather(ctx, list), false); left > 0 {
		e.opt.Logger.Warn("no memory for what other nodes have of distinct values", "keys", left)
	}
	for p, term := range terms {
		e.terms[p].Store(term)
	}
}

// Import merges keys that another node hands over, and returns the number of keys not accepted:
// memory has no room for them, or this node is handing over its own.
func (e *Engine) Import(list []Pending) (left int) { return e.merge(list, true) }

// merge merges another node's values, and returns the number of keys left out. Once HandOver has
// begun, it leaves out all keys that are handed over.
func (e *Engine) merge(list []Pending, handedOver bool) (left int) {
	for i := range list {
		from := &list[i]
		e.makeRoom()
		sh, id := e.lock(&Op{NS: from.NS, Key: from.Key})
		en, err := e.entry(sh, id, &Op{NS: from.NS, Key: from.Key}, true)
		if err != nil || handedOver && e.leaving.Load() {
			left++
		} else if values, err := leaparray.DecodeValues(from.Values); err == nil {
			if en.merge(&values, e.opt.Now()) {
				en.touch()
			}
			en.handed = 0 // the node that had it now relies on this one
			e.updateMemory(en)
			sh.updateDirty(en)
		}
		sh.mu.Unlock()
	}
	return left
}

// ListUnflushed returns this node's unflushed values of some partitions. It waits for operations
// that have begun, so that once another node decides about the partitions, no further value is
// added by a decision of this node.
func (e *Engine) ListUnflushed(partitions []int) (list []Pending) {
	wanted := make(map[int]bool, len(partitions))
	for _, p := range partitions {
		wanted[p] = true
	}
	e.awaitDeciding()
	room := MaxPending
	for i := range e.shards {
		for _, o := range e.shards[i].collectOwed(func(en *entry) bool {
			return wanted[en.partition]
		}) {
			if room <= 0 {
				return list
			}
			room -= o.size()
			list = append(list, o.Pending)
		}
	}
	return list
}

// HandOver passes on the values that neither the store nor another node has, from an engine that is
// about to stop. to returns the node that a partition belongs to, and send sends a list of keys to
// a node. Values passed on are still flushed, but [Engine.Flush] does not wait for them. left is
// the number of keys not accepted, which another call can hand over.
func (e *Engine) HandOver(to func(partition int) (node int),
	send func(node int, list []Pending) error) (left int) {
	e.leaving.Store(true)
	e.awaitDeciding()
	batches := map[int]*batch{}
	pass := func(node int, b *batch) {
		if send(node, b.list) != nil {
			left += len(b.list)
		} else {
			b.markHandedOver(e)
		}
		delete(batches, node)
	}
	for i := range e.shards {
		for _, o := range e.shards[i].collectOwed(func(en *entry) bool {
			return en.seq > en.handed
		}) {
			node := to(o.en.partition)
			b := batches[node]
			if b == nil {
				b = new(batch)
				batches[node] = b
			}
			b.list, b.of, b.size = append(b.list, o.Pending), append(b.of, o), b.size+o.size()
			if b.size >= MaxPending {
				pass(node, b)
			}
		}
	}
	for node, b := range batches {
		pass(node, b)
	}
	return left
}

// batch holds the keys bound for one node, about size bytes.
type batch struct {
	list []Pending
	of   []owed
	size int
}

// markHandedOver records that another node has the batch as well.
func (b *batch) markHandedOver(e *Engine) {
	for _, o := range b.of {
		sh := e.shardOf(o.en)
		sh.mu.Lock()
		o.en.handed = o.seq
		sh.mu.Unlock()
	}
}

// awaitDeciding waits for the operations that have begun to decide on this node.
func (e *Engine) awaitDeciding() {
	e.deciding.Lock()
	//lint:ignore SA2001 whoever had it is done
	e.deciding.Unlock()
}

// owed holds the unflushed values of an entry, up to change seq.
type owed struct {
	Pending
	en  *entry
	seq uint64
}

// collectOwed lists the unflushed values of the entries that wanted accepts.
func (sh *shard) collectOwed(wanted func(en *entry) bool) (list []owed) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for en := range sh.dirty {
		if !en.dirty() || !wanted(en) {
			continue
		}
		data := en.values.AppendChanged(nil, en.values.Changed()|en.sent)
		list = append(list, owed{Pending{en.ns, en.key, data}, en, en.seq})
	}
	return list
}
