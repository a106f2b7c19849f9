package distinct

// Unlearn forgets the cached answers, and does not cache the next ones.
func (e *Engine) Unlearn() {
	e.each(func(en *entry) {
		en.clearAnswers()
		e.updateMemory(en)
	})
}

// Learned returns the memory used by cached answers, the memory used by all keys, measured anew,
// and the memory accounted as used, all at one moment.
func (e *Engine) Learned() (answers, all, said int64) {
	e.each(func(en *entry) {
		answers += en.answers.bytes
		all += en.measure()
		said = e.bytes.Load()
	})
	return answers, all, said
}

// each calls fn for all keys, with all shards locked.
func (e *Engine) each(fn func(en *entry)) {
	for i := range e.shards {
		e.shards[i].mu.Lock()
		defer e.shards[i].mu.Unlock()
	}
	for i := range e.shards {
		for _, en := range e.shards[i].keys {
			fn(en)
		}
	}
}
