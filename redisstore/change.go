package redisstore

import (
	"strconv"
	"strings"
	"time"

	"twotier.dev/twotier/redisstore/internal/layout"
)

// remembered is how long after a change its writer's sequence certainly still exists. The sequence
// lives twice as long.
const remembered = sequenceTTL / 2

// lacksChange reports whether the writer's sequence, as read, shows that the data lacks a change.
// It matches lacks in Lua.
func (c *roundCall) lacksChange(told string) bool {
	change, ok := layout.ParseChange(told)
	if !ok || c.SequenceReply == nil {
		return false
	}
	kept, err := c.SequenceReply.Text()
	if err != nil { // it does not exist, or is not a string
		return time.Since(time.Unix(int64(change.Second), 0)) < remembered
	}
	stored, _ := strconv.ParseUint(kept[:strings.IndexFunc(kept+".", notDigit)], 10, 64)
	return stored < change.Seq
}

func notDigit(r rune) bool { return r < '0' || r > '9' }
