package leaparray

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseLadder is the inverse of [Ladder.String]. The error wraps ErrLadder.
func ParseLadder(text string) (*Ladder, error) {
	var levels []Level
	for part := range strings.SplitSeq(text, ", ") {
		width, count, _ := strings.Cut(part, " x ")
		w, err := time.ParseDuration(width)
		n, err2 := strconv.Atoi(count)
		if err != nil || err2 != nil {
			return nil, fmt.Errorf("%w: %q is not WIDTH x COUNT, such as 1s x 60", ErrLadder, part)
		}
		levels = append(levels, Level{Width: w, Count: n})
	}
	return NewLadder(levels...)
}
