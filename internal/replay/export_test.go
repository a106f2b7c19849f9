package replay

import "time"

// Names is the memory of names.
type Names struct{ n names[string] }

// NewNames returns a memory of names with generations of that length.
func NewNames(keep time.Duration) *Names { return &Names{names[string]{keep: keep}} }

// Add remembers a name.
func (n *Names) Add(name string, now time.Time) (isNew, room bool) { return n.n.add(name, now) }
