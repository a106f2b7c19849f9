package distinct

import (
	"context"

	"twotier.dev/twotier/syncer"
)

// Pending is what a node has of a key and the store may lack.
type Pending struct {
	NS, Key []byte
	// Sets are numbered by leaparray.Ladder.ID: the other node may have another ladder.
	Sets []Bucket
}

// Gather asks all other nodes for what they have of some partitions and the store may lack.
type Gather func(ctx context.Context, partitions []int) []Pending

// MaxPending bounds the buckets of an answer of [Engine.Pending], in bytes. What does not fit is
// found in the store after the next flush of the node that has it.
const MaxPending = 1 << 20

// decide returns the term in which this node decides about a key, 0 if there is none. At the
// beginning of a term it asks the others first.
func (e *Engine) decide(ctx context.Context, op *Op, inPlace bool) (term int64, err error) {
	if e.owner == nil || inPlace {
		return 0, nil
	}
	p := e.Partition(op)
	term, decides := e.owner.Term(p)
	switch {
	case !decides:
		return 0, syncer.ErrNotOwner
	case e.gather != nil && e.terms[p].Load() != term:
		return term, e.takeOver(ctx, p)
	}
	return term, nil
}

// takeOver gathers what others have of a partition, and of all others that this node has begun to
// decide about as well.
func (e *Engine) takeOver(ctx context.Context, partition int) error {
	select {
	case e.taking <- struct{}{}:
		defer func() { <-e.taking }()
	case <-ctx.Done():
		return errLate
	}
	begun, decides := e.owner.Term(partition)
	if !decides || e.terms[partition].Load() == begun {
		return nil
	}
	var list []int
	terms := map[int]int64{}
	for p := range e.terms {
		if term, decides := e.owner.Term(p); decides && e.terms[p].Load() != term {
			list, terms[p] = append(list, p), term
		}
	}
	// It is for all later operations too, however little time this one has left.
	e.Import(e.gather(context.WithoutCancel(ctx), list))
	for p, term := range terms {
		e.terms[p].Store(term)
	}
	return nil
}

// Import merges what another node has.
func (e *Engine) Import(list []Pending) {
	now := e.opt.Now()
	for i := range list {
		from := &list[i]
		sh, id := e.lock(&Op{NS: from.NS, Key: from.Key})
		en, err := e.entry(sh, id, &Op{NS: from.NS, Key: from.Key}, true)
		if err == nil {
			for _, b := range from.Sets {
				if level := en.ladder.LevelOf(b.Level); level >= 0 {
					b.Level = uint8(level)
					en.merge(&b, false, now)
				}
			}
			e.weigh(en)
			sh.note(en)
		}
		sh.mu.Unlock()
	}
}

// Pending returns what this node has of some partitions and the store may lack. If another node
// decides about them by now, nothing that this one decided is added any more: what had begun is
// waited for.
func (e *Engine) Pending(partitions []int) (list []Pending) {
	e.deciding.Lock()
	defer e.deciding.Unlock()
	wanted := make(map[int]bool, len(partitions))
	for _, p := range partitions {
		wanted[p] = true
	}
	room := MaxPending
	for i := range e.shards {
		sh := &e.shards[i]
		sh.mu.Lock()
		for en := range sh.dirty {
			if wanted[en.partition] && room > 0 {
				sets := en.pending()
				for i := range sets {
					room -= len(sets[i].Data)
					sets[i].Level = en.ladder.ID(int(sets[i].Level))
				}
				list = append(list, Pending{en.ns, en.key, sets})
			}
		}
		sh.mu.Unlock()
	}
	return list
}
