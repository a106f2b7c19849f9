package multiowner

import "sync"

// numbers numbers the acquires of a coordinator, and knows which are settled. The zero value is
// ready to use; the first number is 1.
type numbers struct {
	mu      sync.Mutex
	settled uint64 // numbers up to this one are
	after   []bool // whether each of the following numbers is settled
}

// next returns the number of another acquire, and one below which all are settled.
func (n *numbers) next() (number, settled uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.after = append(n.after, false)
	return n.settled + uint64(len(n.after)), n.settled + 1
}

// settle records that nobody will ask what became of an acquire.
func (n *numbers) settle(number uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.after[number-n.settled-1] = true
	done := 0
	for done < len(n.after) && n.after[done] {
		done++
	}
	n.settled, n.after = n.settled+uint64(done), n.after[done:]
}
