package holds

// MaxSlots is maxSlots.
const MaxSlots = maxSlots

// Slots returns how many slots a namespace has.
func (t *Tally) Slots(ns string) int { return len(t.spaces[ns].open) }

// Ticks returns how many ticks have deadlines.
func (d *Deadlines) Ticks() int { return len(d.due) }

// Kill stops releasing like Close, but writes nothing.
func (d *Deadlines) Kill() {
	d.stop()
	d.loops.Wait()
}
