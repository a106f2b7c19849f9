package redisstore

import (
	"strconv"
	"strings"
	"time"

	"twotier.dev/twotier/syncer"
)

// change is the decoded form of syncer.Round.LastChange: a round's sequence, the second in which it
// was cut, and the key under which its writer's sequence is stored.
type change struct {
	seq, second uint64
	writer      string
}

// changeOf formats the change that a round makes.
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

// remembered is how long after a change its writer's sequence certainly still exists. The sequence
// lives twice as long.
const remembered = sequenceTTL / 2

// lacks reports whether the writer's sequence, as read, shows that the data lacks a change. It
// matches lacks in Lua.
func (c *scriptCall) lacks(told string) bool {
	change, ok := parseChange(told)
	if !ok || c.kept == nil {
		return false
	}
	kept, err := c.kept.Text()
	if err != nil { // it does not exist, or is not a string
		return time.Since(time.Unix(int64(change.second), 0)) < remembered
	}
	stored, _ := strconv.ParseUint(kept[:strings.IndexFunc(kept+".", notDigit)], 10, 64)
	return stored < change.seq
}

func notDigit(r rune) bool { return r < '0' || r > '9' }
