package embedded

import (
	"strings"

	"twotier.dev/twotier"
)

// rank returns the place of a key in the order in which keys are dropped: its count. So keys at
// their limits outlive the keys of a flood, which have counted less. A companion ranks with the key
// that it belongs to: a ban or a lease has a count of one, and would go before the counts of that
// key. Expired keys go first.
func (p *partition) rank(h *hash, now int64) float64 {
	switch {
	case now > h.expires:
		return 0
	case h.companion:
		p.followKey(h, now)
		return max(h.accompanied, h.count())
	}
	return h.count()
}

// followKey updates a companion after a change of its key. If the key is gone, or has expired, the
// companion keeps its rank.
func (p *partition) followKey(companion *hash, now int64) {
	ns, name, _ := strings.Cut(companion.name, "\x00")
	keyNS, key := twotier.Accompanied([]byte(ns), []byte(name))
	if string(keyNS) == twotier.DefaultNamespace {
		keyNS = nil
	}
	full := append(append(append(make([]byte, 0, len(companion.name)), keyNS...), 0), key...)
	if h := p.keys[string(full)]; h != nil && now <= h.expires {
		companion.accompanied = max(companion.accompanied, h.count())
	}
}

// isCompanion reports whether a key, by its name in the format of partition.setName, is a
// companion.
func isCompanion(name string) bool {
	if name[0] != '@' {
		return false
	}
	ns, _, _ := strings.Cut(name, "\x00")
	return twotier.Companion([]byte(ns)) != ""
}

// count returns the total count of a key. It is a float because a sum of large counts may not fit
// 64 bits, and would rank as a small one.
func (h *hash) count() (n float64) {
	for i := range h.cells {
		n += float64(h.cells[i].N)
	}
	return n
}
