package redisstore

// guess takes a key for one that does not exist.
func (k *heldKey) guess(generation uint32) {
	k.load(nil, 0)
	k.guessed, k.generation = true, generation
}

// guesses learns how many of the keys that a worker does not hold exist. If nearly none does, it is
// faster not to read them.
type guesses struct{ existing int } // a moving average, of one key in this many

const (
	guessUnit = 1 << 16
	guessRate = 256 // how many keys the average remembers, about
)

// learn records whether a key existed.
func (g *guesses) learn(existed bool) {
	g.existing -= g.existing / guessRate
	if existed {
		g.existing += guessUnit / guessRate
	}
}

// absent reports whether the next key probably does not exist.
func (g *guesses) absent() bool { return g.existing < guessUnit/8 }
