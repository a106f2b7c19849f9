package redisstore

import (
	"strconv"
	"strings"
	"time"

	"twotier.dev/twotier/syncer"
)

// change is what syncer.Round.LastChange says: the round of a number, cut at this second, of the
// writer whose sequence has this key.
type change struct {
	seq, second uint64
	writer      string
}

// changeOf is how the change that a round makes is told of.
func changeOf(r *syncer.Round) string {
	b := strconv.AppendUint(make([]byte, 0, 64), r.Seq, 10)
	b = strconv.AppendInt(append(b, ' '), time.Now().Unix(), 10)
	return string(appendWriterKey(append(b, ' '), r.Partition, r.Writer))
}

func parseChange(s string) (c change, ok bool) {
	seq, rest, _ := strings.Cut(s, " ")
	second, writer, ok := strings.Cut(rest, " ")
	if !ok {
		return c, false
	}
	var err, errSecond error
	c.seq, err = strconv.ParseUint(seq, 10, 64)
	c.second, errSecond = strconv.ParseUint(second, 10, 64)
	c.writer = writer
	return c, err == nil && errSecond == nil
}

// remembered is for how long after a change its writer's sequence is surely there. The sequence
// lives for twice as long.
const remembered = sequenceTTL / 2

// lacks reports whether the sequence that was read says that a change is not part of the data. It
// does what lacks does in Lua.
func (c *scriptCall) lacks(told string) bool {
	change, ok := parseChange(told)
	if !ok || c.kept == nil {
		return false
	}
	kept, err := c.kept.Text()
	if err != nil { // it is not there, or no text
		return time.Since(time.Unix(int64(change.second), 0)) < remembered
	}
	stored, _ := strconv.ParseUint(kept[:strings.IndexFunc(kept+".", notDigit)], 10, 64)
	return stored < change.seq
}

func notDigit(r rune) bool { return r < '0' || r > '9' }
