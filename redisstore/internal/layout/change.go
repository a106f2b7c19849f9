package layout

import (
	"strconv"
	"strings"
	"time"

	"twotier.dev/twotier/syncer"
)

// Change is the decoded form of syncer.Round.LastChange: a round's sequence, the second in which it
// was cut, and the key under which its writer's sequence is stored.
type Change struct {
	// Seq is the round's sequence.
	Seq uint64
	// Second is when the round was cut, in unix seconds.
	Second uint64
	// Writer is the key of the writer's sequence.
	Writer string
}

// FormatChange formats the change that a round makes now.
func (p Prefix) FormatChange(r *syncer.Round) string {
	b := strconv.AppendUint(make([]byte, 0, 64), r.Seq, 10)
	b = strconv.AppendInt(append(b, ' '), time.Now().Unix(), 10)
	return string(p.appendWriterKey(append(b, ' '), r.Partition, r.Writer))
}

// ParseChange decodes a change.
func ParseChange(s string) (c Change, ok bool) {
	seq, rest, _ := strings.Cut(s, " ")
	second, writer, ok := strings.Cut(rest, " ")
	if !ok {
		return c, false
	}
	var err, errSecond error
	c.Seq, err = strconv.ParseUint(seq, 10, 64)
	c.Second, errSecond = strconv.ParseUint(second, 10, 64)
	c.Writer = writer
	return c, err == nil && errSecond == nil
}
