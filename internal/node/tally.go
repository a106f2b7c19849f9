package node

import (
	"sync/atomic"

	"twotier.dev/twotier/httpapi/cluster"
	"twotier.dev/twotier/syncer"
)

// tally counts operations by kind and by the source of their answer.
type tally struct {
	n [len(kinds)][len(sources)]atomic.Int64
}

var (
	kinds   = [...]string{syncer.Add: "add", syncer.Count: "count", syncer.Acquire: "acquire"}
	sources = [...]syncer.Source{
		syncer.SourceMemory, syncer.SourceOwner, syncer.SourceRedis, syncer.SourceFallback,
		syncer.SourceDegraded,
		syncer.SourceShared, syncer.SourceNear,
	}
)

func (t *tally) add(kind syncer.Kind, source syncer.Source) {
	for i, s := range sources {
		if s == source {
			t.n[kind][i].Add(1)
			return
		}
	}
}

func (t *tally) list() (list []cluster.OpCount) {
	for k := range t.n {
		for s := range t.n[k] {
			if n := t.n[k][s].Load(); n > 0 || sources[s] == syncer.SourceMemory {
				list = append(list,
					cluster.OpCount{Op: kinds[k], Source: string(sources[s]), Total: n})
			}
		}
	}
	return list
}
