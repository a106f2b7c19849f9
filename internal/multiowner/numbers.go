package multiowner

import (
	"cmp"
	"slices"
	"sync"
)

// numbers numbers the acquires of a coordinator, and tracks the settled ones for each decider. The
// zero value is ready to use; the first number is 1.
type numbers struct {
	mu   sync.Mutex
	last uint64
	open map[string][]numbered // by decider, in order, starting with an unsettled one
}

// numbered is an unsettled acquire, or one that follows an unsettled one.
type numbered struct {
	number  uint64
	settled bool
}

// next returns the number of a new acquire with this decider, and the lowest unsettled number with
// it.
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

// settle records that no node will ask the decider for the outcome of an acquire.
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
