package distinct

// Unlearn forgets the answers that are remembered, and remembers none of the next ones.
func (e *Engine) Unlearn() {
	e.each(func(en *entry) {
		en.unlearn()
		e.weigh(en)
	})
}

// Learned returns how much memory the answers take that are remembered, how much all keys do,
// measured anew, and how much is said to be used, all at one moment.
func (e *Engine) Learned() (answers, all, said int64) {
	e.each(func(en *entry) {
		answers += en.answers.bytes
		all += en.measure()
		said = e.bytes.Load()
	})
	return answers, all, said
}

// each calls fn for all keys, while nobody else can get at any.
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
