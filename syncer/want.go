package syncer

// want is a key that somebody waits to have loaded. Its fields are guarded by the partition's lock. It is in one place at a time:
// among the partition's wants, or part of one round, which brings the key or returns the want. A round that writes takes the wants of
// its keys along: what another beside it would bring of them, be it with what is written or without, is of no account then.
type want struct {
	ns, key []byte
	hash    uint32
	waiters int
	exact   bool // it is to be loaded by a round that nothing overlaps
	done    bool
	err     error
	absence absence
	also    *want // another want of the same key, asked for while this one was part of a round
}

// absence is the knowledge that the store has nothing of a key. It is none any more once others have changed the partition, or
// if the key may have been counted here and dropped since.
type absence struct {
	known bool
	gen   uint32
	drops uint64
}

// nameOf is what a want is found by.
func nameOf(ns, key []byte) string { return string(ns) + "\x00" + string(key) }

// ask registers that somebody waits for a key.
func (p *partition) ask(hash uint32, ns, key []byte) *want {
	name := nameOf(ns, key)
	w := p.wants[name]
	if w == nil {
		b := []byte(name)
		w = &want{ns: b[:len(ns):len(ns)], key: b[len(ns)+1:], hash: hash}
		p.putWant(name, w)
	}
	w.waiters++
	return w
}

// putWant puts a want among those that wait for a round.
func (p *partition) putWant(name string, w *want) {
	if p.wants == nil {
		p.wants = map[string]*want{}
	}
	last := w
	for last.also != nil {
		last = last.also
	}
	last.also = p.wants[name]
	p.wants[name] = w
}

// putBack returns the wants of a round that does not bring their keys. exact is how they are to be loaded now.
func (p *partition) putBack(r *Round, exact bool) {
	for name, w := range r.wants {
		w.exact = exact
		p.putWant(name, w)
	}
	p.exact = p.exact || exact && len(r.wants) > 0
	r.wants = nil
}

// join has a round bring back a key that it takes, if somebody waits for that.
func (p *partition) join(r *Round, k *KeyRound) {
	if len(p.wants) == 0 && p.load == nil {
		return
	}
	name := nameOf(k.NS, k.Key)
	p.recall(name)
	if w := p.wants[name]; w != nil {
		delete(p.wants, name)
		r.want(name, w)
		k.Load = true
	}
}

// recall makes void what a round beside others brings of a key, because it may be changed meanwhile.
func (p *partition) recall(name string) {
	if p.load == nil {
		return
	}
	if w := p.load.round.wants[name]; w != nil {
		delete(p.load.round.wants, name)
		p.putWant(name, w)
	}
}

// recallKeys is recall for all keys of a round.
func (p *partition) recallKeys(r *Round) {
	if p.load == nil {
		return
	}
	for i := range r.Keys {
		p.recall(nameOf(r.Keys[i].NS, r.Keys[i].Key))
	}
}

// want makes a want part of a round.
func (r *Round) want(name string, w *want) {
	if r.wants == nil {
		r.wants = map[string]*want{}
	}
	r.wants[name] = w
}

// waited reports whether anybody still waits.
func (w *want) waited() bool {
	for ; w != nil; w = w.also {
		if w.waiters > 0 {
			return true
		}
	}
	return false
}

// tell ends the wait for a key, all of them.
func (w *want) tell(err error, a absence) {
	for ; w != nil; w = w.also {
		w.done, w.err, w.absence = true, err, a
	}
}

// absent says that the store has nothing of a key, as of now.
func (p *partition) absent() absence {
	return absence{known: true, gen: p.store.generation, drops: p.keys.drops.n}
}

// stillAbsent reports whether that holds for a key that is not in memory.
func (p *partition) stillAbsent(a absence, hash uint32) bool {
	return a.known && a.gen == p.store.generation && !p.outbox.maybeSent && !p.keys.drops.mayHave(hash, a.drops)
}
