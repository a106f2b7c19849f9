package multiowner

import (
	"cmp"
	"slices"
	"sync"
)

// numbers numbers the acquires of a coordinator, and knows for each decider which of them are
// settled. The zero value is ready to use; the first number is 1.
type numbers struct {
	mu   sync.Mutex
	last uint64
	open map[string][]numbered // by decider, in order, beginning with one that is not settled
}

// numbered is an acquire that is not settled, or comes after one that is not.
type numbered struct {
	number  uint64
	settled bool
}

// next returns the number of another acquire with this decider, and one below which all with it are
// settled.
func (n *numbers) next(decider string) (number, settled uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open == nil {
		n.open = map[string][]numbered{}
	}
	n.last++
	n.open[decider] = append(n.open[decider], numbered{number: n.last})
	return n.last, n.open[decider][0].number
}

// settle records that nobody will ask the decider what became of an acquire.
func (n *numbers) settle(decider string, number uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.open[decider]
	at, _ := slices.BinarySearchFunc(list, number, func(o numbered, number uint64) int {
		return cmp.Compare(o.number, number)
	})
	list[at].settled = true
	for len(list) > 0 && list[0].settled {
		list = list[1:]
	}
	if n.open[decider] = list; len(list) == 0 {
		delete(n.open, decider)
	}
}
