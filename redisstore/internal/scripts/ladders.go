package scripts

import (
	"fmt"
	"slices"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// Ladders are the ladders that the arguments of a call refer to by their positions.
type Ladders []*leaparray.Ladder

// Position returns the position of a ladder, counted from 1 as in Lua. It adds the ladder if it is
// new. Nil has position 0.
func (l *Ladders) Position(of *leaparray.Ladder) int {
	if of == nil {
		return 0
	}
	i := slices.Index(*l, of)
	if i < 0 {
		i = len(*l)
		*l = append(*l, of)
	}
	return i + 1
}

// Args returns the ladders as the first arguments of a call, in the form that ladderOf in Lua
// reads.
func (l Ladders) Args() []any {
	args := []any{len(l)}
	for _, of := range l {
		text := fmt.Sprint(of.MaxCells(), of.ExactEvents(), syncer.KeyTTL(of))
		for level := range of.Len() {
			text += fmt.Sprint(" ", of.Width(level), " ", of.BucketsKept(level))
		}
		args = append(args, text)
	}
	return args
}
