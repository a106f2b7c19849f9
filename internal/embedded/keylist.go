package embedded

import (
	"bytes"
	"context"

	"twotier.dev/twotier/syncer"
)

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
