package embedded

import (
	"fmt"
	"slices"

	"twotier.dev/twotier/syncer"
)

// write writes the content of a key.
func (p *partition) write(h *hash, k *syncer.KeyRound) {
	before := len(h.cells)
	if !k.Rewrite {
		for _, b := range k.Adds {
			h.cells.add(b.Stretch, b.N)
		}
		h.check(k)
	} else {
		rest := h.log[:0]
		if k.ContentLog != syncer.WholeLog {
			rest = h.log[k.ContentLog:]
		}
		h.cells, h.log = h.cells[:0], rest
		for _, b := range slices.Concat(k.Content, rest) {
			h.cells.add(b.Stretch, b.N)
		}
	}
	p.store.bytes.Add(cellCost * int64(len(h.cells)-before))
}

// check panics if a key does not have its Content, apart from its log.
func (h *hash) check(k *syncer.KeyRound) {
	pages := slices.Clone(h.cells)
	for _, b := range h.log {
		if at, found := pages.find(b.Stretch); b.N != 0 {
			pages.add(b.Stretch, -b.N)
		} else if found && pages[at].N == 0 {
			pages = slices.Delete(pages, at, at+1)
		}
	}
	widths := map[int64]bool{}
	for _, b := range k.Adds {
		widths[b.Width] = true
	}
	n := 0
	for _, c := range pages {
		if widths[c.Width] {
			n++
		}
	}
	for _, b := range k.Content {
		_, found := pages.find(b.Stretch)
		if pages.get(b.Stretch) != b.N && !h.again {
			panic(fmt.Sprintf("%q: %v of %v instead of %v", k.Key, b, k.Content, pages))
		}
		if !widths[b.Width] || !found {
			n++
		}
	}
	if n != len(k.Content) {
		panic(fmt.Sprintf("%q: %v instead of %v", k.Key, k.Content, pages))
	}
}
