package embedded

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

func (p *partition) write(h *hash, k *syncer.KeyRound) {
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

// Expires returns the end of a key's time to live, in unix milliseconds: 0 if there is no such key,
// math.MaxInt64 if its time to live was never set.
func (s *Store) Expires(partition int, ns, key []byte) int64 {
	p := s.partition(partition)
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.find(ns, key, s.opt.Now().UnixMilli())
	if h == nil {
		return 0
	}
	return h.expires
}

// Get returns the stored counts of a key.
func (s *Store) Get(partition int, ns, key []byte) []syncer.Bucket {
	p := s.partition(partition)
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.find(ns, key, s.opt.Now().UnixMilli())
	if h == nil {
		return nil
	}
	return h.appendTo(nil)
}

// Sum returns the number of stored events of a key.
func (s *Store) Sum(partition int, ns, key []byte) (sum int64) {
	for _, b := range s.Get(partition, ns, key) {
		sum += b.N
	}
	return sum
}

// cells are counts ordered by start, then by width, the narrowest first. A cell of zero stays: in
// the finest width it marks that events lie ahead of the present.
type cells []leaparray.Cell

// find returns the position of a cell, and whether it exists. Most lookups are for the end.
func (c cells) find(s leaparray.Stretch) (at int, found bool) {
	if n := len(c); n == 0 || compare(c[n-1], s) < 0 {
		return n, false
	}
	return slices.BinarySearchFunc(c, s, compare)
}

func compare(c leaparray.Cell, s leaparray.Stretch) int {
	return cmp.Or(cmp.Compare(c.Start, s.Start), cmp.Compare(c.Width, s.Width))
}

func (c cells) get(s leaparray.Stretch) int64 {
	if at, found := c.find(s); found {
		return c[at].N
	}
	return 0
}

// add adds n to a cell, creates it if necessary, and returns the result. Of a value it keeps the
// later time, and deletes it for a negative one, unless it was seen later.
func (c *cells) add(s leaparray.Stretch, n int64) int64 {
	at, found := c.find(s)
	if s.IsValue() {
		switch {
		case !found && n < 0:
			return 0
		case found && n < 0 && -n >= (*c)[at].N:
			*c = slices.Delete(*c, at, at+1)
			return 0
		case found:
			(*c)[at].N = max((*c)[at].N, n)
			return (*c)[at].N
		}
	}
	if !found {
		*c = slices.Insert(*c, at, leaparray.Cell{Stretch: s})
	}
	sum := syncer.AddCounts((*c)[at].N, n)
	if (*c)[at].N = sum; sum == 0 && n != 0 { // all was taken back
		*c = slices.Delete(*c, at, at+1)
	}
	return sum
}

func nonZero(list []leaparray.Cell) cells {
	return slices.DeleteFunc(slices.Clone(list),
		func(c leaparray.Cell) bool { return c.N == 0 })
}

const (
	// listPage is the number of hashes read at a time.
	listPage = 4096
	// listSlack is the number of hashes of dropped keys that a list may have, in addition to as
	// many as there are existing keys.
	listSlack = 1024
)

// keyList lists the hashes of a partition's keys in order of arrival. Dropped keys stay on it until
// it is rebuilt, as another part.
type keyList struct {
	part   uint64
	hashes []uint32
}

// appendToList adds the key named p.name to the list.
func (p *partition) appendToList() {
	if len(p.list.hashes) > 2*len(p.keys)+listSlack {
		p.list = keyList{part: p.list.part + 1}
		for name := range p.keys {
			p.list.add([]byte(name))
		}
		return
	}
	p.list.add(p.name)
}

// add adds a key by its name, in the format of partition.setName.
func (l *keyList) add(name []byte) {
	ns, key, _ := bytes.Cut(name, []byte{0})
	l.hashes = append(l.hashes, syncer.KeyHash(ns, key))
}

// ListKeys implements syncer.Lister.
func (s *Store) ListKeys(_ context.Context, lists []*syncer.KeyList) {
	for _, l := range lists {
		p := s.partition(l.Partition)
		p.mu.Lock()
		p.readList(l)
		p.mu.Unlock()
	}
}

func (p *partition) readList(l *syncer.KeyList) {
	l.Err, l.Version, l.Quieted, l.LastChange = nil, p.version, p.quieted, p.last
	l.Lost = l.Told.Epoch != 0 && p.isBehind(l.Told)
	if l.Lost {
		l.Hashes, l.More = l.Hashes[:0], false
		return
	}
	l.Begun = l.Epoch != p.epoch || l.Part != p.list.part || l.Offset > uint64(len(p.list.hashes))
	if l.Begun {
		l.Epoch, l.Part, l.Offset = p.epoch, p.list.part, 0
	}
	rest := p.list.hashes[l.Offset:]
	page := rest[:min(len(rest), listPage)]
	l.Hashes, l.More = append(l.Hashes[:0], page...), len(page) < len(rest)
	l.Offset += uint64(len(page))
}
